"""Whether a permissions boundary lets the roles of the stack do their work."""

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from spotwright.workflows.install.preflight.facts import Target

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
# What CDK grants besides: to functions in a VPC for their network interfaces, and for the customer's key.
_CALLS_IN_VPC: Final[Mapping[str, str]] = {
    "ec2": (
        "AssignPrivateIpAddresses CreateNetworkInterface DeleteNetworkInterface DescribeNetworkInterfaces"
        " UnassignPrivateIpAddresses"
    )
}
_CALLS_OF_KEY: Final[Mapping[str, str]] = {
    "kms": "Decrypt DescribeKey Encrypt GenerateDataKey ReEncryptFrom ReEncryptTo"
}
# Granted for ENABLE_ZONAL_SHIFT and removeDataOnDestroy alone; a boundary is not asked for them.
OF_OPTIONS: Final = (
    "arc-zonal-shift:GetManagedResource",
    "s3:DeleteObject",
    "s3:DeleteObjectVersion",
    "s3:ListBucketVersions",
)


def needed_actions(target: Target) -> tuple[str, ...]:
    """What the roles of a stack with this cluster are granted whatever its settings are."""
    granted = [_CALLS]
    granted += [_CALLS_IN_VPC] if target.vpc_id else []
    granted += [_CALLS_OF_KEY] if target.kms_key_arn else []
    return tuple(f"{service}:{call}" for each in granted for service, calls in each.items() for call in calls.split())


def refused_actions(document: Mapping[str, Any], needed: Iterable[str]) -> tuple[str, ...]:
    """Those of the needed actions that the boundary does not allow at all, or denies for everything, in their order.

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
        for action in needed
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
