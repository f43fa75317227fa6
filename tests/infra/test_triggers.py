"""What wakes the functions from outside, and that nobody else can pretend to."""

import json
from typing import Any

import msgspec
import pytest

from spotwright.workflows.ports.doorbells import Doorbell
from tests.infra.template import Template, statements

#: Queue → what EventBridge puts into it.
EVENTS = {
    "Interrupt": {
        ("aws.ec2", "EC2 Spot Instance Interruption Warning"),
        ("aws.ec2", "EC2 Instance Rebalance Recommendation"),
        ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"),
    },
    "Changes": {
        ("aws.ec2", "EC2 Instance State-change Notification"),
        ("aws.health", "AWS Health Event"),
    },
}
#: Queue → kind → how often.
TICKS = {
    ("Sweep", "poll"): "rate(1 minute)",
    ("Sweep", "full"): "rate(10 minutes)",
    ("Disrupt", "evaluate"): "rate(1 minute)",
    ("Catalog", "region"): "rate(12 hours)",
    ("Catalog", "nodeclasses"): "rate(5 minutes)",
}


def _queue(template: Template, name: str) -> str:
    queues = template.of("AWS::SQS::Queue").items()
    (id,) = (id for id, queue in queues if id.startswith(f"{name}Queue") and "RedrivePolicy" in queue)
    return id


def _rules_of(template: Template, name: str) -> dict[str, dict[str, Any]]:
    arn = f"<{_queue(template, name)}.Arn>"
    rules = template.of("AWS::Events::Rule").items()
    return {id: rule for id, rule in rules if [target["Arn"] for target in rule["Targets"]] == [arn]}


@pytest.mark.parametrize("name", EVENTS)
def test_warnings_wait_behind_no_message_of_an_instance_that_starts_or_ends(plain: Template, name: str) -> None:
    rules = _rules_of(plain, name).values()
    assert all(rule["State"] == "ENABLED" for rule in rules)
    seen = {(rule["EventPattern"]["source"][0], rule["EventPattern"]["detail-type"][0]) for rule in rules}
    assert seen == EVENTS[name]
    assert len(rules) == len(seen)
    queue = f"<{_queue(plain, name)}.Arn>"
    (feed,) = (feed for feed in plain.of("AWS::Lambda::EventSourceMapping").values() if feed["EventSourceArn"] == queue)
    assert feed["FunctionName"].startswith("<Interrupt")


def test_there_are_no_other_rules(plain: Template) -> None:
    assert len(plain.of("AWS::Events::Rule")) == sum(map(len, EVENTS.values()))


@pytest.mark.parametrize("name", EVENTS)
def test_only_our_rules_may_write_to_the_queues_of_interrupt(plain: Template, name: str) -> None:
    rules = {f"<{id}.Arn>" for id in _rules_of(plain, name)}
    queue = f"<{_queue(plain, name)}>"
    (policy,) = (resource for resource in plain.of("AWS::SQS::QueuePolicy").values() if resource["Queues"] == [queue])
    allowed = [each for each in policy["PolicyDocument"]["Statement"] if each["Effect"] == "Allow"]
    assert {each["Condition"]["ArnEquals"]["aws:SourceArn"] for each in allowed} == rules
    assert all(each["Principal"] == {"Service": "events.amazonaws.com"} for each in allowed)
    (denied,) = (statement for statement in statements(policy["PolicyDocument"]) if statement.sid == "OnlyOurRulesSend")
    assert (denied.effect, denied.actions) == ("Deny", ("sqs:SendMessage",))
    assert set(denied.conditions["ArnNotEquals"]["aws:SourceArn"]) == rules


def test_no_other_queue_lets_a_service_in(plain: Template) -> None:
    theirs = [f"<{_queue(plain, name)}>" for name in EVENTS]
    for policy in plain.of("AWS::SQS::QueuePolicy").values():
        if not set(policy["Queues"]) & set(theirs):
            assert all(statement.effect == "Deny" for statement in statements(policy["PolicyDocument"]))


def test_schedules_ring_doorbells_for_every_cluster(plain: Template) -> None:
    ticks = {}
    for schedule in plain.of("AWS::Scheduler::Schedule").values():
        target = schedule["Target"]
        bell = msgspec.json.decode(target["Input"], type=Doorbell)
        assert (bell.cluster, bell.schema, bell.epoch) == ("*", 1, 0)
        assert set(json.loads(target["Input"])) == {"schema", "cluster", "kind", "key", "epoch"}
        assert schedule["FlexibleTimeWindow"] == {"Mode": "OFF"}
        ticks[target["Arn"].removeprefix("<").split("Queue")[0], bell.kind] = schedule["ScheduleExpression"]
    assert ticks == TICKS


def test_schedules_may_ring_just_those_queues(plain: Template) -> None:
    targets = {resource["Target"]["Arn"] for resource in plain.of("AWS::Scheduler::Schedule").values()}
    (role,) = {resource["Target"]["RoleArn"] for resource in plain.of("AWS::Scheduler::Schedule").values()}
    granted = plain.statements(role.strip("<>").removesuffix(".Arn"))
    assert {action for statement in granted for action in statement.actions} == {"sqs:SendMessage"}
    assert {resource for statement in granted for resource in statement.resources} == targets


def test_no_schedule_but_the_cells_own_may_use_the_role(plain: Template) -> None:
    ((group_id, group),) = plain.of("AWS::Scheduler::ScheduleGroup").items()
    assert group["Name"] == "Spotwright-main"
    schedules = plain.of("AWS::Scheduler::Schedule").values()
    assert {resource["GroupName"] for resource in schedules} == {f"<{group_id}>"}
    (role,) = {resource["Target"]["RoleArn"].strip("<>").removesuffix(".Arn") for resource in schedules}
    (trust,) = plain.of("AWS::IAM::Role")[role]["AssumeRolePolicyDocument"]["Statement"]
    assert trust["Condition"]["StringEquals"]["aws:SourceArn"] == f"<{group_id}.Arn>"
