"""Doorbells in the queues of the local AWS: whose they are stands beside what they say."""

import itertools
from typing import Any, Final

import pytest

from forwarder.doorbells import QueuedDoorbell
from forwarder.sender import DoorbellSender
from spotwright.adapters.aws.sqs import SqsDoorbells
from spotwright.workflows.ports.doorbells import Doorbell
from tests.contract.conftest import LocalAws

NAMES: Final = (f"doorbells-{number}" for number in itertools.count())


@pytest.fixture
def sqs(local_aws: LocalAws) -> Any:
    return local_aws.client("sqs")


def groups(sqs: Any, url: str) -> list[str]:
    """The message groups of what is in the queue."""
    answer = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["MessageGroupId"])
    return sorted(message["Attributes"]["MessageGroupId"] for message in answer.get("Messages", ()))


def test_doorbells_of_functions_are_grouped_by_cluster(sqs: Any) -> None:
    url = sqs.create_queue(QueueName=next(NAMES))["QueueUrl"]
    bells = [Doorbell("blue", "pods"), Doorbell("green", "pods"), Doorbell("blue", "pods", epoch=1)]
    SqsDoorbells(sqs, urls={"provision": url}).ring("provision", bells)
    assert groups(sqs, url) == ["blue", "blue", "green"]


def test_doorbells_of_a_forwarder_are_grouped_by_its_cluster(sqs: Any) -> None:
    url = sqs.create_queue(QueueName=next(NAMES))["QueueUrl"]
    sender = DoorbellSender(sqs, cluster="blue", urls={"provision": url})
    assert not sender.send([QueuedDoorbell("provision", "pods", "")])
    assert groups(sqs, url) == ["blue"]
