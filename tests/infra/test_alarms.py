"""Who is told of alarms, and that they can be told apart."""

import pytest

from tests.infra.conftest import KEY, TOPIC, checked, cluster
from tests.infra.template import Template, statements

ADDRESS = "oncall@example.com"


def alarms(template: Template) -> list[dict[str, object]]:
    return list(template.of("AWS::CloudWatch::Alarm").values())


def test_alarms_and_their_end_go_to_the_topic_of_the_context(full: Template) -> None:
    assert all(alarm["AlarmActions"] == alarm["OKActions"] == [TOPIC] for alarm in alarms(full))
    assert not full.of("AWS::SNS::Topic")


def test_without_a_topic_alarms_are_shown_and_tell_nobody(plain: Template) -> None:
    assert alarms(plain)
    assert not any("AlarmActions" in alarm for alarm in alarms(plain))


@pytest.mark.parametrize("key", [None, KEY])
def test_an_address_gets_a_topic_that_only_alarms_of_the_account_write_to(key: str | None) -> None:
    """cdk-nag and the schemas have looked at it, with and without a customer's key."""
    template = checked({"clusters": [cluster("one")], "alarmEmail": ADDRESS, **({"kmsKeyArn": key} if key else {})})
    ((topic, properties),) = template.of("AWS::SNS::Topic").items()
    assert properties.get("KmsMasterKeyId") == key
    assert all(alarm["AlarmActions"] == alarm["OKActions"] == [f"<{topic}>"] for alarm in alarms(template))
    (subscription,) = template.of("AWS::SNS::Subscription").values()
    assert (subscription["Protocol"], subscription["Endpoint"]) == ("email", ADDRESS)
    (policy,) = template.of("AWS::SNS::TopicPolicy").values()
    by_effect = {statement.effect: statement for statement in statements(policy["PolicyDocument"])}
    assert by_effect["Allow"].actions == ("sns:Publish",)
    assert by_effect["Allow"].conditions == {"StringEquals": {"aws:SourceAccount": "<AWS::AccountId>"}}
    assert by_effect["Deny"].conditions == {"Bool": {"aws:SecureTransport": "false"}}


def test_an_alarm_names_its_cell_and_what_it_watches(full: Template) -> None:
    names = [str(alarm["AlarmName"]) for alarm in alarms(full)]
    assert len(set(names)) == len(names)
    assert all(name.startswith("Spotwright-blue-") for name in names)
    assert {"Spotwright-blue-one-PodsPendingLong", "Spotwright-blue-two-PodsPendingLong"} <= set(names)


def test_what_is_missed_is_watched_when_schedules_run_and_not_before(full: Template) -> None:
    schedules = set(full.of("AWS::Scheduler::Schedule"))
    for id in full.of("AWS::CloudWatch::Alarm"):
        assert schedules <= set(full.resources[id]["DependsOn"])
