"""Checks of the network: whether the functions reach the API server, and AWS (docs/networking.md)."""

from typing import Final

from spotwright.workflows.install.preflight.facts import ClusterDescription, Facts, NotAsked, Target
from spotwright.workflows.install.preflight.verdict import NotChecked, Problem, Verdict, Works

# Without a way to the internet the functions need these endpoints in their VPC; pricing, iam and arc-zonal-shift have
# none in most regions, what depends on them is in docs/networking.md.
NEEDED_ENDPOINTS: Final = ("dynamodb", "ec2", "eks", "s3", "sqs", "ssm", "sts")
# Nodes without a way there need these besides: for images, and for the credentials of the forwarder's pod.
_OF_NODES: Final = ("ecr.api", "ecr.dkr", "eks-auth")
_ANYWHERE: Final = frozenset({"0.0.0.0/0", "::/0"})


def check_endpoint(target: Target, facts: Facts, cluster: ClusterDescription) -> Verdict:
    is_open = cluster.has_public_endpoint and (not cluster.public_cidrs or bool(_ANYWHERE & {*cluster.public_cidrs}))
    if not target.vpc_id:
        return _reached_from_outside(target, cluster, is_open=is_open)
    if not _resolves_to_private(target, cluster):
        return _reached_in_public(target, cluster, is_open=is_open)
    if not _are_admitted(target, facts):
        return Problem(
            f"no security group of the API server ({', '.join(cluster.security_groups)}) lets those of the functions"
            f" ({', '.join(target.security_group_ids)}) in: aws ec2 authorize-security-group-ingress --group-id"
            f" {cluster.security_groups[0]} --protocol tcp --port 443 --source-group {target.security_group_ids[0]}"
        )
    if cluster.vpc_id and cluster.vpc_id != target.vpc_id:
        return NotChecked(f"the endpoint is private, {_in_two_vpcs(target, cluster)}")
    return Works(f"the functions reach the private endpoint from {target.vpc_id}")


def _resolves_to_private(target: Target, cluster: ClusterDescription) -> bool:
    """Whether the API server's name leads to the private endpoint: in the cluster's VPC, and in another one only where
    there is no public endpoint.

    https://docs.aws.amazon.com/eks/latest/userguide/cluster-endpoint.html
    """
    is_inside = cluster.vpc_id in ("", target.vpc_id)
    return cluster.has_private_endpoint and (is_inside or not cluster.has_public_endpoint)


def _reached_in_public(target: Target, cluster: ClusterDescription, *, is_open: bool) -> Verdict:
    """The public endpoint, from functions in a VPC."""
    if is_open:
        return Works(f"the functions in {target.vpc_id} reach the public endpoint through its way to the internet")
    private = (
        ""
        if cluster.has_private_endpoint
        else f", or turn the private endpoint on (aws eks update-cluster-config --name {target.name}"
        " --resources-vpc-config endpointPrivateAccess=true)"
    )
    return NotChecked(
        f"the endpoint is public for {', '.join(cluster.public_cidrs)} alone: the addresses of the NAT gateways of"
        f" {target.vpc_id} must be among these{private}"
    )


def _are_admitted(target: Target, facts: Facts) -> bool:
    """Whether the API server lets the functions in. Rules for addresses may be for theirs, and count."""
    if isinstance(facts.admitted, NotAsked):
        return True
    return any(source in target.security_group_ids or not source.startswith("sg-") for source in facts.admitted)


def _reached_from_outside(target: Target, cluster: ClusterDescription, *, is_open: bool) -> Verdict:
    if is_open:
        return Works("the endpoint is public")
    what = (
        f"the endpoint is public for {', '.join(cluster.public_cidrs)} alone, and functions outside a VPC have no fixed"
        " addresses"
        if cluster.has_public_endpoint
        else "the endpoint is private, and functions outside a VPC do not reach it"
    )
    private = "" if cluster.has_private_endpoint else ", with the private endpoint turned on"
    return Problem(
        f"{what}: give the cluster in cdk.json a vpc (vpcId {cluster.vpc_id or 'of the cluster'}, subnetIds,"
        f" securityGroupIds){private}; spotwright init --cluster {target.name} writes it"
    )


def check_network(target: Target, facts: Facts, cluster: ClusterDescription) -> Verdict:
    """Subnets and security groups of the functions exist, in one VPC, and there is a way to AWS."""
    if not target.vpc_id:
        return Works("the functions run in no VPC")
    if isinstance(facts.subnets, NotAsked):
        return NotChecked(facts.subnets.reason)
    if isinstance(facts.security_groups, NotAsked):
        return NotChecked(facts.security_groups.reason)
    vpc_by_id = {name: subnet.vpc_id for name, subnet in facts.subnets.items()} | dict(facts.security_groups)
    for name in (*target.subnet_ids, *target.security_group_ids):
        if name not in vpc_by_id:
            return Problem(
                f"{name} does not exist in {target.region}: correct vpc in cdk.json; spotwright init --cluster"
                f" {target.name} shows what the cluster uses"
            )
        if vpc_by_id[name] != target.vpc_id:
            return Problem(f"{name} is in {vpc_by_id[name]}, not in {target.vpc_id}: correct vpc in cdk.json")
    return _check_way_out(target, facts, cluster)


def _check_way_out(target: Target, facts: Facts, cluster: ClusterDescription) -> Verdict:
    assert not isinstance(facts.subnets, NotAsked)
    routes = {name: facts.subnets[name].default_route for name in target.subnet_ids}
    for name, route in routes.items():
        if route == "igw":
            return Problem(
                f"{name} is a public subnet, in which functions get no public address and reach nothing: name"
                " private subnets, with a NAT gateway or VPC endpoints, in vpc.subnetIds"
            )
    closed = [name for name, route in routes.items() if not route]
    if not closed:
        return _in_place(target, cluster, "a way to the internet")
    if isinstance(facts.endpoints, NotAsked):
        return NotChecked(
            f"{closed[0]} has no way to the internet, and the VPC's endpoints are not known: {facts.endpoints.reason}"
        )
    missing = [name for name in NEEDED_ENDPOINTS if name not in facts.endpoints]
    if missing:
        return Problem(
            f"{closed[0]} has no way to the internet, and {target.vpc_id} lacks VPC endpoints for"
            f" {', '.join(missing)}: add a NAT gateway or these endpoints, gateways to the subnets' route tables and"
            " interfaces with private DNS (docs/networking.md)"
        )
    # Few regions have an endpoint of IAM; who made it has a way to what ISOLATED_VPC does without.
    if not target.is_isolated and "iam" not in facts.endpoints:
        return Problem(
            f"{closed[0]} has no way to the internet, and so none to IAM and the Price List: set ISOLATED_VPC to true"
            f" in the settings of {target.name} in cdk.json, and name an instanceProfile in each EC2NodeClass"
            " (docs/networking.md)"
        )
    if lacking := [name for name in _OF_NODES if name not in facts.endpoints]:
        return NotChecked(
            f"nodes in subnets without a way to the internet pull no images and give the forwarder no credentials where"
            f" {target.vpc_id} lacks VPC endpoints for {', '.join(lacking)}, as it does: add these endpoints, or a way"
            " to the internet for the nodes (docs/networking.md)"
        )
    return _in_place(target, cluster, "VPC endpoints")


def _in_place(target: Target, cluster: ClusterDescription, way: str) -> Verdict:
    if cluster.vpc_id and cluster.vpc_id != target.vpc_id:
        return NotChecked(_in_two_vpcs(target, cluster))
    return Works(f"subnets and security groups are in {target.vpc_id}, with {way}")


def _in_two_vpcs(target: Target, cluster: ClusterDescription) -> str:
    return (
        f"the functions run in {target.vpc_id}, the cluster is in {cluster.vpc_id}: the two must be"
        " connected (peering or a transit gateway), and resolve the endpoint's name"
    )
