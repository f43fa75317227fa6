"""A cluster's entry in cdk.json, from what EKS says of the cluster: its nodes' roles, and a VPC where it needs one."""

from typing import TYPE_CHECKING, Any

from spotwright.adapters.aws import preflight
from spotwright.adapters.aws.errors import translate_errors
from spotwright.workflows.install.preflight.facts import NotAsked

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_eks.client import EKSClient

_ANYWHERE = frozenset({"0.0.0.0/0", "::/0"})


def cluster_entry(eks: "EKSClient", ec2: "EC2Client", name: str, version: str) -> dict[str, Any]:
    """The entry, with keys as cdk.json has them. ``version``: the forwarder image's. Raises NotFound, ApiError."""
    with translate_errors(f"DescribeCluster {name}"):
        cluster: Any = eks.describe_cluster(name=name)["cluster"]
    linux, windows = _node_roles(eks, name)
    entry: dict[str, Any] = {"name": name, "nodeRoles": sorted({*linux, *windows})}
    if windows:
        entry["windowsNodeRoles"] = sorted(windows)
    entry["forwarderImage"] = f"{_registry(cluster['arn'])}/spotwright-forwarder:{version}"
    network = cluster["resourcesVpcConfig"]
    is_open = network.get("endpointPublicAccess", True) and _ANYWHERE & {*network.get("publicAccessCidrs", _ANYWHERE)}
    if not is_open:
        entry["vpc"] = _vpc(ec2, network)
    return entry


def _registry(cluster_arn: str) -> str:
    """The registry of the cluster's account and region."""
    _, partition, _, region, account, *_ = cluster_arn.split(":")
    return f"{account}.dkr.ecr.{region}.amazonaws.com{'.cn' if partition == 'aws-cn' else ''}"


def _node_roles(eks: "EKSClient", name: str) -> tuple[set[str], set[str]]:
    """Names of roles that Linux nodes, and that Windows nodes, run as: those of node groups and of access entries."""
    arns: dict[str, set[str]] = {"EC2_LINUX": set(), "EC2_WINDOWS": set()}
    with translate_errors(f"ListAccessEntries {name}"):
        for page in eks.get_paginator("list_access_entries").paginate(clusterName=name):
            for principal in page["accessEntries"]:
                answer = eks.describe_access_entry(clusterName=name, principalArn=principal)
                arns.get(answer["accessEntry"].get("type", ""), set()).add(principal)
    with translate_errors(f"ListNodegroups {name}"):
        for groups in eks.get_paginator("list_nodegroups").paginate(clusterName=name):
            for group in groups["nodegroups"]:
                described = eks.describe_nodegroup(clusterName=name, nodegroupName=group)["nodegroup"]
                kind = "EC2_WINDOWS" if described.get("amiType", "").startswith("WINDOWS") else "EC2_LINUX"
                arns[kind].add(described["nodeRole"])
    names = {kind: {arn.partition(":role/")[2] for arn in found} for kind, found in arns.items()}
    return names["EC2_LINUX"] - names["EC2_WINDOWS"], names["EC2_WINDOWS"]


def _vpc(ec2: "EC2Client", network: Any) -> dict[str, Any]:
    """The cluster's VPC with subnets that are not public, and the group whose members reach the API server.

    Subnets of the cluster, or where these are all public the others of its VPC; none where it has none.
    """
    vpc_id = network["vpcId"]
    own = _not_public(ec2, tuple(network["subnetIds"]), vpc_id)
    return {
        "vpcId": vpc_id,
        "subnetIds": own or _not_public(ec2, _subnets_of(ec2, vpc_id), vpc_id),
        "securityGroupIds": [network["clusterSecurityGroupId"]],
    }


def _subnets_of(ec2: "EC2Client", vpc_id: str) -> tuple[str, ...]:
    with translate_errors(f"DescribeSubnets {vpc_id}"):
        pages = ec2.get_paginator("describe_subnets").paginate(Filters=[{"Name": "vpc-id", "Values": [vpc_id]}])
        return tuple(sorted(subnet["SubnetId"] for page in pages for subnet in page["Subnets"]))


def _not_public(ec2: "EC2Client", ids: tuple[str, ...], vpc_id: str) -> list[str]:
    """Those without a route to an internet gateway; all where EC2 does not say."""
    subnets = preflight.subnets(ec2, ids, vpc_id)
    if isinstance(subnets, NotAsked):
        return list(ids)
    return [id for id in ids if id not in subnets or subnets[id].default_route != "igw"]
