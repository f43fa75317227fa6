"""The forwarder's loop in time that only the test moves, with queues, a table and a store that may fail."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from queue import SimpleQueue

from forwarder.batching import BatchWindow
from forwarder.doorbells import QueuedDoorbell
from forwarder.kinds import WATCHED_KINDS, ClusterObject
from forwarder.loop import Loop, Update
from forwarder.object_cache import ObjectCache
from forwarder.outgoing import HeartbeatResult, SendResult
from forwarder.state_jobs import FullBody, FullBodyResult, StateResult, StateToWrite
from forwarder.state_shipping import PERIOD_SECONDS, StateShipping
from forwarder.watcher import Bookmark, ListedPage, ListEnd, ObjectChange, WatchUpdate
from spotwright.model.cluster_state import ClusterState
from tests.forwarder import objects
from tests.forwarder.objects import decoded

NODE = QueuedDoorbell("lifecycle", "node", "n")


class Writes:
    """Writes the cluster state at once, fails, or takes its time until ``answer``."""

    def __init__(self, updates: SimpleQueue[Update]) -> None:
        self.updates = updates
        self.fail, self.fail_full, self.hang, self.pod_bytes = False, False, False, 10
        self.full: list[ClusterState] = []
        self.states: list[StateToWrite] = []
        self.hanging: list[Update] = []

    def write_full(self, state: ClusterState) -> None:
        self.full.append(state)
        self._report(
            FullBodyResult(None if self.fail or self.fail_full else FullBody(f"state/full-{len(self.full)}", 1000))
        )

    def write_state(self, state: StateToWrite) -> None:
        self.states.append(state)
        self._report(StateResult(state, None if self.fail else self.pod_bytes * len(state.changes.changed.pods)))

    def answer(self) -> None:
        self.hang = False
        while self.hanging:
            self.updates.put(self.hanging.pop(0))

    def _report(self, result: Update) -> None:
        if self.hang:
            self.hanging.append(result)
        else:
            self.updates.put(result)


@dataclass
class Scene:
    """A loop with a clock that stands, a queue that can be told to refuse, and a cluster state that is written.

    ``fraction``: by so much the time of day is further into its second than ``now``.
    """

    now: float = 1000.0
    fraction: float = 0.0
    refuse: bool = False
    hang: bool = False
    hanging: list[SendResult] = field(default_factory=list)
    beats: int = 0
    broken_table: bool = False
    left: bool = False
    scalables: list[frozenset[tuple[str, str]]] = field(default_factory=list)
    sequences: list[tuple[float, int]] = field(default_factory=list)
    sent: list[tuple[float, frozenset[QueuedDoorbell]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        updates: SimpleQueue[Update] = SimpleQueue()
        self.writes, cache = Writes(updates), ObjectCache()
        self.shipping = shipping = StateShipping(
            cache, self.writes, cluster="c", epoch=7, wall=lambda: datetime.fromtimestamp(self.now, UTC)
        )
        self.loop = Loop(
            updates=updates,
            cache=cache,
            shipping=shipping,
            window=BatchWindow(1.0, 10.0),
            jobs=self,
            watch_scalables=self.scalables.append,
            clock=lambda: self.now,
            wall=lambda: self.now + self.fraction,
        )

    def send(self, bells: frozenset[QueuedDoorbell], *, heartbeat_first: bool) -> None:
        """As SendJobs, at once; or, while queues hang, when they ``answer``."""
        written = heartbeat_first and self._beat(leaving=False)
        result = SendResult(bells, bells if self.refuse else frozenset(), written)
        if not self.refuse:
            self.sent.append((self.now, bells))
        if self.hang:
            self.hanging.append(result)
        else:
            self.loop.updates.put(result)

    def answer(self) -> None:
        self.hang = False
        while self.hanging:
            self.loop.updates.put(self.hanging.pop(0))

    def beat(self, *, leaving: bool) -> None:
        self.loop.updates.put(HeartbeatResult(self._beat(leaving=leaving)))

    def _beat(self, *, leaving: bool) -> bool:
        if self.broken_table:
            return False
        self.beats += 1
        self.sequences.append((self.now, self.shipping.sequence))
        self.left = leaving
        return True

    def start(self, **known: ClusterObject) -> "Scene":
        for kind in WATCHED_KINDS:
            self.tell(*listed(kind.name, *([known[kind.name]] if kind.name in known else [])))
        self.pass_time(2 * PERIOD_SECONDS)
        self.sent.clear()
        self.beats = 0
        return self

    def tell(self, *news: WatchUpdate) -> None:
        for one in news:
            self.loop.updates.put(one)
        self.pass_time(0)

    def pass_time(self, seconds: float, step: float = 0.5) -> None:
        """Turn the loop every ``step`` seconds; with bookmarks, as a live API server sends them."""
        for _ in range(max(1, round(seconds / step))):
            self.now += step if seconds else 0
            for kind in WATCHED_KINDS:
                self.loop.updates.put(Bookmark(kind.name, "1"))
            self.loop.run_once()
            while not self.loop.updates.empty():
                self.loop.run_once()

    def rang(self) -> list[QueuedDoorbell]:
        return [bell for _, bells in self.sent for bell in sorted(bells)]


def listed(kind: str, *found: ClusterObject) -> tuple[ListedPage, ListEnd]:
    """A list of all objects of a kind."""
    return ListedPage(kind, found, "1"), ListEnd(kind, frozenset(one.metadata.uid for one in found), "1")


def change(kind: str, uid: str, obj: ClusterObject | None) -> ObjectChange:
    return ObjectChange(kind, uid, obj, "2")


def waiting(name: str = "p") -> ObjectChange:
    return change("Pod", f"uid-{name}", decoded("Pod", objects.pod(name, unschedulable=True)))
