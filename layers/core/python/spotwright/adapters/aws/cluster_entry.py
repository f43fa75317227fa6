"""A cluster's entry in cdk.json, from what EKS says of the cluster: its nodes' roles, and a VPC where it needs one."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from spotwright.adapters.aws import preflight
from spotwright.adapters.aws.errors import translate_errors
from spotwright.workflows.install.preflight.facts import NotAsked

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_eks.client import EKSClient

_ANYWHERE = frozenset({"0.0.0.0/0", "::/0"})


def cluster_entry(eks: "EKSClient", ec2: "EC2Client", name: str) -> dict[str, Any]:
    """The entry, with keys as cdk.json has them. Raises NotFound, ApiError."""
    with translate_errors(f"DescribeCluster {name}"):
        cluster: Any = eks.describe_cluster(name=name)["cluster"]
    groups = _node_groups(eks, name)
    linux, windows = _node_roles(eks, name, groups)
    entry: dict[str, Any] = {"name": name, "nodeRoles": sorted({*linux, *windows})}
    if windows:
        entry["windowsNodeRoles"] = sorted(windows)
    entry["forwarderArchitecture"] = _architecture(groups)
    network = cluster["resourcesVpcConfig"]
    is_open = network.get("endpointPublicAccess", True) and _ANYWHERE & {*network.get("publicAccessCidrs", _ANYWHERE)}
    if not is_open:
        entry["vpc"], is_isolated = _vpc(ec2, network)
        entry |= {"settings": {"ISOLATED_VPC": "true"}} if is_isolated else {}
    return entry


def _node_groups(eks: "EKSClient", name: str) -> list[Any]:
    """The cluster's managed node groups."""
    with translate_errors(f"ListNodegroups {name}"):
        pages = eks.get_paginator("list_nodegroups").paginate(clusterName=name)
        names = [group for page in pages for group in page["nodegroups"]]
        return [eks.describe_nodegroup(clusterName=name, nodegroupName=group)["nodegroup"] for group in names]


def _architecture(groups: Iterable[Any]) -> str:
    """Of the nodes that the forwarder's image is built for: arm64 where all node groups are of that, else amd64."""
    images = [group.get("amiType", "") for group in groups]
    return "arm64" if images and all("ARM" in image for image in images) else "amd64"


def _node_roles(eks: "EKSClient", name: str, groups: Iterable[Any]) -> tuple[set[str], set[str]]:
    """Names of roles that Linux nodes, and that Windows nodes, run as: those of node groups and of access entries."""
    arns: dict[str, set[str]] = {"EC2_LINUX": set(), "EC2_WINDOWS": set()}
    with translate_errors(f"ListAccessEntries {name}"):
        for page in eks.get_paginator("list_access_entries").paginate(clusterName=name):
            for principal in page["accessEntries"]:
                answer = eks.describe_access_entry(clusterName=name, principalArn=principal)
                arns.get(answer["accessEntry"].get("type", ""), set()).add(principal)
    for group in groups:
        kind = "EC2_WINDOWS" if group.get("amiType", "").startswith("WINDOWS") else "EC2_LINUX"
        arns[kind].add(group["nodeRole"])
    names = {kind: {arn.partition(":role/")[2] for arn in found} for kind, found in arns.items()}
    return names["EC2_LINUX"] - names["EC2_WINDOWS"], names["EC2_WINDOWS"]


def _vpc(ec2: "EC2Client", network: Any) -> tuple[dict[str, Any], bool]:
    """The cluster's VPC with subnets that are not public, and the group whose members reach the API server; and whether
    these subnets have no way to the internet.

    Subnets of the cluster, or where these are all public the others of its VPC; none where it has none.
    """
    vpc_id = network["vpcId"]
    routes = _routes(ec2, tuple(network["subnetIds"]), vpc_id) or _routes(ec2, _subnets_of(ec2, vpc_id), vpc_id)
    vpc = {
        "vpcId": vpc_id,
        "subnetIds": list(routes),
        "securityGroupIds": [network["clusterSecurityGroupId"]],
    }
    return vpc, "" in routes.values()


def _subnets_of(ec2: "EC2Client", vpc_id: str) -> tuple[str, ...]:
    with translate_errors(f"DescribeSubnets {vpc_id}"):
        pages = ec2.get_paginator("describe_subnets").paginate(Filters=[{"Name": "vpc-id", "Values": [vpc_id]}])
        return tuple(sorted(subnet["SubnetId"] for page in pages for subnet in page["Subnets"]))


def _routes(ec2: "EC2Client", ids: tuple[str, ...], vpc_id: str) -> dict[str, str | None]:
    """Where the default route of each leads that has none to an internet gateway; None where EC2 does not say."""
    subnets = preflight.subnets(ec2, ids, vpc_id)
    known = {} if isinstance(subnets, NotAsked) else {id: subnet.default_route for id, subnet in subnets.items()}
    return {id: known.get(id) for id in ids if known.get(id) != "igw"}
