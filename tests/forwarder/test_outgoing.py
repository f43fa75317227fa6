"""Doorbells and heartbeats leave in threads of their own."""

import threading
from queue import Empty, SimpleQueue

import pytest

from forwarder.doorbells import PODS, QueuedDoorbell
from forwarder.outgoing import Doorbells, HeartbeatResult, SendJobs, SendResult
from spotwright.errors import Unavailable

NODE = QueuedDoorbell("lifecycle", "node", "n")


class Outside:
    """Queues and table, with what reached them in order; ``broken`` ones raise."""

    def __init__(self, *broken: str) -> None:
        self.broken = broken
        self.log: list[object] = []
        self.table_answers = threading.Event()
        self.table_answers.set()
        self.results: SimpleQueue[SendResult | HeartbeatResult] = SimpleQueue()
        self.jobs = SendJobs(send=self._send, beat=self._beat, sequence=lambda: 7, report=self.results.put)

    def _send(self, doorbells: Doorbells) -> Doorbells:
        if "queues" in self.broken:
            raise KeyError("a defect")
        self.log.append(doorbells)
        return frozenset()

    def _beat(self, leaving: bool, sequence: int) -> None:
        assert self.table_answers.wait(timeout=60)
        if "table" in self.broken:
            raise Unavailable("no answer")
        self.log.append((leaving, sequence))


def test_a_heartbeat_comes_before_the_doorbells_that_need_it() -> None:
    outside = Outside()
    outside.jobs.send(frozenset({PODS}), heartbeat_first=True)
    assert outside.results.get(timeout=60) == SendResult(frozenset({PODS}), frozenset(), heartbeat_written=True)
    assert outside.log == [(False, 7), frozenset({PODS})]


def test_without_the_table_doorbells_are_sent() -> None:
    outside = Outside("table")
    outside.jobs.send(frozenset({PODS}), heartbeat_first=True)
    assert outside.results.get(timeout=60) == SendResult(frozenset({PODS}), frozenset())
    outside.jobs.beat(leaving=False)
    assert outside.results.get(timeout=60) == HeartbeatResult(False)


def test_doorbells_do_not_wait_for_a_table_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does one heartbeat after the other follow when it answers again: one says all."""
    monkeypatch.setattr("forwarder.outgoing.HEARTBEAT_WAIT_SECONDS", 0.01)
    outside = Outside()
    outside.table_answers.clear()
    outside.jobs.beat(leaving=False)
    for _ in range(20):
        outside.jobs.send(frozenset({PODS}), heartbeat_first=True)
        assert outside.results.get(timeout=30) == SendResult(frozenset({PODS}), frozenset())
    assert outside.log == [frozenset({PODS})] * 20
    outside.jobs.beat(leaving=True)
    outside.table_answers.set()
    assert [outside.results.get(timeout=30) for _ in range(2)] == [HeartbeatResult(True)] * 2
    assert outside.log[20:] == [(False, 7)] * 2 + [(True, 7)]
    with pytest.raises(Empty):
        outside.results.get_nowait()


def test_an_unforeseen_error_ends_no_thread() -> None:
    outside = Outside("queues")
    for _ in range(2):
        outside.jobs.send(frozenset({PODS, NODE}), heartbeat_first=False)
        assert outside.results.get(timeout=60) == SendResult(frozenset({PODS, NODE}), frozenset({PODS, NODE}))
    outside.jobs.beat(leaving=True)
    assert outside.results.get(timeout=60) == HeartbeatResult(True)
    assert outside.log == [(True, 7)]
