"""Whether a permissions boundary lets the roles of the stack do their work."""

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

# The actions that roles of the stack are granted, by service; tests/infra/test_grants.py compares.
_CALLS: Final[Mapping[str, str]] = {
    "cloudformation": "DescribeStacks",
    "dynamodb": "BatchGetItem GetItem PutItem Query UpdateItem",
    "ec2": (
        "CreateFleet CreateLaunchTemplate CreateLaunchTemplateVersion CreateTags DeleteLaunchTemplate"
        " DescribeCapacityReservations DescribeImages DescribeInstanceStatus DescribeInstanceTypeOfferings"
        " DescribeInstanceTypes DescribeInstances DescribeLaunchTemplateVersions DescribeLaunchTemplates"
        " DescribePlacementGroups DescribeSecurityGroups DescribeSpotPriceHistory DescribeSubnets RunInstances"
        " TerminateInstances"
    ),
    "eks": (
        "AssociateAccessPolicy CreateAccessEntry DeleteAccessEntry DescribeAccessEntry DescribeCluster"
        " ListAccessEntries ListAddons ListClusters TagResource"
    ),
    "iam": (
        "AddRoleToInstanceProfile CreateInstanceProfile DeleteInstanceProfile GetInstanceProfile GetRole"
        " ListAttachedRolePolicies ListInstanceProfiles ListRolePolicies PassRole RemoveRoleFromInstanceProfile"
        " TagInstanceProfile"
    ),
    "logs": "CreateLogStream PutLogEvents",
    "pricing": "GetProducts",
    "s3": "GetObject ListBucket PutObject",
    "sqs": "DeleteMessage GetQueueAttributes ReceiveMessage SendMessage",
    "ssm": "GetParameters",
    "sts": "AssumeRole",
}
ACTIONS: Final = tuple(f"{service}:{call}" for service, calls in _CALLS.items() for call in calls.split())
# Granted for the setting ENABLE_ZONAL_SHIFT alone.
OF_ZONAL_SHIFTS: Final = ("arc-zonal-shift:GetManagedResource",)


def refused_actions(document: Mapping[str, Any]) -> tuple[str, ...]:
    """Actions that the boundary does not allow at all, or denies for everything, in the order of ``ACTIONS``.

    What it allows for some resources or under a condition counts as allowed.
    https://docs.aws.amazon.com/IAM/latest/UserGuide/access_policies_boundaries.html
    """
    allowing = [statement for statement in _statements(document) if statement.get("Effect") == "Allow"]
    denying = [
        statement
        for statement in _statements(document)
        if statement.get("Effect") == "Deny"
        and "*" in _listed(statement.get("Resource"))
        and not statement.get("Condition")
    ]
    return tuple(
        action
        for action in ACTIONS
        if not any(_is_of(action, statement) for statement in allowing)
        or any(_is_of(action, statement) for statement in denying)
    )


def _statements(document: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield from _listed(document.get("Statement"))


def _is_of(action: str, statement: Mapping[str, Any]) -> bool:
    if "NotAction" in statement:
        return not _matches(action, statement["NotAction"])
    return _matches(action, statement.get("Action"))


def _matches(action: str, patterns: Any) -> bool:
    return any(fnmatchcase(action.lower(), str(pattern).lower()) for pattern in _listed(patterns))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]
