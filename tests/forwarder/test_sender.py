"""Doorbells on their way: batches of ten, refusals, failures; and whose heartbeat is written."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from moto import mock_aws

from forwarder.doorbells import PODS, QueuedDoorbell
from forwarder.epoch import SILENT_SECONDS, Epoch
from forwarder.sender import ATTEMPTS, DoorbellSender, write_heartbeat
from tests.contract import tables


@dataclass
class Queues:
    """An SQS that keeps messages; ``refused`` keys fail so often, ``down`` calls and those to ``silent``
    queues do not answer."""

    messages: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    refused: dict[str, int] = field(default_factory=dict)
    down: int = 0
    silent: set[str] = field(default_factory=set)
    sizes: list[int] = field(default_factory=list)
    urls: list[str] = field(default_factory=list)

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, str]]) -> dict[str, Any]:
        self.sizes.append(len(Entries))
        self.urls.append(QueueUrl)
        if self.down or QueueUrl in self.silent:
            self.down = max(0, self.down - 1)
            raise EndpointConnectionError(endpoint_url=QueueUrl)
        failed = []
        for entry in Entries:
            body = json.loads(entry["MessageBody"])
            if self.refused.get(body["key"], 0):
                self.refused[body["key"]] -= 1
                failed.append({"Id": entry["Id"], "Code": "InternalError", "SenderFault": False})
            else:
                self.messages.setdefault(QueueUrl, []).append(body)
        return {"Failed": failed} if failed else {}


def sender(queues: Queues) -> DoorbellSender:
    urls = {"lifecycle": "l", "provision": "p"}
    return DoorbellSender(queues, cluster="dev", urls=urls, pause=lambda seconds: None)  # type: ignore[arg-type]


def nodes(number: int) -> list[QueuedDoorbell]:
    return [QueuedDoorbell("lifecycle", "node", f"n{one:02}") for one in range(number)]


def test_a_doorbell_is_what_the_functions_expect() -> None:
    queues = Queues()
    assert (
        sender(queues).send([QueuedDoorbell("provision", "pods"), QueuedDoorbell("lifecycle", "node", "n")])
        == frozenset()
    )
    assert queues.messages == {
        "p": [{"schema": 1, "cluster": "dev", "kind": "pods", "key": "", "epoch": 0}],
        "l": [{"schema": 1, "cluster": "dev", "kind": "node", "key": "n", "epoch": 0}],
    }


def test_at_most_ten_in_one_call_and_all_of_them() -> None:
    queues = Queues()
    sender(queues).send(nodes(23))
    assert queues.sizes == [10, 10, 3]
    assert len(queues.messages["l"]) == 23


def test_doorbells_for_pods_do_not_wait_for_a_queue_that_does_not_answer() -> None:
    queues = Queues(silent={"l"})
    assert sender(queues).send([*nodes(200), PODS]) == frozenset(nodes(200))
    assert queues.urls.index("p") == 0
    assert len(queues.messages["p"]) == 1


def test_what_the_queue_refuses_is_sent_again_alone() -> None:
    queues = Queues(refused={"n03": 1})
    assert sender(queues).send(nodes(5)) == frozenset()
    assert queues.sizes == [5, 1]
    assert sorted(one["key"] for one in queues.messages["l"]) == ["n00", "n01", "n02", "n03", "n04"]


def test_what_is_refused_to_the_end_is_handed_back() -> None:
    queues = Queues(refused={"n03": 99})
    assert sender(queues).send(nodes(5)) == {QueuedDoorbell("lifecycle", "node", "n03")}


def test_a_queue_that_does_not_answer_is_tried_a_bounded_number_of_times() -> None:
    queues = Queues(down=99)
    assert sender(queues).send(nodes(2)) == frozenset(nodes(2))
    assert len(queues.sizes) == ATTEMPTS


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    with mock_aws():
        dynamodb = boto3.client("dynamodb", region_name="us-east-1")
        tables.create_table(dynamodb, "table")
        yield dynamodb


def beat(dynamodb: Any, *, epoch: int, ago: float = 0, leaves: bool = False) -> tuple[int, int]:
    """Whose heartbeat there is after that of a forwarder: its epoch, and 0 where it has left."""
    now = time.time() - ago
    write_heartbeat(dynamodb, table="table", cluster="dev", now=now, epoch=Epoch(epoch), sequence=1, leaving=leaves)
    key = {"pk": {"S": "forwarder#dev"}, "sk": {"S": "heartbeat"}}
    item = dynamodb.get_item(TableName="table", Key=key)["Item"]
    return int(item["epoch"]["N"]), int(item["at"]["N"])


def test_of_two_forwarders_the_heartbeats_of_the_younger_stand(table: Any) -> None:
    """It ships the cluster state, of which a heartbeat of another says nothing."""
    assert beat(table, epoch=1)[0] == 1
    younger = beat(table, epoch=2)
    assert younger[0] == 2
    assert beat(table, epoch=1) == younger
    assert beat(table, epoch=1, leaves=True) == younger
    assert beat(table, epoch=2)[0] == 2


@pytest.mark.parametrize("ago", [SILENT_SECONDS + 1, -SILENT_SECONDS - 60])
def test_a_younger_forwarder_that_is_gone_or_has_a_wrong_clock_keeps_no_other_silent(table: Any, ago: float) -> None:
    assert beat(table, epoch=2, ago=ago)[0] == 2
    assert beat(table, epoch=1)[0] == 1


def test_when_the_younger_forwarder_leaves_the_other_goes_on(table: Any) -> None:
    beat(table, epoch=2)
    assert beat(table, epoch=2, leaves=True) == (2, 0)
    assert beat(table, epoch=1)[0] == 1


def test_the_heartbeat_of_a_version_that_named_no_epoch_is_replaced(table: Any) -> None:
    at = {"N": str(int(time.time() * 1000))}
    item = {"pk": {"S": "forwarder#dev"}, "sk": {"S": "heartbeat"}, "schema": {"N": "1"}, "at": at}
    table.put_item(TableName="table", Item=item)
    assert beat(table, epoch=1)[0] == 1
