"""What AWS says of the account and the network before a deployment, to whoever runs the command line."""

import json
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from spotwright.adapters.aws.answers import ask, find
from spotwright.workflows.install.preflight.facts import AccessEntry, KmsKey, NotAsked, Subnet, Target

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_eks.client import EKSClient
    from mypy_boto3_iam.client import IAMClient

_SPOT_ROLE = "AWSServiceRoleForEC2Spot"


def entries(eks: "EKSClient", cluster: str, arn_by_role: Mapping[str, str]) -> dict[str, AccessEntry | None | NotAsked]:
    """The roles' access entries by role; None = the role has none."""
    found: dict[str, AccessEntry | None | NotAsked] = {}
    for role, arn in arn_by_role.items():

        def described(arn: str = arn) -> AccessEntry:
            entry = eks.describe_access_entry(clusterName=cluster, principalArn=arn)["accessEntry"]
            return AccessEntry(entry["type"], entry.get("createdAt"))

        found[role] = find("eks:DescribeAccessEntry", described)
    return found


def spot_role_exists(iam: "IAMClient") -> bool | NotAsked:
    """Whether EC2 has its role for spot instances."""
    found = find(f"iam:GetRole of {_SPOT_ROLE}", lambda: iam.get_role(RoleName=_SPOT_ROLE))
    return found if isinstance(found, NotAsked) else found is not None


def policy_exists(iam: "IAMClient", arn: str) -> bool | NotAsked:
    found = find(f"iam:GetPolicy of {arn}", lambda: iam.get_policy(PolicyArn=arn))
    return found if isinstance(found, NotAsked) else found is not None


def kms_key(kms: Any, arn: str) -> KmsKey | None | NotAsked:
    """A customer's key; None when KMS says that there is none."""
    state = find("kms:DescribeKey", lambda: str(kms.describe_key(KeyId=arn)["KeyMetadata"]["KeyState"]))
    if state is None or isinstance(state, NotAsked):
        return state
    policy = ask("kms:GetKeyPolicy", lambda: kms.get_key_policy(KeyId=arn, PolicyName="default")["Policy"])
    return policy if isinstance(policy, NotAsked) else KmsKey(state, _allowed_services(json.loads(policy)))


def _allowed_services(policy: Mapping[str, Any]) -> frozenset[str]:
    """The services that a key's policy lets encrypt with it; "*" where it lets everybody."""
    found: set[str] = set()
    for statement in _listed(policy.get("Statement")):
        uses = any(fnmatchcase("kms:generatedatakey", action.lower()) for action in _listed(statement.get("Action")))
        if uses and statement.get("Effect") == "Allow":
            principal = statement.get("Principal")
            named = principal if isinstance(principal, Mapping) else {"AWS": principal}
            found.update(_listed(named.get("Service")))
            found.update({"*"} & {*_listed(named.get("AWS"))})
    return frozenset(found)


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


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
