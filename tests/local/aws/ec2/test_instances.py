"""The life of an instance over the API, and the control routes that end it."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.aws.strictness import Rule
from local.boot.aws_reader import AwsReader
from tests.local.aws.conftest import ADMINISTRATOR, CLUSTER, REGION, Aws
from tests.local.aws.fleets import code_of, fleet_request, image, instance_ids, override, security_group, subnets


@pytest.fixture
def ec2(aws: Aws) -> Any:
    return aws.client("ec2")


def start(ec2: Any, count: int = 1, capacity_type: str = "on-demand", **tags: str) -> list[str]:
    specification = {"ResourceType": "instance", "Tags": [{"Key": k, "Value": v} for k, v in tags.items()]}
    pools = [override(ec2, "t3a.large", "a")]
    asked = fleet_request(ec2, pools, count=count, capacity_type=capacity_type)
    return instance_ids(ec2.create_fleet(**asked, TagSpecifications=[specification] if tags else []))


def instances(ec2: Any, **call: Any) -> list[dict[str, Any]]:
    pages = ec2.get_paginator("describe_instances").paginate(**call)
    return [item for page in pages for group in page["Reservations"] for item in group["Instances"]]


def state(ec2: Any, instance_id: str) -> str:
    return str(instances(ec2, InstanceIds=[instance_id])[0]["State"]["Name"])


def until(ec2: Any, instance_id: str, wanted: str, seconds: float = 180) -> None:
    deadline = time.monotonic() + seconds
    while state(ec2, instance_id) != wanted:
        assert time.monotonic() < deadline, f"{instance_id} is {state(ec2, instance_id)}, not {wanted}"
        time.sleep(0.05)


@contextmanager
def shutting_down(aws: Aws) -> Iterator[None]:
    """Instances shut down for a while before they have ended."""
    aws.control("POST", "/_local/strictness", {Rule.INSTANCE_SHUTDOWN: True})
    try:
        yield
    finally:
        aws.control("POST", "/_local/strictness", {Rule.INSTANCE_SHUTDOWN: False})


def test_an_instance_runs_and_ends_step_by_step(aws: Aws, ec2: Any) -> None:
    with aws.stopped_clock():
        (instance_id,) = start(ec2)
        assert state(ec2, instance_id) == "pending"
    until(ec2, instance_id, "running")
    with shutting_down(aws), aws.stopped_clock():
        change = ec2.terminate_instances(InstanceIds=[instance_id])["TerminatingInstances"][0]
        assert (change["PreviousState"]["Name"], change["CurrentState"]["Name"]) == ("running", "shutting-down")
        again = ec2.terminate_instances(InstanceIds=[instance_id])["TerminatingInstances"][0]
        assert again["PreviousState"]["Name"] == "shutting-down"
    until(ec2, instance_id, "terminated")
    ended = instances(ec2, InstanceIds=[instance_id])[0]
    assert ended["StateReason"]["Code"] == "Client.UserInitiatedShutdown"
    assert "PrivateIpAddress" not in ended


def test_without_the_rule_an_instance_that_is_terminated_has_ended(ec2: Any) -> None:
    (instance_id,) = start(ec2)
    (change,) = ec2.terminate_instances(InstanceIds=[instance_id])["TerminatingInstances"]
    assert change["PreviousState"]["Name"] in ("pending", "running")
    assert (change["CurrentState"]["Name"], change["CurrentState"]["Code"]) == ("terminated", 48)
    assert state(ec2, instance_id) == "terminated"


def test_what_changed_since_an_answer_is_listed_alone(aws: Aws, ec2: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", ADMINISTRATOR["AccessKeyId"])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", ADMINISTRATOR["SecretAccessKey"])
    reader = AwsReader(aws.endpoint, CLUSTER, REGION)

    def states() -> dict[str, str]:
        return {instance.id: instance.state for instance in reader.instances()}

    (first,) = start(ec2)
    until(ec2, first, "running")
    assert states()[first] == "running"
    before = aws.control("GET", "/_local/instances")
    assert first in {shown["id"] for shown in before["instances"]}
    with aws.stopped_clock():
        (second,) = start(ec2)
        since = f"/_local/instances?since={before['next']}"
        assert second in {shown["id"] for shown in aws.control("GET", since)["instances"]}
        assert (states()[first], states()[second]) == ("running", "pending")
    ec2.terminate_instances(InstanceIds=[first])
    until(ec2, second, "running")
    assert (states()[first], states()[second]) == ("terminated", "running")
    changed = aws.control("GET", since)
    assert {first, second} <= {shown["id"] for shown in changed["instances"]}
    later = aws.control("GET", f"/_local/instances?since={changed['next']}")["instances"]
    assert not {first, second} & {shown["id"] for shown in later}


def test_an_address_comes_back_to_the_subnet(ec2: Any) -> None:
    def free() -> int:
        subnet = ec2.describe_subnets(SubnetIds=[subnets(ec2)["b"]])["Subnets"][0]
        return int(subnet["AvailableIpAddressCount"])

    before = free()
    (instance_id,) = instance_ids(ec2.create_fleet(**fleet_request(ec2, [override(ec2, "m6i.large", "b")])))
    assert free() == before - 1
    ec2.terminate_instances(InstanceIds=[instance_id])
    until(ec2, instance_id, "terminated")
    assert free() == before


def test_the_next_instance_does_not_get_the_address_of_one_that_ended(ec2: Any) -> None:
    """Its node would have the same name."""
    (ended,) = start(ec2)
    (before,) = instances(ec2, InstanceIds=[ended])
    ec2.terminate_instances(InstanceIds=[ended])
    until(ec2, ended, "terminated")
    new = instances(ec2, InstanceIds=start(ec2, 3))
    assert before["PrivateIpAddress"] not in {instance["PrivateIpAddress"] for instance in new}


def test_filters_and_pages(ec2: Any) -> None:
    started = start(ec2, 5, batch="one") + start(ec2, 1, capacity_type="spot", batch="one")
    mine = {"Name": "tag:batch", "Values": ["one"]}
    assert {item["InstanceId"] for item in instances(ec2, Filters=[mine])} == set(started)
    spot = [mine, {"Name": "instance-lifecycle", "Values": ["spot"]}]
    assert [item["InstanceId"] for item in instances(ec2, Filters=spot)] == started[5:]
    keys = [{"Name": "tag-key", "Values": ["bat*"]}, {"Name": "instance-type", "Values": ["t3a.*"]}]
    assert len(instances(ec2, Filters=keys)) == 6
    first = ec2.describe_instances(Filters=[mine], MaxResults=5)
    assert sum(len(group["Instances"]) for group in first["Reservations"]) == 5
    assert first["NextToken"]
    paged = instances(ec2, Filters=[mine], PaginationConfig={"PageSize": 5})
    assert len({item["InstanceId"] for item in paged}) == 6


@pytest.mark.parametrize(
    ("call", "code"),
    [
        ({"InstanceIds": ["i-00000000000000000"]}, "InvalidInstanceID.NotFound"),
        ({"InstanceIds": ["bad"]}, "InvalidInstanceID.Malformed"),
        ({"Filters": [{"Name": "colour", "Values": ["red"]}]}, "InvalidParameterValue"),
    ],
)
def test_wrong_questions_are_refused(ec2: Any, call: dict[str, Any], code: str) -> None:
    with pytest.raises(ClientError) as caught:
        ec2.describe_instances(**call)
    assert code_of(caught.value) == code


def test_tags_set_later_are_shown(ec2: Any) -> None:
    (instance_id,) = start(ec2)
    ec2.create_tags(Resources=[instance_id], Tags=[{"Key": "Name", "Value": "node"}])
    tags = instances(ec2, InstanceIds=[instance_id])[0]["Tags"]
    assert {"Key": "Name", "Value": "node"} in tags


def test_a_running_instance_is_healthy(ec2: Any) -> None:
    (instance_id,) = start(ec2)
    until(ec2, instance_id, "running")
    (status,) = ec2.describe_instance_status(InstanceIds=[instance_id])["InstanceStatuses"]
    assert status["InstanceStatus"]["Status"] == status["SystemStatus"]["Status"] == "ok"
    impaired = [{"Name": "system-status.status", "Values": ["impaired"]}]
    assert ec2.describe_instance_status(Filters=impaired)["InstanceStatuses"] == []


def test_run_instances_is_the_same_launch(ec2: Any) -> None:
    asked: dict[str, Any] = {
        "ImageId": image(),
        "InstanceType": "t3a.large",
        "SubnetId": subnets(ec2)["a"],
        "SecurityGroupIds": [security_group(ec2)],
        "MinCount": 1,
        "MaxCount": 1,
    }
    with pytest.raises(ClientError) as caught:
        ec2.run_instances(**asked, DryRun=True)
    assert code_of(caught.value) == "DryRunOperation"
    (started,) = ec2.run_instances(**asked)["Instances"]
    until(ec2, started["InstanceId"], "running")


def test_an_interrupted_spot_instance_ends_after_its_notice(aws: Aws, ec2: Any) -> None:
    (instance_id,) = start(ec2, capacity_type="spot")
    until(ec2, instance_id, "running")
    answer = aws.control("POST", "/_local/interrupt", {"instanceId": instance_id, "seconds": 0.3})
    assert answer == {"instanceId": instance_id, "seconds": 0.3}
    until(ec2, instance_id, "terminated")
    reason = instances(ec2, InstanceIds=[instance_id])[0]["StateReason"]["Code"]
    assert reason == "Server.SpotInstanceTermination"


def test_only_spot_instances_are_interrupted(aws: Aws, ec2: Any) -> None:
    (instance_id,) = start(ec2)
    for path in ("/_local/interrupt", "/_local/rebalance"):
        assert aws.control("POST", path, {"instanceId": instance_id})["status"] == 400


def test_ec2_tells_the_event_bus(aws: Aws, ec2: Any) -> None:
    events, sqs = aws.client("events"), aws.client("sqs")
    url = sqs.create_queue(QueueName="ec2-events")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    allow = (
        '{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"events.amazonaws.com"},'
        f'"Action":"sqs:SendMessage","Resource":"{arn}"}}]}}'
    )
    sqs.set_queue_attributes(QueueUrl=url, Attributes={"Policy": allow})
    events.put_rule(Name="ec2-events", EventPattern='{"source":["aws.ec2"]}')
    events.put_targets(Rule="ec2-events", Targets=[{"Id": "1", "Arn": arn}])
    (instance_id,) = start(ec2, capacity_type="spot")
    until(ec2, instance_id, "running")
    aws.control("POST", "/_local/rebalance", {"instanceId": instance_id})
    with shutting_down(aws):
        aws.control("POST", "/_local/interrupt", {"instanceId": instance_id, "seconds": 0})
        until(ec2, instance_id, "terminated")
    seen = _events(sqs, url, instance_id, 6)
    events.remove_targets(Rule="ec2-events", Ids=["1"])
    states = [event["detail"]["state"] for event in seen if "state" in event["detail"]]
    assert states == ["pending", "running", "shutting-down", "terminated"]
    warning = next(event for event in seen if event["detail-type"] == "EC2 Spot Instance Interruption Warning")
    assert warning["detail"] == {"instance-id": instance_id, "instance-action": "terminate"}
    assert (warning["account"], warning["region"]) == ("123456789012", "ap-northeast-2")
    assert any(event["detail-type"] == "EC2 Instance Rebalance Recommendation" for event in seen)


def _events(sqs: Any, url: str, instance_id: str, wanted: int) -> list[dict[str, Any]]:
    """An instance's events from the queue in their order, at least `wanted` of them, without those of others."""
    found: list[dict[str, Any]] = []
    deadline = time.monotonic() + 180
    while len(found) < wanted and time.monotonic() < deadline:
        answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1, VisibilityTimeout=900)
        events = [json.loads(message["Body"]) for message in answer.get("Messages", [])]
        found += [event for event in events if event["detail"]["instance-id"] == instance_id]
    return found
