"""Events meet rules; queues and functions whose policy lets the rule in receive them."""

import json
from pathlib import Path
from typing import Any

from tests.local.aws.serverless import ACCOUNT, REGION, Aws, eventually

WARNING = {
    "source": "aws.ec2",
    "detail-type": "EC2 Spot Instance Interruption Warning",
    "detail": {"instance-id": "i-1", "instance-action": "terminate"},
    "resources": [f"arn:aws:ec2:{REGION}a:instance/i-1"],
}


def rule(aws: Aws, name: str, pattern: dict[str, Any], **target: Any) -> str:
    events = aws.client("events")
    arn = events.put_rule(Name=name, EventPattern=json.dumps(pattern))["RuleArn"]
    events.put_targets(Rule=name, Targets=[{"Id": "1"} | target])
    return str(arn)


def let_in(aws: Aws, url: str, queue: str, rule_arn: str) -> None:
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": aws.queue_arn(queue),
        "Condition": {"ArnEquals": {"aws:SourceArn": rule_arn}},
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    aws.client("sqs").set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})


def test_a_service_event_reaches_the_queue_whole(aws: Aws) -> None:
    url = aws.queue("warnings")
    arn = rule(aws, "warnings", {"source": ["aws.ec2"]}, Arn=aws.queue_arn("warnings"))
    let_in(aws, url, "warnings", arn)
    emitted = aws.control("POST", "/_local/events", WARNING)
    (message,) = aws.receive(url)
    event = json.loads(message["Body"])
    assert event.pop("time").endswith("Z")
    assert event == WARNING | {"version": "0", "id": emitted["id"], "account": ACCOUNT, "region": REGION}


def test_a_queue_that_does_not_let_the_rule_in_gets_nothing(aws: Aws) -> None:
    url, dead = aws.queue("closed"), aws.queue("closed-dead")
    arn = rule(
        aws,
        "closed",
        {"source": ["mine"]},
        Arn=aws.queue_arn("closed"),
        DeadLetterConfig={"Arn": aws.queue_arn("closed-dead")},
    )
    let_in(aws, url, "closed", arn + "-other")
    let_in(aws, dead, "closed-dead", arn)
    aws.client("events").put_events(Entries=[{"Source": "mine", "DetailType": "x", "Detail": "{}"}])
    assert len(aws.receive(dead)) == 1
    assert aws.receive(url, 0) == []


def test_disabled_rules_and_other_events_deliver_nothing(aws: Aws) -> None:
    url = aws.queue("quiet")
    arn = rule(aws, "quiet", {"source": ["quiet"], "detail": {"state": ["on"]}}, Arn=aws.queue_arn("quiet"))
    let_in(aws, url, "quiet", arn)
    events = aws.client("events")
    put = {"Source": "quiet", "DetailType": "x"}
    events.put_events(Entries=[put | {"Detail": '{"state": "off"}'}])
    events.disable_rule(Name="quiet")
    events.put_events(Entries=[put | {"Detail": '{"state": "on"}'}])
    assert aws.receive(url, 0) == []
    events.enable_rule(Name="quiet")
    events.put_events(Entries=[put | {"Detail": '{"state": "on"}'}])
    assert len(aws.receive(url)) == 1


def test_only_services_publish_as_services(aws: Aws) -> None:
    entry = {"Source": "aws.ec2", "DetailType": "x", "Detail": "{}"}
    answer = aws.client("events").put_events(Entries=[entry])
    assert answer["FailedEntryCount"] == 1
    assert answer["Entries"][0]["ErrorCode"] == "NotAuthorizedForSourceException"


def test_a_function_runs_when_its_policy_lets_the_rule_in(aws: Aws, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    source = f"import json, pathlib\ndef handler(e, c):\n    pathlib.Path({str(mark)!r}).write_text(json.dumps(e))"
    function = aws.function("listener", source)
    arn = rule(aws, "listener", {"source": ["call"]}, Arn=function)
    entry = {"Source": "call", "DetailType": "x", "Detail": '{"n": 1}'}
    aws.client("events").put_events(Entries=[entry])
    aws.client("lambda").add_permission(
        FunctionName="listener",
        StatementId="rule",
        Action="lambda:InvokeFunction",
        Principal="events.amazonaws.com",
        SourceArn=arn,
    )
    assert not mark.exists()
    aws.client("events").put_events(Entries=[entry | {"Detail": '{"n": 2}'}])
    eventually(mark.exists)
    assert eventually(lambda: json.loads(mark.read_text() or "{}"))["detail"] == {"n": 2}
