"""What AWS says of a cluster and its account before a deployment; a refusal is an answer, too: ``NotAsked``."""

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from spotwright.adapters.aws.errors import translate_errors
from spotwright.errors import ApiError, Denied, NotFound
from spotwright.workflows.install.preflight.facts import ClusterDescription, NotAsked, Role, Subnet, Target

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_eks.client import EKSClient
    from mypy_boto3_iam.client import IAMClient

_SPOT_ROLE = "AWSServiceRoleForEC2Spot"


def ask[Answer](what: str, call: Callable[[], Answer]) -> Answer | NotAsked:
    """The answer, or why there is none."""
    answer = find(what, call)
    return NotAsked(f"{what} was answered with NotFound") if answer is None else answer


def find[Answer](what: str, call: Callable[[], Answer]) -> Answer | None | NotAsked:
    """The same; None when AWS says that it does not exist."""
    try:
        with translate_errors(what):
            return call()
    except NotFound:
        return None
    except Denied as refusal:
        return NotAsked(f"{what} is denied to you ({refusal.code})")
    except ApiError as failure:
        return NotAsked(" ".join(str(failure).split()))


def describe(eks: "EKSClient", name: str) -> ClusterDescription | None | NotAsked:
    """The cluster; None when EKS says that there is none."""
    answer = find("eks:DescribeCluster", lambda: eks.describe_cluster(name=name)["cluster"])
    return answer if answer is None or isinstance(answer, NotAsked) else _description(answer)


def _description(cluster: Mapping[str, Any]) -> ClusterDescription:
    network = cluster.get("resourcesVpcConfig") or {}
    return ClusterDescription(
        status=cluster.get("status", ""),
        version=cluster.get("version", ""),
        authentication_mode=(cluster.get("accessConfig") or {}).get("authenticationMode", ""),
        has_public_endpoint=bool(network.get("endpointPublicAccess", True)),
        has_private_endpoint=bool(network.get("endpointPrivateAccess", False)),
        public_cidrs=tuple(network.get("publicAccessCidrs") or ()),
        vpc_id=network.get("vpcId", ""),
        subnet_ids=tuple(network.get("subnetIds") or ()),
        cluster_security_group=network.get("clusterSecurityGroupId", ""),
        is_auto_mode=bool((cluster.get("computeConfig") or {}).get("enabled")),
    )


def cluster_names(eks: "EKSClient") -> tuple[str, ...] | NotAsked:
    def listed() -> tuple[str, ...]:
        pages = eks.get_paginator("list_clusters").paginate()
        return tuple(name for page in pages for name in page["clusters"])

    return ask("eks:ListClusters", listed)


def addons(eks: "EKSClient", cluster: str) -> frozenset[str] | NotAsked:
    def listed() -> frozenset[str]:
        pages = eks.get_paginator("list_addons").paginate(clusterName=cluster)
        return frozenset(name for page in pages for name in page["addons"])

    return ask("eks:ListAddons", listed)


def entry_types(eks: "EKSClient", cluster: str, arn_by_role: Mapping[str, str]) -> dict[str, str | None | NotAsked]:
    """The types of the roles' access entries by role; None = the role has none."""
    types: dict[str, str | None | NotAsked] = {}
    for role, arn in arn_by_role.items():

        def described(arn: str = arn) -> str:
            return eks.describe_access_entry(clusterName=cluster, principalArn=arn)["accessEntry"]["type"]

        types[role] = find("eks:DescribeAccessEntry", described)
    return types


def role(iam: "IAMClient", name: str) -> Role | None | NotAsked:
    """A role by its name, with its path if any; None when IAM says that there is none."""
    short = name.rpartition("/")[2]
    found = find(f"iam:GetRole of {name}", lambda: iam.get_role(RoleName=short)["Role"])
    if found is None or isinstance(found, NotAsked):
        return found
    path = f"/{name.rpartition('/')[0]}/" if "/" in name else "/"
    if found.get("Path", "/") != path:
        return NotAsked(f"IAM has the role {short} under the path {found['Path']}, cdk.json says {path}")
    policies = ask(f"iam:ListAttachedRolePolicies of {name}", lambda: _policies(iam, short))
    if isinstance(policies, NotAsked):
        return policies
    arns, has_own = policies
    of_aws = frozenset(arn.rpartition("/")[2] for arn in arns if ":iam::aws:policy/" in arn)
    return Role(_trusted(found.get("AssumeRolePolicyDocument")), of_aws, has_own or len(of_aws) < len(arns))


def spot_role_exists(iam: "IAMClient") -> bool | NotAsked:
    """Whether EC2 has its role for spot instances."""
    found = find(f"iam:GetRole of {_SPOT_ROLE}", lambda: iam.get_role(RoleName=_SPOT_ROLE))
    return found if isinstance(found, NotAsked) else found is not None


def policy_exists(iam: "IAMClient", arn: str) -> bool | NotAsked:
    found = find(f"iam:GetPolicy of {arn}", lambda: iam.get_policy(PolicyArn=arn))
    return found if isinstance(found, NotAsked) else found is not None


def _policies(iam: "IAMClient", name: str) -> tuple[list[str], bool]:
    """ARNs of attached policies, and whether there are inline ones."""
    pages = iam.get_paginator("list_attached_role_policies").paginate(RoleName=name)
    attached = [policy["PolicyArn"] for page in pages for policy in page["AttachedPolicies"]]
    return attached, bool(iam.list_role_policies(RoleName=name)["PolicyNames"])


def _trusted(document: Any) -> frozenset[str]:
    """The services that may assume a role."""
    content = json.loads(document) if isinstance(document, str) else document or {}
    services: set[str] = set()
    for statement in _listed(content.get("Statement")):
        principal = statement.get("Principal")
        if statement.get("Effect") == "Allow" and isinstance(principal, Mapping):
            services.update(_listed(principal.get("Service")))
    return frozenset(services)


def _listed(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list) else () if value is None else (value,)


def subnets(ec2: "EC2Client", ids: tuple[str, ...], vpc_id: str) -> dict[str, Subnet] | NotAsked:
    """Subnets by id, those that EC2 does not know left out."""

    def described() -> dict[str, Subnet]:
        names = [{"Name": "subnet-id", "Values": list(ids)}]
        found = ec2.describe_subnets(Filters=names)["Subnets"]  # type: ignore[arg-type]
        in_vpc = [{"Name": "vpc-id", "Values": [vpc_id]}]
        tables = ec2.describe_route_tables(Filters=in_vpc)["RouteTables"]  # type: ignore[arg-type]
        return {
            subnet["SubnetId"]: Subnet(subnet["VpcId"], _default_route(subnet["SubnetId"], tables)) for subnet in found
        }

    return ask("ec2:DescribeSubnets and DescribeRouteTables", described)


def _default_route(subnet: str, tables: Iterable[Mapping[str, Any]]) -> str:
    """Where 0.0.0.0/0 leads from a subnet, by its own route table or the VPC's main one."""
    associations = [(association, table) for table in tables for association in table.get("Associations", ())]
    own = [table for association, table in associations if association.get("SubnetId") == subnet]
    main = [table for association, table in associations if association.get("Main")]
    for route in (own or main or [{"Routes": ()}])[0].get("Routes", ()):
        if route.get("DestinationCidrBlock") == "0.0.0.0/0" and route.get("State", "active") == "active":
            targets = (
                "GatewayId",
                "NatGatewayId",
                "TransitGatewayId",
                "NetworkInterfaceId",
                "InstanceId",
                "VpcPeeringConnectionId",
                "CoreNetworkArn",
            )
            return next((str(route[key]).partition("-")[0] for key in targets if route.get(key)), "")
    return ""


def security_groups(ec2: "EC2Client", ids: tuple[str, ...]) -> dict[str, str] | NotAsked:
    """The VPCs of security groups by group, those that EC2 does not know left out."""

    def described() -> dict[str, str]:
        names = [{"Name": "group-id", "Values": list(ids)}]
        found = ec2.describe_security_groups(Filters=names)["SecurityGroups"]  # type: ignore[arg-type]
        return {group["GroupId"]: group["VpcId"] for group in found}

    return ask("ec2:DescribeSecurityGroups", described)


def endpoints(ec2: "EC2Client", vpc_id: str) -> frozenset[str] | NotAsked:
    """Names of the services that a VPC has endpoints for, such as sqs."""

    def described() -> frozenset[str]:
        in_vpc = [{"Name": "vpc-id", "Values": [vpc_id]}]
        found = ec2.describe_vpc_endpoints(Filters=in_vpc)["VpcEndpoints"]  # type: ignore[arg-type]
        return frozenset(endpoint["ServiceName"].rpartition(".")[2] for endpoint in found)

    return ask("ec2:DescribeVpcEndpoints", described)


def concurrency(lambda_client: Any) -> int | NotAsked:
    """How many functions of the account may run at the same time, beyond what others have reserved."""

    def told() -> int:
        return int(lambda_client.get_account_settings()["AccountLimit"]["UnreservedConcurrentExecutions"])

    return ask("lambda:GetAccountSettings", told)


def role_arns(partition: str, account: str, target: Target) -> dict[str, str]:
    """ARNs of the node roles by role."""
    return {name: f"arn:{partition}:iam::{account}:role/{name}" for name in target.node_roles}
