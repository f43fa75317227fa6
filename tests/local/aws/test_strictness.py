"""What AWS is strict or slow about: seen on a strict local AWS, and gone where a rule is relaxed."""

import itertools
import json
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.aws.strictness import BEHAVIORS, Rule, Strictness, rules
from tests.local.aws.conftest import ACCOUNT, Aws
from tests.local.aws.eks_tokens import identify, presigned, token
from tests.local.aws.fleets import CLUSTER as REAL_CLUSTER
from tests.local.aws.fleets import create_template, fleet_request, instance_ids, override
from tests.local.aws.serverless import Aws as Serverless
from tests.local.aws.serverless import eventually, run_local_aws

CLUSTER = "strict"
ADMIN_POLICY = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    directory = tmp_path_factory.mktemp("strict")
    with run_local_aws(directory, lenient=(Rule.INIT_DURATION, Rule.PROCESSOR_SHARE, Rule.VCPU_QUOTAS)) as running:
        aws = Aws(running.endpoint, directory)
        aws.control(
            "POST",
            "/_local/clusters",
            {"name": CLUSTER, "endpoint": "https://127.0.0.1:1", "certificateAuthority": "Q0E="},
        )
        aws.control("POST", "/_local/throttling", {"enabled": False})
        yield aws


@contextmanager
def relaxed(aws: Aws, *names: Rule) -> Iterator[None]:
    aws.control("POST", "/_local/strictness", dict.fromkeys(names, False))
    try:
        yield
    finally:
        aws.control("POST", "/_local/strictness", dict.fromkeys(names, True))


@pytest.fixture
def name() -> str:
    return f"strict-{next(_numbers)}"


def make_role(aws: Aws, name: str, action: str = "") -> str:
    principal = {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}
    trust = {"Effect": "Allow", "Principal": principal, "Action": "sts:AssumeRole"}
    document = json.dumps({"Version": "2012-10-17", "Statement": [trust]})
    arn = str(aws.client("iam").create_role(RoleName=name, AssumeRolePolicyDocument=document)["Role"]["Arn"])
    if action:
        allow(aws, name, action)
    return arn


def session_seconds(credentials: dict[str, Any]) -> float:
    left = credentials["Expiration"] - datetime.now(UTC)
    return float(left.total_seconds())


def allow(aws: Aws, role: str, action: str) -> None:
    document = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": action, "Resource": "*"}]}
    aws.client("iam").put_role_policy(RoleName=role, PolicyName="test", PolicyDocument=json.dumps(document))


def assume(aws: Aws, arn: str) -> dict[str, Any]:
    return dict(aws.client("sts").assume_role(RoleArn=arn, RoleSessionName="test")["Credentials"])


def error_code(call: Callable[[], object]) -> str:
    """Of a refused call; "" when it is served."""
    try:
        call()
    except ClientError as error:
        return str(error.response["Error"]["Code"])
    return ""


def test_a_new_right_is_refused_until_it_is_seen_everywhere(strict: Aws, name: str) -> None:
    with strict.stopped_clock():
        role = make_role(strict, name, "sqs:ListQueues")
        with relaxed(strict, Rule.IAM_PROPAGATION):
            sqs = strict.client("sqs", assume(strict, role))
        assert error_code(sqs.list_queues) == "AccessDeniedException"
    assert eventually(lambda: not error_code(sqs.list_queues), 120)
    with relaxed(strict, Rule.IAM_PROPAGATION):
        credentials = assume(strict, make_role(strict, f"{name}-kind", "sqs:ListQueues"))
        assert strict.client("sqs", credentials).list_queues()


def test_a_right_that_was_taken_away_is_good_until_that_is_seen(strict: Aws, name: str) -> None:
    with relaxed(strict, Rule.IAM_PROPAGATION):
        sqs = strict.client("sqs", assume(strict, make_role(strict, name, "sqs:ListQueues")))
    with strict.stopped_clock():
        allow(strict, name, "sns:ListTopics")
        assert sqs.list_queues()
    assert eventually(lambda: error_code(sqs.list_queues) == "AccessDeniedException", 120)


def test_a_new_role_cannot_be_assumed_at_once(strict: Aws, name: str) -> None:
    with relaxed(strict, Rule.IAM_PROPAGATION):
        caller = assume(strict, make_role(strict, f"{name}-caller", "sts:AssumeRole"))
    sts = strict.client("sts", caller)
    with strict.stopped_clock():
        arn = make_role(strict, name)
        assert error_code(lambda: sts.assume_role(RoleArn=arn, RoleSessionName="test")) == "AccessDenied"
    assert eventually(lambda: not error_code(lambda: sts.assume_role(RoleArn=arn, RoleSessionName="test")), 120)


def test_an_access_entry_lets_nobody_in_at_first(strict: Aws, name: str) -> None:
    arn = make_role(strict, name)
    login = token(presigned(assume(strict, arn), strict.endpoint, cluster=CLUSTER))

    def groups() -> list[str]:
        return list(identify(strict, login, CLUSTER).get("groups", ()))

    with strict.stopped_clock():
        enter(strict, arn)
        assert identify(strict, login, CLUSTER)["reason"].endswith("has not reached the cluster yet")
    assert eventually(lambda: "system:masters" in groups(), 120)
    with relaxed(strict, Rule.ACCESS_ENTRY_PROPAGATION):
        arn = make_role(strict, f"{name}-kind")
        enter(strict, arn)
        login = token(presigned(assume(strict, arn), strict.endpoint, cluster=CLUSTER))
        assert "system:masters" in groups()


def enter(aws: Aws, arn: str) -> None:
    """An administrator's access entry."""
    entry = {"clusterName": CLUSTER, "principalArn": arn}
    aws.client("eks").create_access_entry(**entry)
    aws.client("eks").associate_access_policy(**entry, policyArn=ADMIN_POLICY, accessScope={"type": "cluster"})


def test_an_access_entry_needs_a_principal_that_exists(strict: Aws, name: str) -> None:
    entry = {"clusterName": CLUSTER, "principalArn": f"arn:aws:iam::{ACCOUNT}:role/{name}"}
    eks = strict.client("eks")
    with pytest.raises(ClientError, match="The specified principalArn is invalid: invalid principal"):
        eks.create_access_entry(**entry)
    with relaxed(strict, Rule.ACCESS_ENTRY_PRINCIPALS):
        assert eks.create_access_entry(**entry)["accessEntry"]["principalArn"] == entry["principalArn"]


def test_an_access_entry_is_not_for_a_later_role_of_the_same_name(strict: Aws, name: str) -> None:
    arn = make_role(strict, name)
    with relaxed(strict, Rule.ACCESS_ENTRY_PROPAGATION):
        strict.client("eks").create_access_entry(clusterName=CLUSTER, principalArn=arn)
    strict.client("iam").delete_role(RoleName=name)
    login = token(presigned(assume(strict, make_role(strict, name)), strict.endpoint, cluster=CLUSTER))
    assert "an earlier" in identify(strict, login, CLUSTER)["reason"]
    with relaxed(strict, Rule.ACCESS_ENTRY_PRINCIPALS):
        assert identify(strict, login, CLUSTER)["authenticated"]


def test_a_managed_node_group_has_made_the_entry_of_its_role(strict: Aws) -> None:
    eks = strict.client("eks")
    (group,) = eks.list_nodegroups(clusterName=CLUSTER)["nodegroups"]
    role = eks.describe_nodegroup(clusterName=CLUSTER, nodegroupName=group)["nodegroup"]["nodeRole"]
    entry = {"clusterName": CLUSTER, "principalArn": role}
    assert eks.describe_access_entry(**entry)["accessEntry"]["type"] == "EC2_LINUX"
    assert error_code(lambda: eks.create_access_entry(**entry, type="EC2_LINUX")) == "ResourceInUseException"
    with relaxed(strict, Rule.NODE_GROUP_ACCESS_ENTRY):
        other = {"name": "no-groups", "endpoint": "https://127.0.0.1:1", "certificateAuthority": "Q0E="}
        strict.control("POST", "/_local/clusters", other)
        assert eks.list_nodegroups(clusterName="no-groups")["nodegroups"] == []


def test_the_usual_addons_are_installed_and_can_be_removed(strict: Aws) -> None:
    eks = strict.client("eks")
    names = eks.list_addons(clusterName=CLUSTER)["addons"]
    assert names == ["coredns", "eks-pod-identity-agent", "kube-proxy", "vpc-cni"]
    addon = {"clusterName": CLUSTER, "addonName": "coredns"}
    assert eks.describe_addon(**addon)["addon"]["status"] == "ACTIVE"
    eks.delete_addon(**addon)
    assert error_code(lambda: eks.describe_addon(**addon)) == "ResourceNotFoundException"
    assert eks.create_addon(**addon)["addon"]["addonName"] == "coredns"


def associate(aws: Aws, name: str) -> dict[str, str]:
    """A service account of that name, with a role."""
    trust = {"Service": "pods.eks.amazonaws.com"}
    with relaxed(aws, Rule.IAM_PROPAGATION):
        aws.role(name, trust=trust, trusted_actions=["sts:AssumeRole", "sts:TagSession"])
    aws.client("eks").create_pod_identity_association(
        clusterName=CLUSTER, namespace="default", serviceAccount=name, roleArn=f"arn:aws:iam::{ACCOUNT}:role/{name}"
    )
    return {"cluster": CLUSTER, "namespace": "default", "serviceAccount": name}


def test_a_pod_identity_association_gives_nothing_at_first(strict: Aws, name: str) -> None:
    def is_told() -> bool:
        return bool(strict.control("POST", "/_local/podidentity/associated", account)["associated"])

    def has_credentials() -> bool:
        return "AccessKeyId" in strict.control("POST", "/_local/podidentity", account)

    with strict.stopped_clock():
        account = associate(strict, name)
        assert not has_credentials()
        assert not is_told()
    assert eventually(is_told, 120)
    assert has_credentials()
    with relaxed(strict, Rule.POD_IDENTITY_PROPAGATION):
        account = associate(strict, f"{name}-kind")
        assert is_told()
        assert has_credentials()


def test_a_pod_is_told_of_the_agent_only_with_an_association(strict: Aws, name: str) -> None:
    account = {"cluster": CLUSTER, "namespace": "default", "serviceAccount": name}
    assert not strict.control("POST", "/_local/podidentity/associated", account)["associated"]
    with relaxed(strict, Rule.POD_IDENTITY_ADMISSION):
        assert strict.control("POST", "/_local/podidentity/associated", account)["associated"]


def test_a_session_ends_soon_whatever_was_asked_for(strict: Aws, name: str) -> None:
    arn = make_role(strict, name)
    assert 800 < session_seconds(assume(strict, arn)) <= 1200
    with relaxed(strict, Rule.SESSION_EXPIRY):
        assert 3500 < session_seconds(assume(strict, arn)) <= 3600


def test_nobody_gives_credentials_to_pods_without_the_agent(strict: Aws, name: str) -> None:
    with relaxed(strict, Rule.POD_IDENTITY_PROPAGATION):
        account = associate(strict, name)
    addon = {"clusterName": CLUSTER, "addonName": "eks-pod-identity-agent"}
    strict.client("eks").delete_addon(**addon)
    assert strict.control("POST", "/_local/podidentity", account)["status"] == 503
    with relaxed(strict, Rule.POD_IDENTITY_AGENT):
        assert "AccessKeyId" in strict.control("POST", "/_local/podidentity", account)
    strict.client("eks").create_addon(**addon)
    assert "AccessKeyId" in strict.control("POST", "/_local/podidentity", account)


@pytest.fixture
def ec2(strict: Aws) -> Any:
    return strict.client("ec2")


def launch(aws: Aws, **data: Any) -> dict[str, Any]:
    """CreateFleet's answer for one instance, with a template that EC2 knows."""
    ec2 = aws.client("ec2")
    with relaxed(aws, Rule.LAUNCH_TEMPLATE_PROPAGATION):
        template = create_template(ec2, **data)
    request = fleet_request(ec2, [override(ec2, "m6i.large", "a")], template_name=template)
    return dict(ec2.create_fleet(**request))


def test_a_new_instance_profile_is_not_known_to_ec2_at_first(strict: Aws, name: str) -> None:
    iam = strict.client("iam")

    def make(profile: str) -> dict[str, Any]:
        iam.create_instance_profile(InstanceProfileName=profile)
        iam.add_role_to_instance_profile(InstanceProfileName=profile, RoleName=f"KarpenterNodeRole-{REAL_CLUSTER}")
        return {"IamInstanceProfile": {"Name": profile}}

    with strict.stopped_clock():
        profile = make(name)
        (refusal,) = launch(strict, **profile)["Errors"]
    assert refusal["ErrorCode"] == "InvalidParameterValue"
    assert refusal["ErrorMessage"].endswith("Invalid IAM Instance Profile name")
    assert eventually(lambda: not launch(strict, **profile)["Errors"], 120)
    with relaxed(strict, Rule.INSTANCE_PROFILE_PROPAGATION):
        assert instance_ids(launch(strict, **make(f"{name}-kind")))


def test_a_new_launch_template_is_not_known_to_ec2_at_first(strict: Aws, ec2: Any) -> None:
    def names() -> list[str]:
        return [template["LaunchTemplateName"] for template in ec2.describe_launch_templates()["LaunchTemplates"]]

    with strict.stopped_clock():
        request = fleet_request(ec2, [override(ec2, "m6i.large", "a")])
        made = request["LaunchTemplateConfigs"][0]["LaunchTemplateSpecification"]["LaunchTemplateName"]
        assert error_code(lambda: ec2.create_fleet(**request)) == "InvalidLaunchTemplateName.NotFoundException"
        assert made not in names()
    assert eventually(lambda: made in names(), 120)
    assert instance_ids(ec2.create_fleet(**request))
    with relaxed(strict, Rule.LAUNCH_TEMPLATE_PROPAGATION):
        assert instance_ids(ec2.create_fleet(**fleet_request(ec2, [override(ec2, "m6i.large", "a")])))


def test_a_new_instance_is_not_shown_at_first(strict: Aws, ec2: Any) -> None:
    with strict.stopped_clock():
        (made,) = instance_ids(launch(strict))
        tag = {"Resources": [made], "Tags": [{"Key": "Name", "Value": "n"}]}
        assert error_code(lambda: ec2.describe_instances(InstanceIds=[made])) == "InvalidInstanceID.NotFound"
        assert error_code(lambda: ec2.create_tags(**tag)) == "InvalidInstanceID.NotFound"
    assert eventually(lambda: not error_code(lambda: ec2.describe_instances(InstanceIds=[made])), 120)
    ec2.create_tags(**tag)
    with relaxed(strict, Rule.INSTANCE_PROPAGATION, Rule.FLEET_DURATION):
        (made,) = instance_ids(launch(strict))
        assert ec2.describe_instances(InstanceIds=[made])["Reservations"]


def spot_vcpus(aws: Aws) -> int:
    """Of the spot instances that run, all of which have two."""
    listed = aws.control("GET", "/_local/instances")["instances"]
    return sum(2 for one in listed if one["capacityType"] == "spot" and one["state"] in ("pending", "running"))


def test_a_new_account_runs_few_vcpus(strict: Aws) -> None:
    ec2 = strict.client("ec2")
    overrides = [override(ec2, name, "a") for name in ("r6i.large", "r6i.xlarge")]
    with relaxed(strict, Rule.LAUNCH_TEMPLATE_PROPAGATION, Rule.FLEET_DURATION):
        template = create_template(ec2)

        def refusals(capacity_type: str, count: int) -> tuple[int, list[str]]:
            request = fleet_request(ec2, overrides, count=count, capacity_type=capacity_type, template_name=template)
            answer = ec2.create_fleet(**request)
            return len(instance_ids(answer)), sorted(error["ErrorCode"] for error in answer["Errors"])

        assert refusals("spot", 3)[0] == 3
        strict.control("POST", "/_local/quotas", {"L-34B43A08": spot_vcpus(strict) + 2})
        try:
            # Two vCPUs are left: for one of the smaller type.
            assert refusals("spot", 2) == (1, ["MaxSpotInstanceCountExceeded", "MaxSpotInstanceCountExceeded"])
            assert refusals("on-demand", 1) == (1, [])
            strict.control("POST", "/_local/quotas", {"L-1216C47A": 0})
            assert refusals("on-demand", 1) == (0, ["VcpuLimitExceeded", "VcpuLimitExceeded"])
        finally:
            strict.control("DELETE", "/_local/quotas")
    quotas = strict.client("service-quotas")

    def quota(code: str) -> float:
        return float(quotas.get_service_quota(ServiceCode="ec2", QuotaCode=code)["Quota"]["Value"])

    assert quota("L-1216C47A") > 1000
    strict.control("POST", "/_local/strictness", {Rule.VCPU_QUOTAS: True})
    try:
        assert (quota("L-1216C47A"), quota("L-DB2E81BA")) == (5, 0)
        with relaxed(strict, Rule.LAUNCH_TEMPLATE_PROPAGATION, Rule.FLEET_DURATION):
            request = fleet_request(ec2, [override(ec2, "g5.xlarge", "a")], template_name=create_template(ec2))
            (refusal,) = ec2.create_fleet(**request)["Errors"]
        assert "more vCPU capacity than your current vCPU limit of 0 allows" in refusal["ErrorMessage"]
    finally:
        strict.control("POST", "/_local/strictness", {Rule.VCPU_QUOTAS: False})
    assert error_code(lambda: quota("L-00000000")) == "NoSuchResourceException"


def test_create_fleet_takes_its_time(strict: Aws) -> None:
    started = time.monotonic()
    launch(strict)
    assert time.monotonic() - started > BEHAVIORS[Rule.FLEET_DURATION].seconds[0]  # type: ignore[index]


def test_an_index_does_not_show_at_once_what_was_written(strict: Aws, name: str) -> None:
    dynamodb = strict.client("dynamodb")
    key = [{"AttributeName": "pk", "KeyType": "HASH"}]
    index = {"AttributeName": "cell", "KeyType": "HASH"}
    dynamodb.create_table(
        TableName=name,
        KeySchema=key,
        AttributeDefinitions=[{"AttributeName": each, "AttributeType": "S"} for each in ("pk", "cell")],
        BillingMode="PAY_PER_REQUEST",
        GlobalSecondaryIndexes=[{"IndexName": "due", "KeySchema": [index], "Projection": {"ProjectionType": "ALL"}}],
    )

    def write(pk: str) -> None:
        dynamodb.put_item(TableName=name, Item={"pk": {"S": pk}, "cell": {"S": "main"}})

    def shown() -> set[str]:
        found = dynamodb.query(
            TableName=name,
            IndexName="due",
            KeyConditionExpression="cell = :cell",
            ExpressionAttributeValues={":cell": {"S": "main"}},
        )["Items"]
        return {item["pk"]["S"] for item in found}

    with strict.stopped_clock():
        write("late")
        assert dynamodb.get_item(TableName=name, Key={"pk": {"S": "late"}})["Item"]
        assert not shown()
    assert eventually(lambda: shown() == {"late"}, 120)
    with relaxed(strict, Rule.INDEX_PROPAGATION):
        write("at once")
        assert shown() == {"late", "at once"}


# Goes on until as many run as are waited for, or for so many seconds.
SLOW = """
import os, time
def handler(event, context):
    began, here = time.time(), event["directory"]
    open(os.path.join(here, str(event["number"])), "w").close()
    while len(os.listdir(here)) < event["most"] and time.time() < began + event["seconds"]:
        time.sleep(0.05)
    return [began, time.time()]
"""


@pytest.fixture(scope="module")
def lambdas(strict: Aws) -> Serverless:
    """The same local AWS, for functions, which may start slowly; their role may do all, everywhere by now."""
    aws = Serverless(strict.endpoint, strict.directory, 0)
    with relaxed(strict, Rule.IAM_PROPAGATION):
        aws.role("function")
    return aws


def test_a_throttled_batch_was_received(strict: Aws, lambdas: Serverless, name: str) -> None:
    """Two throttled deliveries, and a message is dead that no function has seen."""
    lambdas.function(name, "def handler(event, context): pass", Timeout=1)
    lambdas.client("lambda").put_function_concurrency(FunctionName=name, ReservedConcurrentExecutions=0)
    lambdas.queue(f"{name}-dead")
    redrive = {"deadLetterTargetArn": lambdas.queue_arn(f"{name}-dead"), "maxReceiveCount": 2}
    queue = lambdas.queue(name, VisibilityTimeout="1", RedrivePolicy=json.dumps(redrive))
    lambdas.client("lambda").create_event_source_mapping(FunctionName=name, EventSourceArn=lambdas.queue_arn(name))
    lambdas.client("sqs").send_message(QueueUrl=queue, MessageBody="unseen")

    dead = lambdas.client("sqs").get_queue_url(QueueName=f"{name}-dead")["QueueUrl"]
    (message,) = eventually(lambda: lambdas.receive(dead, 1), 120)
    assert message["Body"] == "unseen"

    lambdas.client("sqs").set_queue_attributes(QueueUrl=queue, Attributes={"VisibilityTimeout": "300"})
    with relaxed(strict, Rule.THROTTLED_RECEIVES):
        lambdas.client("sqs").send_message(QueueUrl=queue, MessageBody="waits")
        time.sleep(1)
        lambdas.client("lambda").delete_function_concurrency(FunctionName=name)
        # It does not hide for its timeout.
        eventually(lambda: _messages(lambdas, queue) == 0, 120)


def _messages(lambdas: Serverless, queue: str) -> int:
    """How many there are, hidden or not."""
    names: list[Any] = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    found = lambdas.client("sqs").get_queue_attributes(QueueUrl=queue, AttributeNames=names)["Attributes"]
    return sum(int(number) for number in found.values())


def test_a_new_account_runs_ten_functions_at_once(strict: Aws, lambdas: Serverless, name: str, tmp_path: Path) -> None:
    for half in ("a", "b"):
        lambdas.function(f"{name}-{half}", SLOW, Timeout=300)

    def most_at_once(seconds: float) -> int:
        directory = tmp_path / str(seconds)
        directory.mkdir()

        def invoke(number: int) -> list[float]:
            event = {"directory": str(directory), "number": number, "most": 11, "seconds": seconds}
            return list(lambdas.invoke(f"{name}-{'ab'[number % 2]}", event)[0])

        def times_of(number: int) -> list[float]:
            """Again where it waited in vain for its place."""
            busy = lambdas.client("lambda").exceptions.TooManyRequestsException
            while True:
                with suppress(busy):
                    return invoke(number)

        with ThreadPoolExecutor(12) as threads:
            times = list(threads.map(times_of, range(12)))
        return int(max(sum(began <= start < until for began, until in times) for start, _ in times))

    assert most_at_once(2) <= 10
    with relaxed(strict, Rule.ACCOUNT_CONCURRENCY):
        assert most_at_once(200) > 10


def test_a_queue_policy_counts_for_every_caller(strict: Aws, name: str) -> None:
    with relaxed(strict, Rule.IAM_PROPAGATION):
        allowed = assume(strict, make_role(strict, name, "sqs:*"))
        stranger = assume(strict, make_role(strict, f"{name}-stranger"))
    queue = strict.client("sqs").create_queue(QueueName=name)["QueueUrl"]

    def set_policy(effect: str, role: str) -> None:
        principal = {"AWS": f"arn:aws:iam::{ACCOUNT}:role/{role}"}
        statement = {"Effect": effect, "Principal": principal, "Action": "sqs:SendMessage", "Resource": "*"}
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        strict.client("sqs").set_queue_attributes(QueueUrl=queue, Attributes={"Policy": policy})

    def refusal(session: dict[str, Any]) -> str:
        sqs = strict.client("sqs", session)
        return error_code(lambda: sqs.send_message(QueueUrl=queue, MessageBody="m"))

    assert (refusal(allowed), refusal(stranger)) == ("", "AccessDeniedException")
    set_policy("Deny", name)
    assert refusal(allowed) == "AccessDeniedException"
    set_policy("Allow", f"{name}-stranger")
    assert refusal(stranger) == ""
    with relaxed(strict, Rule.QUEUE_POLICIES):
        assert refusal(stranger) == "AccessDeniedException"
        set_policy("Deny", name)
        assert refusal(allowed) == ""


def test_a_process_has_ten_seconds_to_start(strict: Aws, lambdas: Serverless, name: str) -> None:
    source = "import time\ntime.sleep(12)\ndef handler(event, context): return 1\n"
    lambdas.function(name, source)
    strict.control("POST", "/_local/strictness", {Rule.INIT_DURATION: True})
    answer, response = lambdas.invoke(name)
    strict.control("POST", "/_local/strictness", {Rule.INIT_DURATION: False})
    assert response["FunctionError"] == "Unhandled"
    assert answer["errorMessage"] == "init took over 10 s"
    assert lambdas.invoke(name)[0] == 1


def test_delays_are_drawn_from_the_seed_within_their_limits() -> None:
    one, same, other = Strictness(), Strictness(), Strictness(seed=2)
    for rule, behavior in BEHAVIORS.items():
        seconds = one.seconds(rule, "arn")
        assert seconds == same.seconds(rule, "arn")
        if behavior.seconds is None:
            assert seconds == 0
        else:
            assert behavior.seconds[0] <= seconds <= behavior.seconds[1]
            assert seconds != other.seconds(rule, "arn")


def test_nothing_is_seen_while_the_clock_stands_and_it_goes_on_where_it_stood() -> None:
    strictness = Strictness()
    assert strictness.set_clock({"stopped": True}) == {"stopped": True}
    strictness.note(Rule.INDEX_PROPAGATION, "row")
    stood_at = strictness.now()
    time.sleep(0.01)
    assert strictness.now() == stood_at
    assert not strictness.is_seen(Rule.INDEX_PROPAGATION, "row")
    strictness.set_clock({"stopped": True})
    assert strictness.set_clock({"stopped": False}) == {"stopped": False}
    assert eventually(lambda: strictness.is_seen(Rule.INDEX_PROPAGATION, "row"), 60)


def test_a_rule_is_named_or_the_names_are_told() -> None:
    assert rules(["all"]) == set(Rule)
    assert rules(["delays", "access-entry-principals"]) > rules(["delays"])
    with pytest.raises(KeyError, match="no rule nonsense; there are iam-propagation"):
        rules(["nonsense"])


def test_each_rule_is_tried() -> None:
    """Somewhere a test turns it off, or on where it is relaxed by default."""
    texts = [path.read_text() for path in Path(__file__).parent.rglob("test_*.py")]
    tried = {name for text in texts for name in re.findall(r"Rule\.([A-Z_]+)", text)}
    assert {rule.name for rule in Rule} <= tried
