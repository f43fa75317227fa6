"""Messages that an earlier version sent, and that wait in the queues when this one is deployed."""

import json
from typing import Any

import msgspec
import pytest

from spotwright.composition import catalog_clients
from spotwright.simulation.world import World
from spotwright.workflows.ports.doorbells import Doorbell
from tests.functions.catalog import fakes
from tests.functions.handlers import Context, failed_messages, load_handler, sqs_event
from tests.stored.recorded import FULL, read_messages, read_stores


def sent_by(*senders: str) -> list[Any]:
    """Queue and body of each message."""
    return [
        pytest.param(message["queue"], message["body"], id=f"{sender}-{message['queue']}-{number}")
        for sender in senders
        for number, message in enumerate(read_messages()[sender])
    ]


@pytest.mark.parametrize(("queue", "body"), sent_by("functions", "forwarder"))
def test_a_doorbell_is_written_as_it_was(queue: str, body: str) -> None:
    assert msgspec.json.encode(msgspec.json.decode(body, type=Doorbell)).decode() == body


@pytest.mark.parametrize(("queue", "body"), sent_by("functions", "forwarder", "schedules"))
def test_the_function_behind_the_queue_takes_a_doorbell(
    world: World, monkeypatch: pytest.MonkeyPatch, queue: str, body: str
) -> None:
    if queue == "catalog":
        account = fakes.CatalogWorld()
        monkeypatch.setattr(catalog_clients, "ports", lambda cluster, environment: account)
    assert failed_messages(load_handler(queue, world).handler(sqs_event([body]), Context())) == []


@pytest.mark.parametrize(("queue", "body"), sent_by("eventbridge"))
def test_a_message_of_eventbridge_becomes_the_notice_that_it_was(world: World, queue: str, body: str) -> None:
    assert failed_messages(load_handler(queue, world).handler(sqs_event([body]), Context())) == []
    (notice,) = world.state.notices()
    (before,) = (
        json.loads(row["body"]["S"])
        for row in read_stores()[FULL].rows
        if row["sk"]["S"] == f"notice#{notice.instance_id}"
    )
    assert (notice.kind, notice.deadline, notice.phase) == (before["kind"], before["deadline"], before["phase"])
