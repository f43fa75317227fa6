"""Which messages of a queue can be received, and what the queue says of the others."""

import json
import time

import pytest
from moto.sqs.models import Message, SQSBackend

from local.aws.queues import messages


def test_a_queue_counts_what_can_be_received_what_is_hidden_and_what_is_delayed() -> None:
    messages.patch_moto()
    queue = SQSBackend("ap-northeast-2", "123456789012").create_queue("work")
    later = time.time() * 1000 + 60_000
    for name, visible_at, delayed_until in (("ready", 0.0, 0.0), ("received", later, 0.0), ("delayed", 0.0, later)):
        message = Message(name, name)
        message.visible_at, message.delayed_until = visible_at, delayed_until
        queue._messages.append(message)
    assert [message.body for message in queue.messages] == ["ready"]
    assert [message.body for message in queue._messages if message.visible and not message.delayed] == ["ready"]
    assert queue.approximate_number_of_messages == 1
    assert queue.approximate_number_of_messages_not_visible == 1
    assert queue.approximate_number_of_messages_delayed == 1


OLD, NEW = (
    json.dumps({"Statement": [{"Effect": "Allow", "Action": action, "Principal": "*", "Resource": "*"}]})
    for action in ("sqs:SendMessage", "sqs:ReceiveMessage")
)


@pytest.mark.parametrize(
    ("changed", "policy"), [({"VisibilityTimeout": "5"}, OLD), ({"Policy": NEW}, NEW), ({"Policy": ""}, None)]
)
def test_a_queue_keeps_its_policy_when_something_else_is_set(changed: dict[str, str], policy: str | None) -> None:
    """As on AWS: rules could not send any more otherwise."""
    messages.patch_moto()
    queues = SQSBackend("ap-northeast-2", "123456789012")
    queues.create_queue("work", Policy=OLD, VisibilityTimeout="30")
    queue = queues.set_queue_attributes("work", changed)
    assert queue.policy == policy
    visible = queues.get_queue_attributes("work", ["VisibilityTimeout"])
    assert visible == {"VisibilityTimeout": int(changed.get("VisibilityTimeout", 30))}
