"""What wakes the functions from outside, and that nobody else can pretend to."""

import json

import msgspec

from spotwright.workflows.ports.doorbells import Doorbell
from tests.infra.template import Template, statements

INTERRUPTIONS = {
    ("aws.ec2", "EC2 Spot Instance Interruption Warning"),
    ("aws.ec2", "EC2 Instance Rebalance Recommendation"),
    ("aws.ec2", "EC2 Instance State-change Notification"),
    ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning"),
    ("aws.health", "AWS Health Event"),
}
#: Queue → kind → how often.
TICKS = {
    ("Sweep", "poll"): "rate(1 minute)",
    ("Sweep", "full"): "rate(10 minutes)",
    ("Disrupt", "evaluate"): "rate(1 minute)",
    ("Catalog", "region"): "rate(12 hours)",
    ("Catalog", "nodeclasses"): "rate(5 minutes)",
}


def _interrupt_queue(template: Template) -> str:
    (id,) = (id for id, resource in template.of("AWS::SQS::Queue").items() if _is_interrupts(id, resource))
    return id


def _is_interrupts(id: str, queue: dict[str, object]) -> bool:
    return id.startswith("InterruptQueue") and "RedrivePolicy" in queue


def test_each_interruption_event_reaches_the_interrupt_queue(plain: Template) -> None:
    rules = plain.of("AWS::Events::Rule").values()
    seen = {
        (rule["EventPattern"]["source"][0], rule["EventPattern"]["detail-type"][0])
        for rule in rules
        if [target["Arn"] for target in rule["Targets"]] == [f"<{_interrupt_queue(plain)}.Arn>"]
        and rule["State"] == "ENABLED"
    }
    assert seen == INTERRUPTIONS
    assert len(rules) == len(INTERRUPTIONS)


def test_only_our_rules_may_write_to_the_interrupt_queue(plain: Template) -> None:
    rules = {f"<{id}.Arn>" for id in plain.of("AWS::Events::Rule")}
    queue = f"<{_interrupt_queue(plain)}>"
    (policy,) = (resource for resource in plain.of("AWS::SQS::QueuePolicy").values() if resource["Queues"] == [queue])
    allowed = [each for each in policy["PolicyDocument"]["Statement"] if each["Effect"] == "Allow"]
    assert {each["Condition"]["ArnEquals"]["aws:SourceArn"] for each in allowed} == rules
    assert all(each["Principal"] == {"Service": "events.amazonaws.com"} for each in allowed)
    (denied,) = (statement for statement in statements(policy["PolicyDocument"]) if statement.sid == "OnlyOurRulesSend")
    assert (denied.effect, denied.actions) == ("Deny", ("sqs:SendMessage",))
    assert set(denied.conditions["ArnNotEquals"]["aws:SourceArn"]) == rules


def test_no_other_queue_lets_a_service_in(plain: Template) -> None:
    for policy in plain.of("AWS::SQS::QueuePolicy").values():
        if policy["Queues"] != [f"<{_interrupt_queue(plain)}>"]:
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
