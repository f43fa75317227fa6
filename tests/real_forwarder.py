"""The forwarder itself in the simulated world: its loop and its rules, in the world's time and at the world's queues.

Watches report what changes in the simulated cluster at once. A second of the world lets everything ring that is due
before the next one. No cluster state is written: the world has one of its own.
"""

from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Any, Final

from forwarder.batching import BatchWindow
from forwarder.doorbells import QueuedDoorbell, pods_first
from forwarder.kinds import WATCHED_KINDS
from forwarder.loop import Loop, Update
from forwarder.object_cache import ObjectCache
from forwarder.outgoing import HeartbeatResult, SendResult
from forwarder.state_shipping import StateShipping
from forwarder.watcher import Bookmark, ListedPage, ListEnd, ObjectChange, WatchUpdate
from spotwright.errors import ApiError
from spotwright.simulation.clock import Clock
from spotwright.simulation.cluster import FakeCluster
from spotwright.simulation.state import FakeDoorbells, FakeState
from spotwright.workflows.ports.doorbells import Doorbell

# Kinds whose changes ring, by their plurals. CapacityBuffers are not among them: the simulated cluster has them as
# they are for a planner, without what they refer to.
RINGING: Final = {
    "nodeclaims": "NodeClaim", "nodes": "Node", "nodepools": "NodePool", "ec2nodeclasses": "EC2NodeClass",
    "nodeoverlays": "NodeOverlay", "pods": "Pod",
}  # fmt: skip
# As settings have it that state nothing.
PODS_WINDOW: Final = BatchWindow(1.0, 10.0)
KINDS: Final = tuple(kind.name for kind in WATCHED_KINDS)
BOOKMARK_SECONDS: Final = 60.0
# What rings when a forwarder starts has rung so long after, and nothing rings a second time before.
START_SECONDS: Final = 3.0
# Within a second of the world; more would be for ever.
MAX_TURNS: Final = 100


class RealForwarder:
    """See simulation.forwarder.Forwarder. A forwarder that was stopped is another one when it runs again."""

    def __init__(self, cluster: FakeCluster, doorbells: FakeDoorbells, state: FakeState, clock: Clock) -> None:
        self._cluster, self._doorbells, self._state, self._clock = cluster, doorbells, state, clock
        self._process: _Process | None = None
        cluster.watch(self._tell)

    def forward(self) -> None:
        now = self._clock.now().timestamp()
        process = self._process or self._start(now)
        process.pass_time(now)

    def stop(self) -> None:
        self._process = None

    def forget(self) -> None:
        """As a forwarder that started some seconds ago, when everything was as it is now."""
        if self._process is None:
            return
        now = self._clock.now().timestamp()
        process = self._start(now - START_SECONDS)
        process.is_silent = True
        process.pass_time(now)
        process.is_silent = False

    def _start(self, now: float) -> "_Process":
        process = self._process = _Process(self._ring, self._beat, now)
        objects = {kind: self._cluster.all(plural) for plural, kind in RINGING.items()}
        for kind in KINDS:
            found = objects.get(kind, ())
            process.tell(ListedPage(kind, found, "0"), now)
            process.tell(ListEnd(kind, frozenset(each.metadata.uid for each in found), "0"), now)
        return process

    def _tell(self, plural: str, uid: str, obj: Any) -> None:
        if self._process is not None and plural in RINGING:
            version = obj.metadata.resource_version if obj is not None else "0"
            change = ObjectChange(RINGING[plural], uid, obj, version)
            self._process.tell(change, self._clock.now().timestamp())

    def _ring(self, doorbells: frozenset[QueuedDoorbell]) -> frozenset[QueuedDoorbell]:
        """Returns those that the queues did not take."""
        failed = set[QueuedDoorbell]()
        for bell in sorted(doorbells, key=pods_first):
            try:
                self._doorbells.ring(bell.queue, [Doorbell(self._cluster.name, bell.kind, bell.key)])
            except ApiError:
                failed.add(bell)
        return frozenset(failed)

    def _beat(self) -> None:
        self._state.heartbeat_at = self._clock.milliseconds()


class _Shipping(StateShipping):
    """The newest state always shows the pods that a doorbell is for."""

    def shows(self, change_number: int) -> bool:
        return True


class _Process:
    """A loop, what its watches have told it, and its time. ``is_silent``: nothing that it sends arrives."""

    def __init__(
        self,
        ring: Callable[[frozenset[QueuedDoorbell]], frozenset[QueuedDoorbell]],
        beat: Callable[[], None],
        now: float,
    ) -> None:
        self.is_silent = False
        self._ring, self._beat = ring, beat
        self._now = self._bookmarked_at = now
        self._told: deque[tuple[float, WatchUpdate]] = deque()
        self._results: deque[Update] = deque()
        cache = ObjectCache()
        self._loop = Loop(
            updates=SimpleQueue(),
            cache=cache,
            shipping=_Shipping(cache, None, cluster="", epoch=0, wall=lambda: datetime.fromtimestamp(self._now, UTC)),
            window=PODS_WINDOW,
            jobs=self,
            watch_scalables=lambda kinds: None,
            clock=lambda: self._now,
            wall=lambda: self._now,
        )

    def tell(self, update: WatchUpdate, at: float) -> None:
        self._told.append((at, update))

    def pass_time(self, now: float) -> None:
        """All that was told, and what is due before the next second."""
        applied_at = 0.0
        while self._told:
            at, update = self._told.popleft()
            if at > applied_at:
                self._send_what_is_due_before(at)
                self._now, applied_at = max(self._now, at), at
            self._loop.apply(update)
        self._now = max(self._now, now)
        if self._now - self._bookmarked_at >= BOOKMARK_SECONDS:
            self._bookmarked_at = self._now
            for kind in KINDS:
                self._loop.apply(Bookmark(kind, "0"))
        self._send()
        self._send_what_is_due_before(now + 1)

    def send(self, doorbells: frozenset[QueuedDoorbell], *, heartbeat_first: bool) -> None:
        """See OutgoingJobs."""
        if heartbeat_first:
            self._write_heartbeat()
        failed = frozenset[QueuedDoorbell]()
        try:
            failed = frozenset() if self.is_silent else self._ring(doorbells)
        finally:
            self._results.append(SendResult(doorbells, failed, heartbeat_first))

    def beat(self, *, leaving: bool) -> None:
        """See OutgoingJobs."""
        self._write_heartbeat()
        self._results.append(HeartbeatResult(written=True))

    def _write_heartbeat(self) -> None:
        if not self.is_silent:
            self._beat()

    def _send_what_is_due_before(self, end: float) -> None:
        for _ in range(MAX_TURNS):
            due = self._loop.next_at()
            if due >= end:
                return
            self._now = max(self._now, due)
            self._send()
        raise RuntimeError("the forwarder rings without end")

    def _send(self) -> None:
        self._loop.send_what_is_due()
        while self._results:
            self._loop.apply(self._results.popleft())
