"""What the preflight knows, asked with the credentials of whoever runs it."""

import base64
import os
import shutil
from typing import Any

from spotwright.adapters.aws import clients, node_roles, preflight
from spotwright.adapters.aws.answers import ask
from spotwright.adapters.aws.eks import readiness
from spotwright.adapters.aws.eks.token import kubernetes_token
from spotwright.adapters.aws.errors import translate_errors
from spotwright.adapters.kubernetes.connection import token_configuration
from spotwright.adapters.kubernetes.dynamic_client import DynamicClient
from spotwright.errors import ApiError
from spotwright.workflows.install.preflight.facts import (
    AccessEntry,
    ClusterDescription,
    Facts,
    NotAsked,
    Target,
    Workloads,
)
from spotwright.workflows.install.preflight.workloads import read_workloads


def gather_facts(target: Target) -> Facts:
    """Everything that the checks of a cluster look at. Raises MissingRegion."""
    region = target.region
    eks, iam, ec2 = (clients.client(service, region=region) for service in ("eks", "iam", "ec2"))
    cluster = readiness.describe(eks, target.name)
    is_known = isinstance(cluster, ClusterDescription)
    arns = _role_arns(target)
    return Facts(
        cluster=cluster,
        other_clusters=() if is_known else readiness.cluster_names(eks),
        roles={name: node_roles.role(iam, name) for name in target.node_roles},
        entries=_entries(eks, target, arns) if is_known else {},
        addons=readiness.addons(eks, target.name) if is_known else NotAsked("the cluster is not known"),
        workloads=_workloads(eks, target) if is_known else NotAsked("the cluster is not known"),
        subnets=preflight.subnets(ec2, target.subnet_ids, target.vpc_id) if target.vpc_id else {},
        security_groups=preflight.security_groups(ec2, target.security_group_ids) if target.vpc_id else {},
        endpoints=preflight.endpoints(ec2, target.vpc_id) if target.vpc_id else frozenset(),
        concurrency=preflight.concurrency(clients.client("lambda", region=region)),
        has_spot_role=preflight.spot_role_exists(iam),
        has_boundary=_has_boundary(iam, target, arns),
        image_builder=_image_builder(),
        key=preflight.kms_key(clients.client("kms", region=region), target.kms_key_arn) if target.kms_key_arn else None,
    )


def _image_builder() -> str:
    """What the CDK CLI builds images with; "" where it is not on this machine."""
    program = os.environ.get("CDK_DOCKER", "docker")
    return program if shutil.which(program) else ""


def _role_arns(target: Target) -> dict[str, str] | NotAsked:
    """ARNs of the node roles by role, in the account of the caller."""
    sts = clients.client("sts", region=target.region)
    caller = ask("sts:GetCallerIdentity", sts.get_caller_identity)
    if isinstance(caller, NotAsked):
        return caller
    return preflight.role_arns(caller["Arn"].split(":")[1], caller["Account"], target)


def _entries(eks: Any, target: Target, arns: dict[str, str] | NotAsked) -> dict[str, AccessEntry | None | NotAsked]:
    if isinstance(arns, NotAsked):
        return dict.fromkeys(target.node_roles, arns)
    return preflight.entries(eks, target.name, arns)


def _has_boundary(iam: Any, target: Target, arns: dict[str, str] | NotAsked) -> bool | NotAsked:
    boundary = target.permissions_boundary
    if not boundary or boundary.startswith("arn:"):
        return preflight.policy_exists(iam, boundary) if boundary else True
    if isinstance(arns, NotAsked) or not arns:
        return arns if isinstance(arns, NotAsked) else NotAsked("no node role says which account it is")
    prefix = next(iter(arns.values())).partition(":role/")[0]
    return preflight.policy_exists(iam, f"{prefix}:policy/{boundary}")


def _workloads(eks: Any, target: Target) -> Workloads | NotAsked:
    """What runs in the cluster, with a token of the caller, who may have no access entry there."""
    try:
        with translate_errors("eks:DescribeCluster"):
            cluster = eks.describe_cluster(name=target.name)["cluster"]
        authority = base64.b64decode(cluster["certificateAuthority"]["data"]).decode()
        sts = clients.client("sts", region=target.region)
        configuration = token_configuration(cluster["endpoint"], authority, lambda: kubernetes_token(sts, target.name))
        return read_workloads(DynamicClient(configuration, attempts=1))
    except ApiError as failure:
        return NotAsked(f"the API server does not answer you: {failure}")
