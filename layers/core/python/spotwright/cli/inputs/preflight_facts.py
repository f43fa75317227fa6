"""What the preflight knows, asked with the credentials of whoever runs it."""

import base64
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from kubernetes.client.configuration import Configuration

from spotwright.adapters.aws import clients, node_roles, preflight
from spotwright.adapters.aws.answers import ask
from spotwright.adapters.aws.eks import readiness
from spotwright.adapters.aws.eks.token import kubernetes_token
from spotwright.adapters.aws.errors import translate_errors
from spotwright.adapters.kubernetes.connection import token_configuration
from spotwright.adapters.kubernetes.dynamic_client import DynamicClient
from spotwright.errors import ApiError, Denied, NotFound
from spotwright.workflows.install.preflight.facts import (
    NOT_ASKED,
    AccessEntry,
    ClusterDescription,
    Facts,
    FunctionEntry,
    NodePoolDemand,
    NotAsked,
    Subnet,
    Target,
    Workloads,
)
from spotwright.workflows.install.preflight.vcpu_quotas import nodepool_demand, usual_quotas
from spotwright.workflows.install.preflight.workloads import read_workloads, unserved_volume

_UNKNOWN: Final = NotAsked("the cluster is not known")
_NO_ENDPOINT: Final = NotAsked("the cluster has no API server yet")
_BUILDER_SECONDS: Final = 20


def gather_facts(target: Target) -> Facts:
    """Everything that the checks of a cluster look at. Raises MissingRegion."""
    region = target.region
    eks, iam, ec2 = (clients.client(service, region=region) for service in ("eks", "iam", "ec2"))
    cluster = readiness.describe(eks, target.name)
    is_known = isinstance(cluster, ClusterDescription)
    arns = _role_arns(target)
    subnets = preflight.subnets(ec2, target.subnet_ids, target.vpc_id) if target.vpc_id else {}
    image_builder = _image_builder()
    workloads, volume, nodepools = in_cluster(eks, target) if is_known else (_UNKNOWN, _UNKNOWN, _UNKNOWN)
    return Facts(
        cluster=cluster,
        other_clusters=() if is_known else readiness.cluster_names(eks),
        roles={name: node_roles.role(iam, name) for name in target.node_roles},
        entries=_entries(eks, target, arns) if is_known else {},
        function_entries=_function_entries(eks, target) if is_known else _UNKNOWN,
        addons=preflight.described_addons(eks, target.name) if is_known else _UNKNOWN,
        workloads=workloads,
        unserved_volume=volume,
        subnets=subnets,
        security_groups=preflight.security_groups(ec2, target.security_group_ids) if target.vpc_id else {},
        endpoints=endpoints_for(ec2, target, subnets) if target.vpc_id else frozenset(),
        admitted=_admitted(ec2, cluster) if target.vpc_id else NOT_ASKED,
        concurrency=preflight.concurrency(clients.client("lambda", region=region)),
        has_spot_role=preflight.spot_role_exists(iam),
        nodepools=nodepools,
        vcpu_quotas=_vcpu_quotas(region, nodepools),
        boundary=_boundary(iam, target, arns),
        has_image=preflight.image_exists(target.forwarder_image) if target.forwarder_image else NOT_ASKED,
        image_builder=image_builder,
        image_builder_failure=why_it_builds_nothing(image_builder) if not target.forwarder_image else "",
        key=preflight.kms_key(clients.client("kms", region=region), target.kms_key_arn) if target.kms_key_arn else None,
    )


def _admitted(ec2: Any, cluster: ClusterDescription | None | NotAsked) -> frozenset[str] | NotAsked:
    if not isinstance(cluster, ClusterDescription) or not cluster.security_groups:
        return _UNKNOWN
    return preflight.admitted(ec2, cluster.security_groups)


def endpoints_for(ec2: Any, target: Target, subnets: Mapping[str, Subnet] | NotAsked) -> frozenset[str] | NotAsked:
    """Those that subnets without a way to the internet depend on."""
    if isinstance(subnets, NotAsked):
        return subnets
    closed = {subnet.route_table for subnet in subnets.values() if not subnet.default_route}
    return preflight.endpoints(ec2, target.vpc_id, closed)


def _image_builder() -> str:
    """What the CDK CLI builds images with; "" where it is not on this machine."""
    program = os.environ.get("CDK_DOCKER", "docker")
    return program if shutil.which(program) else ""


def why_it_builds_nothing(program: str) -> str:
    """What the program says where it builds no images, as docker does without its daemon; "" = it works."""
    if not program:
        return ""
    try:
        asked = subprocess.run([program, "info"], capture_output=True, text=True, timeout=_BUILDER_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired) as failure:
        return " ".join(str(failure).split())
    said = asked.stderr.strip().splitlines() or [f"{program} info ended with {asked.returncode}"]
    return said[-1].removeprefix("ERROR: ") if asked.returncode else ""


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


def _function_entries(eks: Any, target: Target) -> tuple[FunctionEntry, ...] | NotAsked:
    cloudformation = clients.client("cloudformation", region=target.region)
    return preflight.function_entries(cloudformation, eks, f"Spotwright-{target.cell}", target.name)


def _boundary(iam: Any, target: Target, arns: dict[str, str] | NotAsked) -> Mapping[str, Any] | None | NotAsked:
    boundary = target.permissions_boundary
    if not boundary:
        return NOT_ASKED
    if boundary.startswith("arn:"):
        return preflight.policy_document(iam, boundary)
    if isinstance(arns, NotAsked) or not arns:
        return arns if isinstance(arns, NotAsked) else NotAsked("no node role says which account it is")
    prefix = next(iter(arns.values())).partition(":role/")[0]
    return preflight.policy_document(iam, f"{prefix}:policy/{boundary}")


def _vcpu_quotas(region: str, nodepools: tuple[NodePoolDemand, ...] | NotAsked) -> Mapping[str, int] | NotAsked:
    needed = () if isinstance(nodepools, NotAsked) else (quota for pool in nodepools for quota in pool.quotas)
    codes = sorted({quota.code for quota in (*usual_quotas(), *needed)})
    return preflight.vcpu_quotas(clients.client("service-quotas", region=region), codes)


def in_cluster(
    eks: Any, target: Target
) -> tuple[Workloads | NotAsked, str | NotAsked, tuple[NodePoolDemand, ...] | NotAsked]:
    """What runs in the cluster, a volume without a driver, and NodePools, with a token of the caller, who may have no
    access entry there."""
    try:
        connection = _connection(eks, target)
        if connection is None:
            return _NO_ENDPOINT, _NO_ENDPOINT, _NO_ENDPOINT
        objects = DynamicClient(connection, attempts=1)
        return (
            read_workloads(objects),
            _answer(target, partial(unserved_volume, objects)),
            _answer(target, partial(_nodepools, objects)),
        )
    except ApiError as failure:
        unknown = why_not_answered(target, failure)
        return unknown, unknown, unknown


def _nodepools(objects: DynamicClient) -> tuple[NodePoolDemand, ...]:
    """None before NodePools have a definition there."""
    try:
        return tuple(map(nodepool_demand, objects.list("karpenter.sh/v1", "NodePool")))
    except NotFound:
        return ()


def _connection(eks: Any, target: Target) -> Configuration | None:
    """None = EKS names no endpoint, as of a cluster that it makes or could not make."""
    with translate_errors("eks:DescribeCluster"):
        cluster = eks.describe_cluster(name=target.name)["cluster"]
    endpoint, authority = cluster.get("endpoint"), (cluster.get("certificateAuthority") or {}).get("data")
    if not endpoint or not authority:
        return None
    sts = clients.client("sts", region=target.region)
    decoded = base64.b64decode(authority).decode()
    return token_configuration(endpoint, decoded, lambda: kubernetes_token(sts, target.name))


def _answer[Answer](target: Target, call: Callable[[], Answer]) -> Answer | NotAsked:
    try:
        return call()
    except ApiError as failure:
        return why_not_answered(target, failure)


def why_not_answered(target: Target, failure: ApiError) -> NotAsked:
    """What the API server, or the way to it, answered the caller, and what to do about it."""
    said = " ".join(str(failure).split())
    if isinstance(failure, Denied):
        return NotAsked(
            f"the API server refuses you ({said}): use credentials (AWS_PROFILE) with an access entry in {target.name}"
            " that has AmazonEKSAdminViewPolicy; cdk deploy looks at this itself, with an entry of its own"
        )
    return NotAsked(
        f"the API server does not answer you ({said}): where its endpoint is private, say this again from its VPC; cdk"
        " deploy looks at this itself, from where the functions run"
    )
