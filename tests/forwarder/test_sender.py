"""Doorbells on their way: batches of ten, refusals, failures."""

import json
from dataclasses import dataclass, field
from typing import Any

from botocore.exceptions import EndpointConnectionError

from forwarder.doorbells import PODS, QueuedDoorbell
from forwarder.sender import ATTEMPTS, DoorbellSender


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
