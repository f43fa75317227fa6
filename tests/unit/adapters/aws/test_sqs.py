"""Doorbells that SQS refuses of a batch are sent again, which the SDK does not do; the others are not."""

import random
import time
from collections.abc import Iterator
from typing import Any, cast

import msgspec
import pytest

from spotwright.adapters import time_limit
from spotwright.adapters.aws.sqs import SqsDoorbells
from spotwright.errors import Unavailable
from spotwright.workflows.ports.doorbells import Doorbell

CODE = "InternalError"


class Queue:
    """Refuses the doorbells of these keys, each call's in turn."""

    def __init__(self, *refusals: str) -> None:
        self._refusals: Iterator[str] = iter(refusals)
        self.calls: list[str] = []

    def send_message_batch(self, *, QueueUrl: str, Entries: list[dict[str, Any]]) -> dict[str, Any]:
        keys = {entry["Id"]: msgspec.json.decode(entry["MessageBody"], type=Doorbell).key for entry in Entries}
        self.calls.append("".join(keys.values()))
        assert {entry["DelaySeconds"] for entry in Entries} == {3}
        refused = next(self._refusals, "")
        failed = [{"Id": id, "Code": CODE, "Message": "try again"} for id, key in keys.items() if key in refused]
        return {"Failed": failed} if failed else {}


@pytest.fixture(autouse=True)
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Those that were made, each as long as it may be."""
    made = list[float]()
    monkeypatch.setattr(time, "sleep", made.append)
    monkeypatch.setattr(random, "uniform", lambda _, longest: longest)
    return made


def ring(queue: Queue, keys: str) -> None:
    bells = [Doorbell("blue", "claim", key) for key in keys]
    SqsDoorbells(cast("Any", queue), urls={"lifecycle": "url"}).ring("lifecycle", bells, delay_seconds=3)


def test_doorbells_that_are_refused_are_sent_again_without_the_others() -> None:
    queue = Queue("bc", "c")
    ring(queue, "abcd")
    assert queue.calls == ["abcd", "bc", "c"]


def test_pauses_grow_and_none_follows_on_the_last_try(pauses: list[float]) -> None:
    with pytest.raises(Unavailable):
        ring(Queue(*"aaaa"), "a")
    assert pauses == [0.1, 0.4, 1.0]


@pytest.mark.parametrize(("seconds_left", "longest"), [(1.3, 0.3), (0.8, 0.0)])
def test_no_pause_goes_on_until_the_invocation_is_cut_off(
    pauses: list[float], seconds_left: float, longest: float
) -> None:
    """All its messages would come back minutes later, and its process would be lost."""
    with time_limit.invocation_ends_in(seconds_left), pytest.raises(Unavailable):
        ring(Queue(*"aaaa"), "a")
    assert len(pauses) == 3
    assert max(pauses) == pytest.approx(longest, abs=0.1)


def test_each_batch_of_many_doorbells_is_sent() -> None:
    queue = Queue("j")
    ring(queue, "abcdefghijkl")
    assert queue.calls == ["abcdefghij", "j", "kl"]


def test_doorbells_that_are_refused_every_time_are_an_error() -> None:
    queue = Queue(*["b"] * 4)
    with pytest.raises(Unavailable, match="try again") as caught:
        ring(queue, "ab")
    assert caught.value.code == CODE
    assert queue.calls == ["ab", "b", "b", "b"]
