"""What AWS says of the account and the network before a deployment, to whoever runs the command line."""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Set
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

from spotwright.adapters.aws import clients
from spotwright.adapters.aws.answers import ask, find
from spotwright.adapters.aws.eks.readiness import addons
from spotwright.workflows.install.preflight.facts import (
    AccessEntry,
    Addon,
    FunctionEntry,
    KmsKey,
    NotAsked,
    Subnet,
    Target,
)

if TYPE_CHECKING:
    from mypy_boto3_ec2.client import EC2Client
    from mypy_boto3_eks.client import EKSClient
    from mypy_boto3_iam.client import IAMClient

_SPOT_ROLE = "AWSServiceRoleForEC2Spot"
_HTTPS = 443
# Lists of a security group's rule, with the key that names whom the rule is for.
_SOURCES = {
    "UserIdGroupPairs": "GroupId",
    "IpRanges": "CidrIp",
    "Ipv6Ranges": "CidrIpv6",
    "PrefixListIds": "PrefixListId",
}
# What the stack's entries are called in its template, and the groups that they give.
_GROUPS = (("ReadEntry", "spotwright:read"), ("ActEntry", "spotwright:act"))
# ACCOUNT.dkr.ecr.REGION.amazonaws.com/REPOSITORY, with a digest or a tag.
_ECR_IMAGE = r"(\d{12})\.dkr\.ecr\.([a-z0-9-]+)\.amazonaws\.com(?:\.cn)?/([^:@]+)(?:@(sha256:[0-9a-f]{64})|:([\w.-]+))?"


def described_addons(eks: "EKSClient", cluster: str) -> dict[str, Addon] | NotAsked:
    """The cluster's add-ons but those that are being deleted or have gone; of one that is not described the name."""
    listed = addons(eks, cluster)
    if isinstance(listed, NotAsked):
        return listed
    answers = {name: find("eks:DescribeAddon", partial(_describe_addon, eks, cluster, name)) for name in listed}
    known = {name: listed[name] if isinstance(answer, NotAsked) else answer for name, answer in answers.items()}
    return {name: addon for name, addon in known.items() if addon is not None and addon.status != "DELETING"}


def _describe_addon(eks: "EKSClient", cluster: str, name: str) -> Addon:
    addon: Mapping[str, Any] = eks.describe_addon(clusterName=cluster, addonName=name)["addon"]
    issues = (addon.get("health") or {}).get("issues") or ()
    return Addon(
        addon.get("status", ""),
        addon.get("addonVersion", ""),
        {issue.get("code", ""): issue.get("message", "") for issue in issues},
    )


def entries(eks: "EKSClient", cluster: str, arn_by_role: Mapping[str, str]) -> dict[str, AccessEntry | None | NotAsked]:
    """The roles' access entries by role; None = the role has none."""
    found: dict[str, AccessEntry | None | NotAsked] = {}
    for role, arn in arn_by_role.items():

        def described(arn: str = arn) -> AccessEntry:
            entry = eks.describe_access_entry(clusterName=cluster, principalArn=arn)["accessEntry"]
            return AccessEntry(entry["type"], entry.get("createdAt"))

        found[role] = find("eks:DescribeAccessEntry", described)
    return found


def function_entries(
    cloudformation: Any, eks: "EKSClient", stack: str, cluster: str
) -> tuple[FunctionEntry, ...] | NotAsked:
    """The access entries that a stack made for its own roles in a cluster; () where there is no such stack."""

    def made() -> list[tuple[str, str]]:
        pages = cloudformation.get_paginator("list_stack_resources").paginate(StackName=stack)
        return [
            (resource["LogicalResourceId"], resource.get("PhysicalResourceId", ""))
            for page in pages
            for resource in page["StackResourceSummaries"]
            if resource["ResourceType"] == "AWS::EKS::AccessEntry"
        ]

    listed = ask("cloudformation:ListStackResources", made)
    if isinstance(listed, NotAsked):
        # CloudFormation has no code of its own for a stack that does not exist.
        return () if "does not exist" in listed.reason else listed
    entries = []
    for logical_id, physical_id in listed:
        principal, _, of_cluster = physical_id.partition("|")
        group = next((group for part, group in _GROUPS if part in logical_id), "")
        if of_cluster != cluster or not group:
            continue

        def groups(principal: str = principal) -> tuple[str, ...]:
            described = eks.describe_access_entry(clusterName=cluster, principalArn=principal)["accessEntry"]
            return tuple(described.get("kubernetesGroups", ()))

        found = find("eks:DescribeAccessEntry", groups)
        if isinstance(found, NotAsked):
            return found
        entries.append(FunctionEntry(principal, group, found))
    return tuple(entries)


def spot_role_exists(iam: "IAMClient") -> bool | NotAsked:
    """Whether EC2 has its role for spot instances."""
    found = find(f"iam:GetRole of {_SPOT_ROLE}", lambda: iam.get_role(RoleName=_SPOT_ROLE))
    return found if isinstance(found, NotAsked) else found is not None


def policy_document(iam: "IAMClient", arn: str) -> Mapping[str, Any] | None | NotAsked:
    """What a managed policy says; None when IAM says that there is none."""
    found = find(f"iam:GetPolicy of {arn}", lambda: iam.get_policy(PolicyArn=arn)["Policy"])
    if found is None or isinstance(found, NotAsked):
        return found
    version = found["DefaultVersionId"]

    def said() -> Mapping[str, Any]:
        document: Any = iam.get_policy_version(PolicyArn=arn, VersionId=version)["PolicyVersion"]["Document"]
        return dict(json.loads(document) if isinstance(document, str) else document)

    return ask(f"iam:GetPolicyVersion of {arn}", said)


def image_exists(image: str) -> bool | NotAsked:
    """Whether ECR has an image; NotAsked where another registry is named."""
    found = re.fullmatch(_ECR_IMAGE, image)
    if not found:
        return NotAsked("only ECR is asked")
    account, region, repository, digest, tag = found.groups()
    which = {"imageDigest": digest} if digest else {"imageTag": tag or "latest"}
    ecr = clients.client("ecr", region=region)

    def described() -> Any:
        return ecr.describe_images(registryId=account, repositoryName=repository, imageIds=[which])["imageDetails"]

    answer = find(f"ecr:DescribeImages of {repository}", described)
    return answer if isinstance(answer, NotAsked) else bool(answer)


def kms_key(kms: Any, arn: str) -> KmsKey | None | NotAsked:
    """A customer's key; None when KMS says that there is none."""
    state = find("kms:DescribeKey", lambda: str(kms.describe_key(KeyId=arn)["KeyMetadata"]["KeyState"]))
    if state is None or isinstance(state, NotAsked):
        return state
    policy = ask("kms:GetKeyPolicy", lambda: kms.get_key_policy(KeyId=arn, PolicyName="default")["Policy"])
    if isinstance(policy, NotAsked):
        return policy
    partition, account = arn.split(":")[1], arn.split(":")[4]
    of_account = {"*", account, f"arn:{partition}:iam::{account}:root"}
    statements = [statement for statement in _listed(json.loads(policy).get("Statement")) if _is_about_use(statement)]
    allowing = [statement for statement in statements if statement.get("Effect") == "Allow"]
    denying = [
        statement for statement in statements if statement.get("Effect") == "Deny" and not statement.get("Condition")
    ]
    # Who is named may have a condition; whether one for everybody, or the account, holds for whom is not known.
    open_to = _principals([statement for statement in allowing if not statement.get("Condition")], "AWS")
    open_at_times = _principals([statement for statement in allowing if statement.get("Condition")], "AWS")
    closed_to = _principals(denying, "AWS")
    return KmsKey(
        state,
        allowed_services=_principals(allowing, "Service") | (open_to & {"*"}),
        denied_services=_principals(denying, "Service") | (closed_to & {"*"}),
        is_left_to_iam=bool(open_to & of_account) and not closed_to & of_account,
        is_conditional=bool(open_at_times & of_account),
    )


def _is_about_use(statement: Mapping[str, Any]) -> bool:
    """Whether a statement of a key's policy is about who may encrypt with it."""
    patterns = _listed(statement.get("NotAction", statement.get("Action")))
    is_named = any(fnmatchcase("kms:generatedatakey", pattern.lower()) for pattern in patterns)
    return is_named != ("NotAction" in statement)


def _principals(statements: Iterable[Mapping[str, Any]], kind: str) -> frozenset[str]:
    """Whom statements name of a kind, such as Service; everybody, "*", is of the kind AWS."""
    found = (statement.get("Principal") for statement in statements)
    named = (principal if isinstance(principal, Mapping) else {"AWS": principal} for principal in found)
    return frozenset(name for principal in named for name in _listed(principal.get(kind)))


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [] if value is None else [value]


def _described(ec2: "EC2Client", operation: Any, field: str, name: str, values: Iterable[str]) -> list[Any]:
    """What EC2 describes by one filter, of all pages."""
    pages: Iterable[Any] = ec2.get_paginator(operation).paginate(Filters=[{"Name": name, "Values": [*values]}])
    return [found for page in pages for found in page[field]]


def subnets(ec2: "EC2Client", ids: tuple[str, ...], vpc_id: str) -> dict[str, Subnet] | NotAsked:
    """Subnets by id, those that EC2 does not know left out."""

    def described() -> dict[str, Subnet]:
        found = _described(ec2, "describe_subnets", "Subnets", "subnet-id", ids)
        tables = _described(ec2, "describe_route_tables", "RouteTables", "vpc-id", [vpc_id])
        table_by_subnet = {subnet["SubnetId"]: _route_table(subnet["SubnetId"], tables) for subnet in found}
        return {
            subnet["SubnetId"]: Subnet(
                subnet["VpcId"],
                _default_route(table_by_subnet[subnet["SubnetId"]]),
                table_by_subnet[subnet["SubnetId"]].get("RouteTableId", ""),
            )
            for subnet in found
        }

    return ask("ec2:DescribeSubnets and DescribeRouteTables", described)


def _route_table(subnet: str, tables: Iterable[Mapping[str, Any]]) -> Mapping[str, Any]:
    """A subnet's own route table, or the VPC's main one."""
    associations = [(association, table) for table in tables for association in table.get("Associations", ())]
    own = [table for association, table in associations if association.get("SubnetId") == subnet]
    main = [table for association, table in associations if association.get("Main")]
    return (own or main or [{}])[0]


def _default_route(table: Mapping[str, Any]) -> str:
    """Where 0.0.0.0/0 leads by a route table."""
    for route in table.get("Routes", ()):
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
        found = _described(ec2, "describe_security_groups", "SecurityGroups", "group-id", ids)
        return {group["GroupId"]: group["VpcId"] for group in found}

    return ask("ec2:DescribeSecurityGroups", described)


def admitted(ec2: "EC2Client", groups: tuple[str, ...]) -> frozenset[str] | NotAsked:
    """Whom any of these security groups lets in on port 443: other groups, addresses and prefix lists."""
    found = ask(
        "ec2:DescribeSecurityGroups",
        lambda: _described(ec2, "describe_security_groups", "SecurityGroups", "group-id", groups),
    )
    if isinstance(found, NotAsked):
        return found
    if hidden := sorted({*groups} - {group["GroupId"] for group in found}):
        return NotAsked(f"EC2 does not show you {', '.join(hidden)}")
    return frozenset(source for group in found for rule in group["IpPermissions"] for source in _sources(rule))


def _sources(rule: Mapping[str, Any]) -> Iterator[str]:
    """Whom a rule is for, where it is for HTTPS; one for every protocol has no ports."""
    ports = range(rule.get("FromPort", 0), rule.get("ToPort", 65535) + 1)
    if rule["IpProtocol"] != "-1" and (rule["IpProtocol"] not in ("tcp", "6") or _HTTPS not in ports):
        return
    for kind, key in _SOURCES.items():
        yield from (str(source[key]) for source in rule.get(kind, ()) if source.get(key))


def endpoints(ec2: "EC2Client", vpc_id: str, route_tables: Set[str]) -> frozenset[str] | NotAsked:
    """Names of the services, such as sqs and ecr.api, that are reached by a VPC's endpoints from subnets with these
    route tables: by a gateway that all of them have, or an interface with private DNS."""

    def described() -> frozenset[str]:
        found = _described(ec2, "describe_vpc_endpoints", "VpcEndpoints", "vpc-id", [vpc_id])
        serving = (endpoint for endpoint in found if _serves(endpoint, route_tables))
        return frozenset(_service(endpoint, ec2.meta.region_name) for endpoint in serving) - {""}

    return ask("ec2:DescribeVpcEndpoints", described)


def _service(endpoint: Mapping[str, Any], region: str) -> str:
    """What comes after the region in com.amazonaws.REGION.ecr.api; a global service's name has none.

    "" = it serves no service of AWS in the region: endpoints of VPC Lattice name no service at all.
    """
    first, _, service = str(endpoint.get("ServiceName", "")).partition(".amazonaws.")[2].partition(".")
    return first if not service else service if first == region else ""


def _serves(endpoint: Mapping[str, Any], route_tables: Set[str]) -> bool:
    if str(endpoint.get("State", "")).lower() != "available":
        return False
    if endpoint.get("VpcEndpointType") == "Gateway":
        return route_tables <= {*endpoint.get("RouteTableIds", ())}
    return bool(endpoint.get("PrivateDnsEnabled", True))


def concurrency(lambda_client: Any) -> int | NotAsked:
    """How many functions of the account may run at the same time, beyond what others have reserved."""

    def told() -> int:
        return int(lambda_client.get_account_settings()["AccountLimit"]["UnreservedConcurrentExecutions"])

    return ask("lambda:GetAccountSettings", told)


def vcpu_quotas(quotas: Any, codes: Iterable[str]) -> dict[str, int] | NotAsked:
    """How many vCPUs the account may run by each of these quotas of EC2, those left out that it says nothing of."""
    found: dict[str, int] = {}
    for code in codes:

        def told(code: str = code) -> int | None:
            # Without a value where Service Quotas could not read it: https://docs.aws.amazon.com/servicequotas/2019-06-24/apireference/API_ErrorReason.html
            value = quotas.get_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"].get("Value")
            return None if value is None else int(value)

        answer = find(f"servicequotas:GetServiceQuota of {code}", told)
        if isinstance(answer, NotAsked):
            return answer
        if answer is not None:
            found[code] = answer
    return found


def role_arns(partition: str, account: str, target: Target) -> dict[str, str]:
    """ARNs of the node roles by role."""
    return {name: f"arn:{partition}:iam::{account}:role/{name}" for name in target.node_roles}
