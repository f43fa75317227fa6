"""Schedules fire when they should, with the rights of their role."""

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.local.aws.serverless import ACCOUNT, Aws, eventually


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
    began = time.monotonic()
    schedule(aws, "ticks", "rate(1 minute)", scheduler_role(aws, "ticks", "sqs:SendMessage"))
    seen: list[Any] = []
    while len(seen) < 3:
        seen += aws.receive(url, 5)
    assert time.monotonic() - began > 1.5
    assert json.loads(seen[0]["Body"]) == {"kind": "poll"}
    aws.client("scheduler").delete_schedule(Name="ticks")
    aws.control("POST", "/_local/schedules", {"speed": 1})


def test_a_moment_fires_once_and_removes_itself(aws: Aws) -> None:
    url = aws.queue("once")
    role = scheduler_role(aws, "once", "sqs:SendMessage")
    # A moment that has gone by when the schedule is first looked at is missed.
    moment = datetime.now(UTC) + timedelta(seconds=12)
    aws.client("scheduler").create_schedule(
        Name="once",
        ScheduleExpression=f"at({moment:%Y-%m-%dT%H:%M:%S})",
        FlexibleTimeWindow={"Mode": "OFF"},
        ActionAfterCompletion="DELETE",
        Target={
            "Arn": aws.queue_arn("once"),
            "RoleArn": role,
            "Input": "now",
        },
    )
    assert [message["Body"] for message in eventually(lambda: aws.receive(url))] == ["now"]
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
    (message, *_) = eventually(lambda: aws.receive(url))
    event = json.loads(message["Body"])
    assert (event["source"], event["detail-type"], event["resources"]) == ("aws.events", "Scheduled Event", [arn])
    aws.control("POST", "/_local/schedules", {"speed": 1})
