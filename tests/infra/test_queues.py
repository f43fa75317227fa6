"""Every source has its queue, every queue a way out for what cannot be done, and somebody is told."""

from typing import Any

import pytest

from infra.functions import FURTHER_QUEUES, QUEUE_FUNCTIONS
from spotwright.workflows.install.preflight.account import NEEDED_CONCURRENCY
from tests.infra.template import Template, statements


@pytest.fixture(params=["plain", "full"])
def template(request: pytest.FixtureRequest) -> Template:
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


def _dead_letters(template: Template) -> dict[str, str]:
    """Logical id of each working queue → of its dead letters."""
    queues = template.of("AWS::SQS::Queue")
    return {
        id: resource["RedrivePolicy"]["deadLetterTargetArn"].strip("<>").removesuffix(".Arn")
        for id, resource in queues.items()
        if "RedrivePolicy" in resource
    }


def test_each_fed_function_has_its_own_queue_and_each_queue_its_own_dead_letters(template: Template) -> None:
    dead_letters = _dead_letters(template)
    fed = {feed["EventSourceArn"]: feed["FunctionName"] for feed in _feeds(template)}
    assert len(fed) == len(_feeds(template)) == len(QUEUE_FUNCTIONS) + len(FURTHER_QUEUES)
    assert len(set(fed.values())) == len(QUEUE_FUNCTIONS)
    assert {f"<{id}.Arn>" for id in dead_letters} == set(fed)
    assert len(set(dead_letters.values())) == len(fed)
    assert set(template.of("AWS::SQS::Queue")) == {*dead_letters, *dead_letters.values()}


def test_notices_have_a_queue_of_their_own_so_that_they_wait_behind_no_other_work(template: Template) -> None:
    feeds = [feed for feed in _feeds(template) if feed["FunctionName"].startswith("<Lifecycle")]
    queues = {feed["EventSourceArn"].strip("<").split("Queue")[0] for feed in feeds}
    assert queues == {"Lifecycle", "Notices"}
    feeds = [feed for feed in _feeds(template) if feed["FunctionName"].startswith("<Interrupt")]
    queues = {feed["EventSourceArn"].strip("<").split("Queue")[0] for feed in feeds}
    assert queues == {"Interrupt", "Changes"}


def _feeds(template: Template) -> list[dict[str, Any]]:
    return list(template.of("AWS::Lambda::EventSourceMapping").values())


def test_a_message_stays_hidden_for_six_timeouts_and_a_warning_for_two(template: Template) -> None:
    queues = template.of("AWS::SQS::Queue")
    functions = template.of("AWS::Lambda::Function")
    for feed in template.of("AWS::Lambda::EventSourceMapping").values():
        queue = queues[feed["EventSourceArn"].strip("<>").removesuffix(".Arn")]
        timeout = functions[feed["FunctionName"].strip("<>")]["Timeout"]
        tries = queue["RedrivePolicy"]["maxReceiveCount"]
        timeouts = 2 if _is_of_warnings(feed) else 6
        assert queue["VisibilityTimeout"] == timeouts * timeout
        # Throttled for minutes, no message becomes a dead letter.
        assert tries * timeouts == 5 * 6
        # A poisonous message must reach the dead letters before it is too old to be kept.
        assert queue["MessageRetentionPeriod"] > tries * queue["VisibilityTimeout"]


def test_a_spot_warning_that_failed_comes_back_several_times_within_its_two_minutes(template: Template) -> None:
    (feed,) = (feed for feed in _feeds(template) if _is_of_warnings(feed))
    queue = template.of("AWS::SQS::Queue")[feed["EventSourceArn"].strip("<>").removesuffix(".Arn")]
    assert 120 // queue["VisibilityTimeout"] >= 5


def _is_of_warnings(feed: dict[str, Any]) -> bool:
    return feed["EventSourceArn"].startswith("<InterruptQueue")  # type: ignore[no-any-return]


def test_a_failed_message_is_reported_alone_and_batches_are_bounded(template: Template) -> None:
    for feed in template.of("AWS::Lambda::EventSourceMapping").values():
        assert feed["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
        assert feed["ScalingConfig"]["MaximumConcurrency"] >= 2


def test_preflight_asks_for_as_many_functions_at_once_as_the_queues_wake(template: Template) -> None:
    assert sum(feed["ScalingConfig"]["MaximumConcurrency"] for feed in _feeds(template)) == NEEDED_CONCURRENCY


def test_every_queue_refuses_what_does_not_come_over_tls(template: Template) -> None:
    refusing = set()
    for policy in template.of("AWS::SQS::QueuePolicy").values():
        for statement in statements(policy["PolicyDocument"]):
            if statement.conditions == {"Bool": {"aws:SecureTransport": "false"}}:
                assert (statement.effect, statement.actions) == ("Deny", ("sqs:*",))
                refusing.update(policy["Queues"])
    assert refusing == {f"<{id}>" for id in template.of("AWS::SQS::Queue")}


def test_somebody_is_told_of_dead_letters_and_of_messages_that_wait(template: Template) -> None:
    watched = {
        (alarm["MetricName"], alarm["Dimensions"][0]["Value"])
        for alarm in template.of("AWS::CloudWatch::Alarm").values()
        if alarm.get("Namespace") == "AWS/SQS"
    }
    for queue, dead_letters in _dead_letters(template).items():
        assert ("ApproximateAgeOfOldestMessage", f"<{queue}.QueueName>") in watched
        assert ("ApproximateNumberOfMessagesVisible", f"<{dead_letters}.QueueName>") in watched
