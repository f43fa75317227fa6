"""Doorbells and heartbeats leave in threads of their own."""

from queue import SimpleQueue

from forwarder.doorbells import PODS, QueuedDoorbell
from forwarder.outgoing import Doorbells, HeartbeatResult, SendJobs, SendResult
from spotwright.errors import Unavailable

NODE = QueuedDoorbell("lifecycle", "node", "n")


class Outside:
    """Queues and table, with what reached them in order; ``broken`` ones raise."""

    def __init__(self, *broken: str) -> None:
        self.broken = broken
        self.log: list[object] = []
        self.results: SimpleQueue[SendResult | HeartbeatResult] = SimpleQueue()
        self.jobs = SendJobs(send=self._send, beat=self._beat, sequence=lambda: 7, report=self.results.put)

    def _send(self, doorbells: Doorbells) -> Doorbells:
        if "queues" in self.broken:
            raise KeyError("a defect")
        self.log.append(doorbells)
        return frozenset()

    def _beat(self, leaving: bool, sequence: int) -> None:
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


def test_an_unforeseen_error_ends_no_thread() -> None:
    outside = Outside("queues")
    for _ in range(2):
        outside.jobs.send(frozenset({PODS, NODE}), heartbeat_first=False)
        assert outside.results.get(timeout=60) == SendResult(frozenset({PODS, NODE}), frozenset({PODS, NODE}))
    outside.jobs.beat(leaving=True)
    assert outside.results.get(timeout=60) == HeartbeatResult(True)
    assert outside.log == [(True, 7)]
