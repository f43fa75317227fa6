"""Schedules fire when they should, with the rights of their role."""

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from local.aws.schedules_expressions import At, Cron, Rate, parsed
from tests.local.aws_serverless.driver import ACCOUNT, Aws, eventually


def scheduler_role(aws: Aws, name: str, action: str) -> str:
    trust = {"Effect": "Allow", "Principal": {"Service": "scheduler.amazonaws.com"}, "Action": "sts:AssumeRole"}
    allow = {"Effect": "Allow", "Action": action, "Resource": "*"}
    iam = aws.client("iam")
    iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps({"Statement": [trust]}))
    iam.put_role_policy(
        RoleName=name,
        PolicyName="p",
        PolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [allow]}),
    )
    return f"arn:aws:iam::{ACCOUNT}:role/{name}"


def schedule(aws: Aws, name: str, expression: str, role: str, **target: Any) -> None:
    aws.client("scheduler").create_schedule(
        Name=name,
        ScheduleExpression=expression,
        FlexibleTimeWindow={"Mode": "OFF"},
        Target={"Arn": aws.queue_arn(name), "RoleArn": role, "Input": '{"kind": "poll"}'} | target,
    )


def test_a_rate_fires_at_once_and_each_period(aws: Aws) -> None:
    url = aws.queue("ticks")
    aws.control("POST", "/_local/schedules", {"speed": 60})
    schedule(aws, "ticks", "rate(1 minute)", scheduler_role(aws, "ticks", "sqs:SendMessage"))
    began = time.monotonic()
    seen: list[Any] = []
    while len(seen) < 3:
        seen += aws.receive(url, 5)
    assert 1.5 < time.monotonic() - began < 6
    assert json.loads(seen[0]["Body"]) == {"kind": "poll"}
    aws.client("scheduler").delete_schedule(Name="ticks")
    aws.control("POST", "/_local/schedules", {"speed": 1})


def test_a_moment_fires_once_and_removes_itself(aws: Aws) -> None:
    url = aws.queue("once")
    moment = datetime.now(UTC) + timedelta(seconds=2)
    aws.client("scheduler").create_schedule(
        Name="once",
        ScheduleExpression=f"at({moment:%Y-%m-%dT%H:%M:%S})",
        FlexibleTimeWindow={"Mode": "OFF"},
        ActionAfterCompletion="DELETE",
        Target={
            "Arn": aws.queue_arn("once"),
            "RoleArn": scheduler_role(aws, "once", "sqs:SendMessage"),
            "Input": "now",
        },
    )
    assert [message["Body"] for message in aws.receive(url, 10)] == ["now"]
    eventually(lambda: aws.client("scheduler").list_schedules(NamePrefix="once")["Schedules"] == [])


def test_a_role_without_the_right_delivers_to_nobody(aws: Aws) -> None:
    url = aws.queue("barred")
    schedule(
        aws,
        "barred",
        "rate(1 minute)",
        scheduler_role(aws, "barred", "sqs:ReceiveMessage"),
        RetryPolicy={"MaximumRetryAttempts": 0},
    )

    def refused() -> bool:
        calls = aws.control("GET", "/_local/calls")["calls"]
        return any(
            call["action"] == "SendMessage" and call["status"] >= 400 and "barred" in call["principal"]
            for call in calls
        )

    eventually(refused, what="the refused call")
    assert aws.receive(url, 0) == []


def test_refuses_roles_that_scheduler_cannot_assume(aws: Aws) -> None:
    aws.queue("untrusting")
    client = aws.client("scheduler")
    with pytest.raises(client.exceptions.ValidationException, match="must allow AWS EventBridge Scheduler"):
        schedule(aws, "untrusting", "rate(1 minute)", aws.role("function"))


def test_a_scheduled_rule_sends_a_scheduled_event(aws: Aws) -> None:
    url = aws.queue("ruled")
    aws.control("POST", "/_local/schedules", {"speed": 60})
    events = aws.client("events")
    arn = events.put_rule(Name="ruled", ScheduleExpression="rate(1 minute)")["RuleArn"]
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "events.amazonaws.com"},
        "Action": "sqs:SendMessage",
        "Resource": "*",
    }
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    aws.client("sqs").set_queue_attributes(QueueUrl=url, Attributes={"Policy": policy})
    events.put_targets(Rule="ruled", Targets=[{"Id": "1", "Arn": aws.queue_arn("ruled")}])
    (message, *_) = aws.receive(url, 10)
    event = json.loads(message["Body"])
    assert (event["source"], event["detail-type"], event["resources"]) == ("aws.events", "Scheduled Event", [arn])
    aws.control("POST", "/_local/schedules", {"speed": 1})


def test_expired_items_go_away(aws: Aws) -> None:
    dynamodb = aws.client("dynamodb")
    dynamodb.create_table(
        TableName="fading",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "sk")],
        BillingMode="PAY_PER_REQUEST",
    )
    dynamodb.update_time_to_live(
        TableName="fading", TimeToLiveSpecification={"Enabled": True, "AttributeName": "expires"}
    )
    for name, expires in (("old", time.time() - 5), ("new", time.time() + 500)):
        item = {"pk": {"S": name}, "sk": {"S": "x"}, "expires": {"N": str(int(expires))}}
        dynamodb.put_item(TableName="fading", Item=item)

    def left() -> list[str]:
        return sorted(item["pk"]["S"] for item in dynamodb.scan(TableName="fading")["Items"])

    assert left() == ["new", "old"]
    eventually(lambda: left() == ["new"], 40)


NOW = datetime(2026, 11, 20, 10, 30, tzinfo=UTC)  # a Friday


@pytest.mark.parametrize(
    ("expression", "following"),
    [
        ("cron(0 12 * * ? *)", "2026-11-20T12:00"),
        ("cron(15,45 * * * ? *)", "2026-11-20T10:45"),
        ("cron(0/20 10 * * ? *)", "2026-11-20T10:40"),
        ("cron(0 8 1 * ? *)", "2026-12-01T08:00"),
        ("cron(0 8 ? * MON-WED *)", "2026-11-23T08:00"),
        ("cron(0 0 29 2 ? *)", "2028-02-29T00:00"),
        ("cron(0 0 1 JAN ? 2030)", "2030-01-01T00:00"),
    ],
)
def test_cron_finds_the_next_time(expression: str, following: str) -> None:
    when = parsed(expression)
    assert isinstance(when, Cron)
    found = when.after(NOW)
    assert found is not None
    assert found.isoformat()[:16] == following


def test_cron_in_the_past_never_fires() -> None:
    when = parsed("cron(0 0 1 1 ? 2020)")
    assert isinstance(when, Cron)
    assert when.after(NOW) is None


def test_rates_and_moments() -> None:
    assert parsed("rate(5 minutes)") == Rate(300)
    assert parsed("rate(1 day)") == Rate(86400)
    moment = parsed("at(2026-11-20T19:30:00)", "Asia/Seoul")
    assert isinstance(moment, At)
    assert moment.moment == NOW


@pytest.mark.parametrize(
    "expression",
    ["rate(1 minutes)", "rate(5 minute)", "rate(0 minutes)", "cron(* * * * * *)", "cron(61 * * * ? *)", "soon"],
)
def test_wrong_expressions_are_refused(expression: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        parsed(expression)
