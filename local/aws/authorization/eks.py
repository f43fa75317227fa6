"""EKS: clusters, access entries and Pod Identity associations.

https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonelastickubernetesservice.html
"""

from collections.abc import Mapping
from typing import Any

from local.aws.calls.request import AwsError, AwsRequest
from local.aws.eks.backend import EksBackend
from local.aws.emulator import Emulator
from local.aws.iam.condition_keys import request_tags, resource_tags
from local.aws.iam.policies import ANY_RESOURCE, AccessRequest

_ON_ENTRY = (
    "DescribeAccessEntry",
    "UpdateAccessEntry",
    "DeleteAccessEntry",
    "AssociateAccessPolicy",
    "DisassociateAccessPolicy",
    "ListAssociatedAccessPolicies",
)
_TAGGING = ("TagResource", "UntagResource", "ListTagsForResource")


def required_access(emulator: Emulator, request: AwsRequest) -> list[AccessRequest]:
    params, action = request.params, f"eks:{request.action}"
    context = _context(params)
    cluster = params.get("clusterName") or params.get("name")
    if request.action in _ON_ENTRY:
        return [AccessRequest(action, _entry_arn(emulator, params), context | _entry_tags(emulator, params))]
    if request.action in _TAGGING:
        tags = resource_tags(emulator.component(EksBackend).entry_tags(params["resourceArn"]), "eks")
        return [AccessRequest(action, params["resourceArn"], context | tags)]
    if cluster is None:
        return [AccessRequest(action, ANY_RESOURCE)]
    asked = [AccessRequest(action, f"arn:aws:eks:{emulator.region}:{emulator.account}:cluster/{cluster}", context)]
    if request.action == "CreatePodIdentityAssociation":
        passed = {"iam:passedtoservice": ("pods.eks.amazonaws.com",)}
        asked.append(AccessRequest("iam:PassRole", params["roleArn"], passed))
    return asked


def _entry_arn(emulator: Emulator, params: Mapping[str, Any]) -> str:
    """The entry's ARN, or one that only a pattern over all entries of the principal would match."""
    cluster, principal = params["clusterName"], params["principalArn"]
    try:
        return emulator.component(EksBackend).access_entry(cluster, principal).arn
    except AwsError:
        kind, _, name = principal.rsplit(":", 1)[-1].partition("/")
        owner = f"arn:aws:eks:{emulator.region}:{emulator.account}:access-entry"
        return f"{owner}/{cluster}/{kind}/{emulator.account}/{name}/none"


def _entry_tags(emulator: Emulator, params: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    try:
        entry = emulator.component(EksBackend).access_entry(params["clusterName"], params["principalArn"])
    except AwsError:
        return {}
    return resource_tags(entry.tags, "eks")


def _context(params: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    scope = params.get("accessScope") or {}
    single = {
        "eks:principalarn": params.get("principalArn"),
        "eks:username": params.get("username"),
        "eks:accessentrytype": params.get("type"),
        "eks:policyarn": params.get("policyArn"),
        "eks:accessscope": scope.get("type"),
    }
    context = {key: (str(value),) for key, value in single.items() if value}
    if params.get("kubernetesGroups"):
        context["eks:kubernetesgroups"] = tuple(params["kubernetesGroups"])
    if scope.get("namespaces"):
        context["eks:namespaces"] = tuple(scope["namespaces"])
    return context | request_tags(params.get("tags") or {})
