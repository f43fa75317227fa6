"""Every stumble of a first deployment is one sentence with the next step."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from spotwright.workflows.install.preflight.boundary import needed_actions
from spotwright.workflows.install.preflight.checks import CHECKS, Status, run_checks
from spotwright.workflows.install.preflight.facts import (
    AccessEntry,
    Addon,
    ClusterDescription,
    Facts,
    FunctionEntry,
    KmsKey,
    NotAsked,
    Role,
    Subnet,
    Target,
    Workloads,
)

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
IMAGE = "123456789012.dkr.ecr.eu-west-1.amazonaws.com/spotwright-forwarder:1"
TARGET = Target("dev", "eu-west-1", node_roles=("nodes",), forwarder_image=IMAGE)
IN_VPC = msgspec.structs.replace(TARGET, vpc_id="vpc-1", subnet_ids=("subnet-1",), security_group_ids=("sg-1",))
KEY = "arn:aws:kms:eu-west-1:123456789012:key/1234abcd"
WITH_KEY = msgspec.structs.replace(TARGET, kms_key_arn=KEY)
KEY_USERS = frozenset({"events.amazonaws.com", "logs.eu-west-1.amazonaws.com"})
CLUSTER = ClusterDescription(
    "ACTIVE", "1.35", "API", public_cidrs=("0.0.0.0/0",), vpc_id="vpc-1", security_groups=("sg-eks",)
)
ROLE = Role(
    frozenset({"ec2.amazonaws.com"}), frozenset({"AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly"})
)
READY = Facts(
    cluster=CLUSTER,
    roles={"nodes": ROLE},
    entries={"nodes": None},
    addons={name: Addon("ACTIVE") for name in ("vpc-cni", "kube-proxy", "coredns", "eks-pod-identity-agent")},
    workloads=Workloads(),
    subnets={"subnet-1": Subnet("vpc-1", "nat")},
    security_groups={"sg-1": "vpc-1"},
    endpoints=frozenset(),
    concurrency=1000,
    has_spot_role=True,
    nodepools=(),
    vcpu_quotas={"L-1216C47A": 1152, "L-34B43A08": 640},
    boundary={"Statement": {"Effect": "Allow", "Action": "*", "Resource": "*"}},
    unserved_volume="",
    key=KmsKey(allowed_services=KEY_USERS),
    image_builder="docker",
)


NEEDED = frozenset({"dynamodb", "ec2", "eks", "s3", "sqs", "ssm", "sts"})
OF_NODES = frozenset({"ecr.api", "ecr.dkr", "eks-auth"})


def facts(**changes: Any) -> Facts:
    return msgspec.structs.replace(READY, **changes)


def cluster(**changes: Any) -> Facts:
    return facts(cluster=msgspec.structs.replace(CLUSTER, **changes))


def without(addon: str) -> dict[str, Addon]:
    assert not isinstance(READY.addons, NotAsked)
    return {name: found for name, found in READY.addons.items() if name != addon}


def addon(name: str, *described: Any) -> Facts:
    return facts(addons={**without(name), name: Addon(*described)})


def boundary(**statement: Any) -> Facts:
    """Beside everything that is allowed."""
    return facts(boundary={"Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}, statement]})


def test_a_cluster_that_is_ready_has_no_problem() -> None:
    for target in (TARGET, IN_VPC, WITH_KEY, msgspec.structs.replace(TARGET, forwarder_image="")):
        checks = run_checks(target, READY)
        assert [check.name for check in checks] == list(CHECKS)
        assert {check.status for check in checks} == {Status.OK}


@pytest.mark.parametrize(
    ("target", "seen", "name", "parts"),
    [
        (
            TARGET,
            facts(cluster=None, other_clusters=("dev2", "x")),
            "cluster",
            ("no cluster dev in eu-west-1", "dev2?"),
        ),
        (TARGET, facts(cluster=None, other_clusters=("abc",)), "cluster", ("there are abc", "another region")),
        (TARGET, facts(cluster=None, other_clusters=()), "cluster", ("it has none", "another region")),
        (TARGET, cluster(status="CREATING"), "cluster", ("status CREATING", "aws eks wait cluster-active")),
        (TARGET, cluster(version="1.28"), "version", ("1.28 is older than 1.29", "update the cluster")),
        (
            TARGET,
            cluster(authentication_mode="CONFIG_MAP"),
            "authentication-mode",
            ("CONFIG_MAP", "aws eks update-cluster-config --name dev", "authenticationMode=API_AND_CONFIG_MAP"),
        ),
        (TARGET, cluster(is_auto_mode=True), "provisioner", ("Auto Mode manages the NodePools of dev", "turn it off")),
        (
            TARGET,
            facts(workloads=Workloads(karpenter=("kube-system/karpenter",))),
            "provisioner",
            ("kube-system/karpenter runs Karpenter", "kubectl scale deployment karpenter --namespace kube-system"),
        ),
        (
            TARGET,
            facts(workloads=Workloads(cell="blue")),
            "cell",
            ("dev is served by cell blue", "take it out of that cell's cdk.json", "destroy the stack Spotwright-blue"),
        ),
        (
            TARGET,
            cluster(has_public_endpoint=False, has_private_endpoint=True),
            "endpoint",
            ("private", "vpcId vpc-1", "spotwright init --cluster dev"),
        ),
        (
            TARGET,
            cluster(public_cidrs=("198.51.100.0/24",)),
            "endpoint",
            ("198.51.100.0/24 alone", "no fixed addresses", "with the private endpoint turned on"),
        ),
        (
            IN_VPC,
            msgspec.structs.replace(cluster(has_private_endpoint=True), admitted=frozenset({"sg-eks"})),
            "endpoint",
            ("(sg-eks) lets those of the functions (sg-1) in", "--group-id sg-eks --protocol tcp --port 443"),
        ),
        (IN_VPC, facts(subnets={}), "network", ("subnet-1 does not exist in eu-west-1", "vpc in cdk.json")),
        (IN_VPC, facts(security_groups={"sg-1": "vpc-2"}), "network", ("sg-1 is in vpc-2, not in vpc-1",)),
        (IN_VPC, facts(subnets={"subnet-1": Subnet("vpc-1", "igw")}), "network", ("public subnet", "private subnets")),
        (
            IN_VPC,
            facts(subnets={"subnet-1": Subnet("vpc-1")}, endpoints=NEEDED - {"dynamodb", "ssm"}),
            "network",
            (
                "subnet-1 has no way to the internet",
                "endpoints for dynamodb, ssm:",
                "private DNS",
                "docs/networking.md",
            ),
        ),
        (
            TARGET,
            facts(roles={"nodes": None}),
            "node-roles",
            ("node role nodes does not exist", "nodeRoles in cdk.json"),
        ),
        (
            TARGET,
            facts(roles={"nodes": msgspec.structs.replace(ROLE, path="/of/nodes/")}),
            "node-roles",
            ("IAM has nodes under the path /of/nodes/: name it of/nodes/nodes in nodeRoles",),
        ),
        (
            TARGET,
            facts(roles={"nodes": msgspec.structs.replace(ROLE, trusted_services=frozenset())}),
            "node-roles",
            ("does not trust ec2.amazonaws.com", "sts:AssumeRole"),
        ),
        (
            TARGET,
            facts(roles={"nodes": msgspec.structs.replace(ROLE, policies=frozenset({"AmazonEKSWorkerNodePolicy"}))}),
            "node-roles",
            ("lacks AmazonEC2ContainerRegistryPullOnly", "aws iam attach-role-policy --role-name nodes"),
        ),
        (
            TARGET,
            facts(entries={"nodes": AccessEntry("STANDARD")}),
            "access-entries",
            ("nodes has an access entry of type STANDARD", "need EC2_LINUX", "delete-access-entry --cluster-name dev"),
        ),
        (
            TARGET,
            facts(
                roles={"nodes": msgspec.structs.replace(ROLE, created_at=NOON)},
                entries={"nodes": AccessEntry("EC2_LINUX", NOON - timedelta(days=1))},
            ),
            "access-entries",
            ("entry of nodes is older than the role", "aws eks delete-access-entry --cluster-name dev", "cdk deploy"),
        ),
        (
            TARGET,
            facts(addons=without("eks-pod-identity-agent")),
            "pod-identity",
            (
                "forwarder has no credentials",
                "aws eks create-addon --cluster-name dev --addon-name eks-pod-identity-agent",
            ),
        ),
        (
            TARGET,
            addon("eks-pod-identity-agent", "DEGRADED", "v1.3", {"AccessDenied": "no rights"}),
            "pod-identity",
            ("eks-pod-identity-agent is DEGRADED (AccessDenied: no rights)", "aws eks update-addon", "no credentials"),
        ),
        (TARGET, addon("vpc-cni", "CREATE_FAILED"), "add-ons", ("vpc-cni is CREATE_FAILED: ", "aws eks update-addon")),
        (
            TARGET,
            addon("kube-proxy", "ACTIVE", "v1.31.2-eksbuild.3"),
            "add-ons",
            (
                "v1.31.2-eksbuild.3 does not fit Kubernetes 1.35",
                "update-addon --cluster-name dev --addon-name kube-pro",
            ),
        ),
        (TARGET, addon("kube-proxy", "ACTIVE", "v1.36.0-eksbuild.1"), "add-ons", ("does not fit Kubernetes 1.35",)),
        (
            TARGET,
            facts(unserved_volume="shop/data"),
            "add-ons",
            (
                "PersistentVolumeClaim shop/data",
                "wait for ever",
                "create-addon --cluster-name dev --addon-name aws-ebs-",
            ),
        ),
        (TARGET, facts(addons=without("coredns")), "add-ons", ("coredns", "create-addon", "--addon-name coredns")),
        (
            msgspec.structs.replace(TARGET, forwarder_image="spotwright-forwarder:0.1.0"),
            READY,
            "forwarder-image",
            ("spotwright-forwarder:0.1.0 names no registry", "make forwarder-image", "cdk.json"),
        ),
        (
            msgspec.structs.replace(TARGET, forwarder_image=""),
            facts(image_builder=""),
            "forwarder-image",
            ("names no forwarderImage for dev", "install docker, or finch and set CDK_DOCKER=finch"),
        ),
        (
            msgspec.structs.replace(TARGET, forwarder_image=""),
            facts(image_builder_failure="Cannot connect to the Docker daemon"),
            "forwarder-image",
            ("with docker, which does not work here (Cannot connect to the Docker daemon): start it",),
        ),
        (
            TARGET,
            facts(has_image=False),
            "forwarder-image",
            (f"forwarderImage {IMAGE}: its registry has no such image", f"make forwarder-image IMAGE={IMAGE}"),
        ),
        (TARGET, facts(concurrency=10), "concurrency", ("only 10 functions", "request-service-quota-increase")),
        (TARGET, facts(has_spot_role=False), "spot-role", ("create-service-linked-role", "spot.amazonaws.com")),
        (
            msgspec.structs.replace(TARGET, permissions_boundary="Limit"),
            facts(boundary=None),
            "permissions-boundary",
            ("permissionsBoundary Limit", "no such policy", "cdk.json"),
        ),
        (
            msgspec.structs.replace(TARGET, permissions_boundary="Limit"),
            boundary(Effect="Deny", Action=["ec2:CreateFleet", "iam:Pass*"], Resource="*"),
            "permissions-boundary",
            ("permissionsBoundary Limit does not allow ec2:CreateFleet, iam:PassRole, without", "let it allow them"),
        ),
        (
            msgspec.structs.replace(TARGET, permissions_boundary="Limit"),
            facts(boundary={"Statement": [{"Effect": "Allow", "NotAction": ["ec2:*", "iam:*"], "Resource": "*"}]}),
            "permissions-boundary",
            ("does not allow ec2:CreateFleet, ec2:CreateLaunchTemplate, ", " more, without which"),
        ),
        (WITH_KEY, facts(key=None), "kms-key", (KEY, "KMS has no such key", "cdk.json")),
        (
            WITH_KEY,
            facts(key=KmsKey("Disabled", KEY_USERS)),
            "kms-key",
            ("Disabled", "aws kms enable-key --key-id arn"),
        ),
        (
            WITH_KEY,
            facts(key=KmsKey(allowed_services=frozenset({"events.amazonaws.com"}))),
            "kms-key",
            ("does not let logs.eu-west-1.amazonaws.com use the key", "docs/clusters.md#a-key-of-your-own"),
        ),
        (
            WITH_KEY,
            facts(key=KmsKey("Enabled", is_left_to_iam=False)),
            "kms-key",
            (
                "does not leave its use to IAM",
                "kms:* to arn:aws:iam::123456789012:root",
                "does not let events.amazonaws.com and logs.eu-west-1.amazonaws.com use the key",
            ),
        ),
        (
            msgspec.structs.replace(WITH_KEY, has_topic=True),
            READY,
            "kms-key",
            ("does not let cloudwatch.amazonaws.com use the key",),
        ),
        (
            msgspec.structs.replace(WITH_KEY, region="us-east-1"),
            READY,
            "kms-key",
            ("is a key of eu-west-1, the stack is in us-east-1",),
        ),
        (
            IN_VPC,
            facts(subnets={"subnet-1": Subnet("vpc-1")}, endpoints=NEEDED),
            "network",
            (
                "subnet-1 has no way to the internet",
                "set ISOLATED_VPC to true in the settings of dev",
                "instanceProfile",
            ),
        ),
    ],
)
def test_a_problem_is_one_sentence_with_the_next_step(
    target: Target, seen: Facts, name: str, parts: tuple[str, ...]
) -> None:
    (problem,) = [check for check in run_checks(target, seen) if check.status is Status.PROBLEM]
    assert problem.name == name
    for part in parts:
        assert part in problem.message
    assert "\n" not in problem.message
    skipping = msgspec.structs.replace(target, skipped_checks=(name,))
    assert not [check for check in run_checks(skipping, seen) if check.status is Status.PROBLEM]


@pytest.mark.parametrize(
    ("version", "said"),
    [
        ("1.30", "Kubernetes 1.30; the tests were run on 1.31, 1.35 and 1.36, not on this version"),
        ("1.31", "Kubernetes 1.31"),
        ("1.35", "Kubernetes 1.35"),
        ("1.36", "Kubernetes 1.36"),
        ("1.37", "Kubernetes 1.37; the tests were run on 1.31, 1.35 and 1.36, not on this version"),
    ],
)
def test_a_version_that_was_not_tried_is_said_and_no_problem(version: str, said: str) -> None:
    (check,) = run_checks(TARGET, cluster(version=version), ("version",))
    assert (check.status, check.message) == (Status.OK, said)


def test_an_entry_that_was_made_in_the_same_second_as_its_role_is_the_roles() -> None:
    """IAM gives whole seconds."""
    roles = {"nodes": msgspec.structs.replace(ROLE, created_at=NOON)}
    seen = facts(roles=roles, entries={"nodes": AccessEntry("EC2_LINUX", NOON)})
    (check,) = run_checks(TARGET, seen, ("access-entries",))
    assert check.status is Status.OK


def test_the_cell_that_serves_the_cluster_already_may_be_deployed_again() -> None:
    target = msgspec.structs.replace(TARGET, cell="blue")
    (check,) = run_checks(target, facts(workloads=Workloads(cell="blue")), ("cell",))
    assert check.status is Status.OK


def test_what_could_not_be_asked_is_no_problem_and_says_why() -> None:
    refused = NotAsked("iam:GetRole is denied to you")
    unknown = Facts(*(refused,) * 2, {"nodes": refused}, {"nodes": refused}, *(refused,) * 12)
    for target in (TARGET, msgspec.structs.replace(IN_VPC, permissions_boundary="Limit"), WITH_KEY):
        checks = run_checks(target, unknown)
        assert {check.status for check in checks} <= {Status.NOT_CHECKED, Status.OK}
        assert "denied to you" in checks[0].message


def test_add_ons_that_somebody_installed_otherwise_count() -> None:
    self_managed = Workloads(system=frozenset({"aws-node", "kube-proxy", "coredns", "eks-pod-identity-agent"}))
    checks = run_checks(TARGET, facts(addons={}, workloads=self_managed))
    assert {check.status for check in checks} == {Status.OK}
    (unknown,) = run_checks(TARGET, facts(addons={}, workloads=NotAsked("401")), ("add-ons",))
    assert (unknown.status, "401" in unknown.message) == (Status.NOT_CHECKED, True)


@pytest.mark.parametrize(
    ("name", "described"),
    [
        ("coredns", ("DEGRADED", "v1.12", {"InsufficientNumberOfReplicas": "no node"})),
        ("coredns", ("UPDATING", "v1.12")),
        ("kube-proxy", ("ACTIVE", "v1.32.0-eksbuild.1")),
        ("vpc-cni", ("UPDATE_FAILED", "v1.20")),
    ],
)
def test_an_add_on_that_waits_for_nodes_or_is_a_little_older_is_no_problem(name: str, described: Any) -> None:
    assert {check.status for check in run_checks(TARGET, addon(name, *described))} == {Status.OK}


def test_without_a_way_to_the_internet_nodes_may_lack_endpoints_that_functions_do_not_need() -> None:
    isolated = msgspec.structs.replace(IN_VPC, is_isolated=True)
    closed = {"subnet-1": Subnet("vpc-1")}
    (check,) = run_checks(isolated, facts(subnets=closed, endpoints=NEEDED | {"ecr.api"}), ("network",))
    assert check.status is Status.NOT_CHECKED
    assert "lacks VPC endpoints for ecr.dkr, eks-auth, as it does: add these" in check.message
    (check,) = run_checks(isolated, facts(subnets=closed, endpoints=NEEDED | OF_NODES), ("network",))
    assert check.status is Status.OK


def test_a_boundary_that_allows_in_part_or_denies_under_a_condition_is_no_problem() -> None:
    target = msgspec.structs.replace(TARGET, permissions_boundary="Limit")
    condition = {"StringNotEquals": {"aws:RequestedRegion": "eu-west-1"}}
    for seen in (
        boundary(Effect="Deny", NotAction="iam:*", Resource="*", Condition=condition),
        boundary(Effect="Deny", Action="s3:*", Resource="arn:aws:s3:::payroll/*"),
        facts(
            boundary={"Statement": {"Effect": "Allow", "Action": [*needed_actions(target)], "Resource": "arn:aws:*"}}
        ),
    ):
        assert {check.status for check in run_checks(target, seen)} == {Status.OK}


@pytest.mark.parametrize(
    ("target", "refused"),
    [
        (IN_VPC, "ec2:AssignPrivateIpAddresses, ec2:CreateNetworkInterface, "),
        (WITH_KEY, "kms:Decrypt, kms:DescribeKey, "),
    ],
)
def test_a_boundary_must_allow_what_a_vpc_and_a_key_need_besides(target: Target, refused: str) -> None:
    bounded = msgspec.structs.replace(target, permissions_boundary="Limit")
    enough_without = [*needed_actions(TARGET)]
    seen = facts(boundary={"Statement": {"Effect": "Allow", "Action": enough_without, "Resource": "*"}})
    (check,) = run_checks(bounded, seen, ("permissions-boundary",))
    assert check.status is Status.PROBLEM
    assert f"does not allow {refused}" in check.message
    (check,) = run_checks(msgspec.structs.replace(TARGET, permissions_boundary="Limit"), seen, (check.name,))
    assert check.status is Status.OK


def test_a_role_with_policies_of_its_own_may_be_allowed_what_is_needed() -> None:
    own = Role(frozenset({"ec2.amazonaws.com"}), has_other_policies=True)
    (check,) = run_checks(TARGET, facts(roles={"nodes": own}), ("node-roles",))
    assert check.status is Status.NOT_CHECKED


@pytest.mark.parametrize("source", ["sg-1", "10.0.0.0/8", "pl-0123"])
def test_functions_are_let_in_by_their_group_or_perhaps_by_their_address(source: str) -> None:
    seen = msgspec.structs.replace(cluster(has_private_endpoint=True), admitted=frozenset({"sg-eks", source}))
    (check,) = run_checks(IN_VPC, seen, ("endpoint",))
    assert check.status is Status.OK


@pytest.mark.parametrize(
    ("network", "status", "part"),
    [
        ({}, Status.OK, "reach the public endpoint through its way to the internet"),
        ({"public_cidrs": ("192.0.2.0/24",)}, Status.NOT_CHECKED, "NAT gateways of vpc-2 must be among these"),
        ({"has_public_endpoint": False}, Status.PROBLEM, "lets those of the functions (sg-1) in"),
    ],
)
def test_functions_in_another_vpc_reach_the_public_endpoint_where_there_is_one(
    network: dict[str, Any], status: Status, part: str
) -> None:
    elsewhere = msgspec.structs.replace(IN_VPC, vpc_id="vpc-2")
    seen = msgspec.structs.replace(cluster(has_private_endpoint=True, **network), admitted=frozenset({"sg-eks"}))
    (check,) = run_checks(elsewhere, seen, ("endpoint",))
    assert (check.status, part in check.message) == (status, True)
    assert "endpointPrivateAccess" not in check.message, "it is on"


def test_whether_a_private_endpoint_is_reached_from_another_vpc_is_not_known() -> None:
    closed = cluster(has_public_endpoint=False, has_private_endpoint=True)
    seen = msgspec.structs.replace(closed, admitted=frozenset({"10.0.0.0/8"}))
    (check,) = run_checks(msgspec.structs.replace(IN_VPC, vpc_id="vpc-2"), seen, ("endpoint",))
    assert (check.status, "the cluster is in vpc-1" in check.message) == (Status.NOT_CHECKED, True)


@pytest.mark.parametrize(
    ("state", "then"),
    [
        ("PendingDeletion", f"aws kms cancel-key-deletion --key-id {KEY}, then aws kms enable-key --key-id {KEY}"),
        ("PendingImport", "import its key material"),
        ("Creating", "wait until it is Enabled"),
        ("Unavailable", "name another key in cdk.json"),
    ],
)
def test_a_key_that_cannot_be_used_is_not_always_one_to_enable(state: str, then: str) -> None:
    (check,) = run_checks(WITH_KEY, facts(key=KmsKey(state, KEY_USERS)), ("kms-key",))
    assert (check.status, f"its state is {state}: {then}" in check.message) == (Status.PROBLEM, True)
    assert ("enable-key" in check.message) == ("enable-key" in then)


def test_a_key_that_is_allowed_under_conditions_is_not_known_to_work() -> None:
    everybody = KmsKey(is_conditional=True)
    (check,) = run_checks(WITH_KEY, facts(key=everybody), ("kms-key",))
    assert (check.status, "under conditions" in check.message) == (Status.NOT_CHECKED, True)
    account = KmsKey(allowed_services=KEY_USERS, is_left_to_iam=False, is_conditional=True)
    (check,) = run_checks(WITH_KEY, facts(key=account), ("kms-key",))
    assert check.status is Status.NOT_CHECKED
    (check,) = run_checks(WITH_KEY, facts(key=KmsKey(allowed_services=KEY_USERS, is_conditional=True)), ("kms-key",))
    assert check.status is Status.OK


def test_what_a_keys_policy_denies_is_not_allowed() -> None:
    denied = KmsKey(allowed_services=frozenset({"*"}), denied_services=frozenset({"events.amazonaws.com"}))
    for key in (denied, msgspec.structs.replace(denied, is_conditional=True)):
        (check,) = run_checks(WITH_KEY, facts(key=key), ("kms-key",))
        assert (check.status, "does not let events.amazonaws.com use" in check.message) == (Status.PROBLEM, True)


def test_other_partitions_have_names_of_their_own() -> None:
    china = msgspec.structs.replace(TARGET, region="cn-north-1", forwarder_image="spotwright-forwarder:1")
    (check,) = run_checks(china, READY, ("forwarder-image",))
    assert "ACCOUNT.dkr.ecr.cn-north-1.amazonaws.com.cn/spotwright-forwarder" in check.message
    role = msgspec.structs.replace(ROLE, policies=frozenset(), partition="aws-us-gov")
    (check,) = run_checks(TARGET, facts(roles={"nodes": role}), ("node-roles",))
    assert "--policy-arn arn:aws-us-gov:iam::aws:policy/AmazonEKSWorkerNodePolicy" in check.message
    arn = "arn:aws-cn:kms:cn-north-1:123456789012:key/1"
    for logs in ("logs.cn-north-1.amazonaws.com", "logs.cn-north-1.amazonaws.com.cn"):
        users = frozenset({"events.amazonaws.com", logs})
        target = msgspec.structs.replace(china, kms_key_arn=arn)
        (check,) = run_checks(target, facts(key=KmsKey(allowed_services=users)), ("kms-key",))
        assert check.status is Status.OK


def test_a_private_endpoint_and_endpoints_of_the_vpc_are_enough_without_internet() -> None:
    closed = cluster(has_public_endpoint=False, has_private_endpoint=True)
    seen = msgspec.structs.replace(closed, subnets={"subnet-1": Subnet("vpc-1")}, endpoints=NEEDED | OF_NODES)
    isolated = msgspec.structs.replace(IN_VPC, is_isolated=True)
    assert {check.status for check in run_checks(isolated, seen)} == {Status.OK}
    with_iam = msgspec.structs.replace(seen, endpoints=NEEDED | OF_NODES | {"iam"})
    assert {check.status for check in run_checks(IN_VPC, with_iam)} == {Status.OK}


READ = "arn:aws:iam::123456789012:role/Spotwright-main-Read"


def test_entries_of_the_functions_that_somebody_deleted_or_changed_are_named() -> None:
    """CloudFormation does not see it, so that deploying again makes no difference."""

    def told(groups: tuple[str, ...] | None) -> tuple[Status, str]:
        entries = (FunctionEntry(READ, "spotwright:read", groups),)
        (check,) = run_checks(TARGET, facts(function_entries=entries), ("access-entries",))
        return check.status, check.message

    assert told(("spotwright:read",))[0] is Status.OK
    status, said = told(None)
    assert status is Status.PROBLEM
    assert said == (
        f"role {READ} of the deployed functions has no access entry any more, and the API server refuses it: aws eks"
        f" create-access-entry --cluster-name dev --principal-arn {READ} --kubernetes-groups spotwright:read"
    )
    status, said = told(("auditors",))
    assert status is Status.PROBLEM
    assert "lacks the group spotwright:read" in said
    assert said.endswith(
        f"update-access-entry --cluster-name dev --principal-arn {READ} --kubernetes-groups auditors spotwright:read"
    )
    (check,) = run_checks(TARGET, facts(function_entries=NotAsked("denied")), ("access-entries",))
    assert check.status is Status.OK
