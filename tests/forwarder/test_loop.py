"""From news to doorbells, in time that only the test moves."""

import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from queue import SimpleQueue

import msgspec
import pytest

from forwarder.batching import BatchWindow
from forwarder.doorbells import PODS, QueuedDoorbell
from forwarder.kinds import WATCHED_KINDS, ClusterObject, decode_manifest
from forwarder.loop import (
    ANSWER_SECONDS,
    HEARTBEAT_SECONDS,
    NODE_SECONDS,
    OPENING_SECONDS,
    POD_EVENT_SECONDS,
    ROOM_SECONDS,
    SHORTEST_DRAIN_SECONDS,
    Loop,
    Update,
)
from forwarder.object_cache import STALE_SECONDS, ObjectCache
from forwarder.outgoing import RESEND_SECONDS, HeartbeatResult, SendResult
from forwarder.pods_doorbell import REPEAT_SECONDS
from forwarder.state_jobs import FullBody, FullBodyResult, StateResult, StateToWrite
from forwarder.state_shipping import OLDEST_FULL_SECONDS, PERIOD_SECONDS, WAIT_SECONDS, StateShipping
from forwarder.watcher import Bookmark, ListedPage, ListEnd, ObjectChange, WatchUpdate
from spotwright.model.cluster_state import ClusterObjects, ClusterState
from spotwright.model.labels import DISRUPTED
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
    """A loop with a clock that stands, a queue that can be told to refuse, and a cluster state that is written."""

    now: float = 1000.0
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


def test_nothing_rings_before_every_kind_is_known() -> None:
    scene = Scene()
    scene.tell(*listed("Pod", decoded("Pod", objects.pod(unschedulable=True))))
    scene.pass_time(20)
    assert scene.sent == []
    assert scene.beats == 0
    for kind in WATCHED_KINDS:
        if kind.name != "Pod":
            scene.tell(*listed(kind.name))
    scene.pass_time(1)
    assert scene.rang() == [PODS]


def test_pods_are_batched_one_second_after_the_last() -> None:
    scene = Scene().start()
    begin = scene.now
    for number in range(4):
        scene.tell(waiting(f"p{number}"))
        scene.pass_time(0.5)
    scene.pass_time(3)
    assert [(at - begin, bells) for at, bells in scene.sent] == [(2.5, frozenset({PODS}))]


def test_pods_that_still_wait_ring_again_every_ten_seconds_until_they_are_placed() -> None:
    scene = Scene().start()
    scene.tell(waiting())
    scene.pass_time(35)
    times = [at for at, _ in scene.sent]
    assert scene.rang() == [PODS] * 4
    assert all(later - earlier == REPEAT_SECONDS for earlier, later in pairwise(times))
    scene.tell(change("Pod", "uid-p", decoded("Pod", objects.pod(node="n"))))
    scene.sent.clear()
    scene.pass_time(30)
    assert scene.sent == []


def test_a_pod_that_was_deleted_rings_no_more() -> None:
    scene = Scene().start()
    scene.tell(waiting(), change("Pod", "uid-p", None))
    scene.pass_time(1)
    scene.sent.clear()
    scene.pass_time(30)
    assert scene.sent == []


def test_pods_coming_and_going_ring_their_node_once_in_ten_seconds() -> None:
    scene = Scene().start(Node=decoded("Node", objects.node()))
    for number in range(40):
        scene.tell(change("Pod", f"uid-{number}", decoded("Pod", objects.pod(str(number), node="n"))))
        scene.pass_time(0.5)
    scene.pass_time(15)
    assert set(scene.rang()) == {NODE}
    times = [at for at, _ in scene.sent]
    assert len(times) == 3
    assert all(later - earlier >= POD_EVENT_SECONDS for earlier, later in pairwise(times))


def test_pods_that_end_ring_a_node_that_is_not_drained_no_more_often() -> None:
    scene = Scene().start(Node=decoded("Node", objects.node()))
    for number in range(40):
        scene.tell(change("Pod", f"uid-{number}", decoded("Pod", objects.pod(str(number), node="n"))))
    scene.pass_time(20)
    scene.sent.clear()
    for number in range(40):
        scene.tell(change("Pod", f"uid-{number}", None))
        scene.pass_time(0.5)
    times = [at for at, _ in scene.sent]
    assert len(times) == 2
    assert all(later - earlier >= POD_EVENT_SECONDS for earlier, later in pairwise(times))


def test_a_node_that_is_written_again_and_again_rings_at_once_and_then_once_a_second() -> None:
    scene = Scene().start(Node=decoded("Node", objects.node(ready=False)))
    begin = scene.now
    for number in range(20):
        scene.tell(change("Node", "uid-n", decoded("Node", objects.node(ready=number % 2 == 0))))
        scene.pass_time(0.1, step=0.1)
    scene.tell(change("Pod", "uid-p", decoded("Pod", objects.pod(node="n"))))
    scene.pass_time(5, step=0.1)
    assert set(scene.rang()) == {NODE}
    times = [at - begin for at, _ in scene.sent]
    assert times[0] <= 0.2
    assert len(times) == 4
    assert all(later - earlier == pytest.approx(NODE_SECONDS) for earlier, later in pairwise(times))


JOINED = ("karpenter.sh/unregistered", "node.kubernetes.io/not-ready")


@pytest.mark.parametrize(("opens_after", "rings_after"), [(0.7, 0.7), (60, OPENING_SECONDS)])
def test_a_node_that_joins_ready_rings_once_when_its_taints_are_off_and_does_not_wait_for_that_for_long(
    opens_after: float, rings_after: float
) -> None:
    scene = Scene().start()
    begin = scene.now
    scene.tell(change("Node", "uid-n", decoded("Node", objects.node(taints=JOINED))))
    scene.pass_time(min(opens_after, 5), step=0.1)
    if opens_after < 5:
        scene.tell(change("Node", "uid-n", decoded("Node", objects.node(taints=JOINED[:1]))))
    scene.pass_time(3, step=0.1)
    assert set(scene.rang()) == {NODE}
    assert [at - begin for at, _ in scene.sent] == pytest.approx([rings_after], abs=0.25)


def test_a_node_that_joins_before_it_is_ready_rings_at_once() -> None:
    scene = Scene().start()
    begin = scene.now
    scene.tell(change("Node", "uid-n", decoded("Node", objects.node(ready=False, taints=JOINED))))
    scene.pass_time(3, step=0.1)
    assert [at - begin for at, _ in scene.sent] == pytest.approx([0], abs=0.25)


def test_a_ready_node_that_is_not_ours_to_open_rings_at_once() -> None:
    scene = Scene().start()
    begin = scene.now
    scene.tell(change("Node", "uid-n", decoded("Node", objects.node(taints=JOINED[1:]))))
    scene.pass_time(3, step=0.1)
    assert [at - begin for at, _ in scene.sent] == pytest.approx([0], abs=0.25)


def test_a_node_that_becomes_ready_does_not_ring_before_its_taints_are_off() -> None:
    scene = Scene().start(Node=decoded("Node", objects.node(ready=False, taints=JOINED)))
    scene.pass_time(5)
    scene.sent.clear()
    scene.tell(change("Node", "uid-n", decoded("Node", objects.node(taints=JOINED))))
    scene.pass_time(3, step=0.1)
    assert not scene.sent


def test_a_node_that_is_drained_is_looked_at_when_its_pods_have_ended_and_the_shortest_drain_is_over() -> None:
    pods = {name: objects.pod(name, node="n") for name in "abc"}
    scene = Scene().start(Node=decoded("Node", objects.node()))
    for name, pod in pods.items():
        scene.tell(change("Pod", f"uid-{name}", decoded("Pod", pod)))
    scene.pass_time(20)
    scene.sent.clear()
    begin = scene.now
    scene.tell(change("Node", "uid-n", decoded("Node", objects.node(taints=(DISRUPTED,)))))
    for name in pods:
        scene.tell(change("Pod", f"uid-{name}", decoded("Pod", objects.pod(name, node="n", deleting=True))))
    scene.pass_time(1, step=0.1)
    scene.tell(change("Pod", "uid-a", None))
    scene.tell(change("Pod", "uid-b", None))
    scene.pass_time(9, step=0.1)
    scene.tell(change("Pod", "uid-c", None))
    scene.pass_time(9, step=0.1)
    assert set(scene.rang()) == {NODE}
    assert [at - begin for at, _ in scene.sent] == pytest.approx([SHORTEST_DRAIN_SECONDS, 10], abs=0.5)


CLOSED = decoded("Node", objects.node(taints=(DISRUPTED,)))
BOUND = decoded("Pod", objects.pod(node="n"))


def test_a_forwarder_that_starts_in_the_middle_of_a_drain_rings_for_the_end_of_its_pods() -> None:
    scene = Scene().start(Node=CLOSED, Pod=BOUND)
    scene.pass_time(20)
    scene.sent.clear()
    begin = scene.now
    scene.tell(change("Pod", "uid-p", None))
    scene.pass_time(9, step=0.1)
    assert set(scene.rang()) == {NODE}
    assert [at - begin for at, _ in scene.sent] == pytest.approx([0], abs=0.5)


def test_pods_of_a_drained_node_that_ended_unseen_ring_when_they_are_listed_again() -> None:
    scene = Scene().start(Node=CLOSED, Pod=BOUND)
    scene.pass_time(20)
    scene.sent.clear()
    scene.tell(*listed("Pod"))
    scene.pass_time(2)
    assert scene.rang() == [NODE]


def test_a_node_whose_taint_was_taken_back_rings_for_the_pods_that_come_to_it() -> None:
    scene = Scene().start(Node=CLOSED)
    scene.tell(change("Pod", "uid-p", BOUND))
    scene.pass_time(20)
    assert scene.sent == [], "nobody waits for a pod that comes to a node that is drained"
    scene.tell(change("Node", "uid-n", decoded("Node", objects.node())))
    scene.pass_time(20)
    scene.sent.clear()
    scene.tell(change("Pod", "uid-q", decoded("Pod", objects.pod("q", node="n"))))
    scene.pass_time(2)
    assert scene.rang() == [NODE]


def test_a_node_that_was_made_anew_while_its_watch_was_broken_rings_for_its_pods() -> None:
    scene = Scene().start(Node=decoded("Node", objects.node()))
    manifest = objects.node()
    manifest["metadata"]["uid"] = "uid-of-the-next"
    scene.tell(*listed("Node", decoded("Node", manifest)))
    scene.pass_time(20)
    scene.sent.clear()
    scene.tell(change("Pod", "uid-p", BOUND))
    scene.pass_time(2)
    assert scene.rang() == [NODE]
    scene.tell(*listed("Node"))
    scene.pass_time(20)
    scene.sent.clear()
    scene.tell(change("Pod", "uid-q", decoded("Pod", objects.pod("q", node="n"))))
    scene.pass_time(20)
    assert scene.sent == [], "the node is gone"


def test_pods_on_nodes_of_others_ring_nothing() -> None:
    scene = Scene().start(Node=decoded("Node", objects.node(pool="")))
    scene.tell(change("Pod", "uid-p", decoded("Pod", objects.pod(node="n"))))
    scene.pass_time(20)
    assert scene.sent == []


def test_a_restart_rings_nothing_for_pods_that_sit_where_they_sat() -> None:
    scene = Scene().start(Node=decoded("Node", objects.node()), Pod=decoded("Pod", objects.pod(node="n")))
    scene.pass_time(20)
    assert scene.sent == []


def test_a_new_list_rings_only_for_what_differs() -> None:
    scene = Scene().start(NodeClaim=decoded("NodeClaim", objects.claim(node_name="n")))
    scene.tell(*listed("NodeClaim", decoded("NodeClaim", objects.claim(node_name="n"))))
    scene.pass_time(2)
    assert scene.sent == []
    scene.tell(*listed("NodeClaim", decoded("NodeClaim", objects.claim(node_name="n", deleting=True))))
    scene.pass_time(2)
    assert scene.rang() == [QueuedDoorbell("lifecycle", "claim", "c")]


def test_doorbells_that_no_queue_takes_are_tried_again_and_stop_the_heartbeat() -> None:
    scene = Scene().start()
    scene.refuse = True
    scene.tell(change("Node", "uid-n", decoded("Node", objects.node())))
    scene.pass_time(HEARTBEAT_SECONDS + 1)
    beats = scene.beats
    scene.pass_time(2 * HEARTBEAT_SECONDS)
    assert scene.beats == beats
    scene.refuse = False
    scene.pass_time(RESEND_SECONDS + 1)
    assert scene.rang() == [NODE]
    scene.pass_time(HEARTBEAT_SECONDS)
    assert scene.beats > beats


TEN_MINUTES = 600


def node(number: int) -> ObjectChange:
    """A node that lifecycle has something to do for."""
    return change("Node", f"uid-{number}", decoded("Node", objects.node(f"n-{number}", ready=False)))


def rung_nodes(scene: Scene) -> set[str]:
    return {bell.key for bell in scene.rang() if bell.kind == "node"}


def test_no_doorbell_is_lost_while_queues_refuse_for_ten_minutes() -> None:
    scene = Scene().start()
    scene.refuse = True
    for number in range(TEN_MINUTES // 10):
        scene.tell(node(number), waiting(f"p-{number}"))
        scene.pass_time(10)
    scene.beats = 0
    scene.pass_time(2 * HEARTBEAT_SECONDS)
    assert (scene.rang(), scene.beats) == ([], 0)
    scene.refuse = False
    scene.pass_time(RESEND_SECONDS + HEARTBEAT_SECONDS)
    assert rung_nodes(scene) == {f"n-{number}" for number in range(TEN_MINUTES // 10)}
    assert PODS in scene.rang()
    assert scene.beats


def test_updates_are_taken_while_a_queue_does_not_answer() -> None:
    """One attempt is under way, what comes meanwhile follows it, and the sweep polls since there is no heartbeat."""
    scene = Scene().start()
    scene.hang = True
    scene.tell(node(0))
    for number in range(1, TEN_MINUTES // 10):
        scene.pass_time(10)
        scene.tell(node(number))
    assert len(scene.loop.cache.nodes()) == TEN_MINUTES // 10
    assert scene.loop.counters.last_turn_at == scene.now
    assert rung_nodes(scene) == {"n-0"}
    beats = scene.beats
    scene.pass_time(2 * ANSWER_SECONDS)
    assert scene.beats == beats
    scene.answer()
    scene.pass_time(HEARTBEAT_SECONDS + 1)
    assert rung_nodes(scene) == {f"n-{number}" for number in range(TEN_MINUTES // 10)}
    assert scene.beats > beats


def test_what_exceeds_the_memory_for_doorbells_rings_as_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nodes come and go while no queue answers: those that are there in the end ring."""
    monkeypatch.setattr("forwarder.outgoing.MAXIMUM_KEPT", 20)
    scene = Scene().start()
    scene.refuse = True
    for number in range(50):
        gone = [change("Node", f"uid-{number - 10}", None)] if number >= 10 else []
        scene.tell(node(number), *gone)
        scene.pass_time(1)
        assert scene.loop.outgoing.kept <= 20
    scene.refuse = False
    scene.pass_time(3 * RESEND_SECONDS)
    assert rung_nodes(scene) >= {f"n-{number}" for number in range(40, 50)}


def test_doorbells_for_pods_are_not_behind_many_others() -> None:
    scene = Scene().start()
    scene.hang = True
    scene.tell(node(0))
    scene.pass_time(1)
    scene.tell(*(node(number) for number in range(1, 1000)), waiting())
    scene.pass_time(5)
    scene.answer()
    scene.pass_time(1)
    assert PODS in scene.sent[1][1]
    assert len(rung_nodes(scene)) == 1000


def test_the_heart_beats_while_the_cluster_is_seen_and_survives_a_missing_table() -> None:
    scene = Scene().start()
    scene.pass_time(4 * HEARTBEAT_SECONDS)
    assert scene.beats in (4, 5)
    scene.broken_table = True
    scene.pass_time(2 * HEARTBEAT_SECONDS)
    scene.broken_table = False
    scene.pass_time(HEARTBEAT_SECONDS)
    assert scene.beats in (5, 6)


def test_a_kind_that_falls_silent_stops_the_heartbeat() -> None:
    scene = Scene().start()
    scene.now += STALE_SECONDS + 1
    for kind in WATCHED_KINDS[1:]:
        scene.loop.updates.put(Bookmark(kind.name, "1"))
    before = scene.beats
    scene.loop.run_once()
    assert scene.beats == before
    assert not scene.loop.cache.is_synced(scene.now)


def test_a_new_list_is_no_contact_before_its_end() -> None:
    """What was deleted is not known before."""
    scene = Scene().start()
    scene.now += STALE_SECONDS + 1
    for kind in WATCHED_KINDS:
        scene.loop.updates.put(ListedPage("Node", (), "2") if kind.name == "Node" else Bookmark(kind.name, "1"))
    scene.loop.run_once()
    assert not scene.loop.cache.is_synced(scene.now)
    scene.loop.updates.put(ListEnd("Node", frozenset(), "2"))
    scene.loop.run_once()
    assert scene.loop.cache.is_synced(scene.now)


def test_pods_that_wait_while_a_kind_is_silent_make_no_heartbeat() -> None:
    """It would name the last state, which the silent kind may have outgrown, as the newest."""
    scene = Scene().start()
    scene.now += STALE_SECONDS + 1
    scene.loop.run_once()
    scene.loop.updates.put(waiting())
    for _ in range(100):
        scene.now += 0.5
        scene.loop.run_once()
    assert PODS in scene.rang()
    assert scene.beats == 0


def test_what_waits_at_the_end_is_sent() -> None:
    scene = Scene().start()
    scene.loop.updates.put(waiting())
    scene.loop.run_once()
    stopping = threading.Event()
    stopping.set()
    scene.loop.run(stopping)
    assert scene.rang() == [PODS]


def test_a_forwarder_that_leaves_says_so_after_its_last_doorbells() -> None:
    scene = Scene().start()
    scene.tell(change("Node", "n", None))
    stopping = threading.Event()
    stopping.set()
    scene.loop.run(stopping)
    assert scene.left


def buffer(replicas: int = 2, **status: object) -> ObjectChange:
    """A CapacityBuffer of namespace default for the Deployment web; ``status`` as the functions write it."""
    metadata = {"name": "spare", "namespace": "default", "uid": "uid-spare"}
    spec = {"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}, "replicas": replicas}
    fields = {"metadata": metadata, "spec": spec, "status": status}
    return change("CapacityBuffer", "uid-spare", decoded("CapacityBuffer", fields))


def deployment(cpu: str = "1", replicas: int = 3) -> ObjectChange:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    fields = {
        "metadata": {"name": "web", "namespace": "default", "uid": "uid-web"},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": containers}}},
    }
    return change("Deployment default", "uid-web", decode_manifest(msgspec.Raw(msgspec.json.encode(fields))))


def with_buffer() -> Scene:
    """A buffer and its Deployment are known."""
    scene = Scene().start()
    scene.tell(buffer())
    scene.tell(*listed("Deployment default"), deployment())
    scene.pass_time(5)
    scene.sent.clear()
    return scene


def test_a_capacity_buffer_rings_at_once_and_what_it_refers_to_is_watched() -> None:
    scene = Scene().start()
    scene.tell(buffer())
    scene.pass_time(2)
    assert scene.rang() == [PODS]
    assert scene.scalables[-1] == {("Deployment", "default")}
    assert not scene.loop.cache.is_synced(scene.now)
    scene.tell(*listed("Deployment default"))
    assert scene.loop.cache.is_synced(scene.now)


@pytest.mark.parametrize(("told", "rings"), [
    (buffer(replicas=5), True),
    (deployment(cpu="2"), True),
    (deployment(replicas=4), True),
    (deployment(), False),
    (buffer(replicas=2, conditions=[{"type": "ReadyForProvisioning", "status": "True"}]), False),
    (change("CapacityBuffer", "uid-spare", None), True),
])  # fmt: skip
def test_what_a_capacity_buffer_asks_for_rings(told: ObjectChange, rings: bool) -> None:
    """Its status, which the functions write, rings nothing."""
    scene = with_buffer()
    scene.tell(told)
    scene.pass_time(2)
    assert scene.rang() == ([PODS] if rings else [])


NODE_OF_POOL = change("Node", "uid-n", decoded("Node", objects.node()))


@pytest.mark.parametrize("told", [
    pytest.param(change("Pod", "uid-p", decoded("Pod", objects.pod(node="n"))), id="a pod took room"),
    pytest.param(change("Node", "uid-n", decoded("Node", objects.node(taints=("a",)))), id="a node was tainted"),
    pytest.param(change("Node", "uid-n", None), id="a node went"),
    pytest.param(change("NodeClaim", "uid-c", decoded("NodeClaim", objects.claim(decided=True))), id="a node comes"),
])  # fmt: skip
def test_room_that_a_capacity_buffer_may_have_lost_or_won_rings(told: ObjectChange) -> None:
    """No pod waits then; only a plan shows whether the buffer still has its capacity."""
    scene = with_buffer()
    scene.tell(NODE_OF_POOL)
    scene.pass_time(2 * ROOM_SECONDS)
    scene.sent.clear()
    scene.tell(told)
    scene.pass_time(3)
    assert PODS in scene.rang()


def test_without_a_capacity_buffer_room_rings_for_no_plan() -> None:
    scene = Scene().start(Node=decoded("Node", objects.node()))
    scene.tell(change("Pod", "uid-p", decoded("Pod", objects.pod(node="n"))))
    scene.tell(change("Node", "uid-n", None))
    scene.pass_time(20)
    assert PODS not in scene.rang()


def test_much_that_moves_beside_a_capacity_buffer_rings_for_few_plans() -> None:
    scene = with_buffer()
    scene.tell(NODE_OF_POOL)
    scene.pass_time(2 * ROOM_SECONDS)
    scene.sent.clear()
    for number in range(60):
        scene.tell(change("Pod", f"uid-{number}", decoded("Pod", objects.pod(str(number), node="n"))))
        scene.pass_time(0.5)
    scene.pass_time(2 * ROOM_SECONDS)
    times = [at for at, bells in scene.sent if PODS in bells]
    assert 30 / ROOM_SECONDS <= len(times) <= 30 / ROOM_SECONDS + 2
    assert all(later - earlier >= ROOM_SECONDS for earlier, later in pairwise(times))


def test_what_no_capacity_buffer_refers_to_is_watched_no_more() -> None:
    scene = with_buffer()
    scene.tell(change("CapacityBuffer", "uid-spare", None))
    assert scene.scalables[-1] == frozenset()
    scene.now += STALE_SECONDS + 1
    scene.pass_time(0.5)
    assert scene.loop.cache.is_synced(scene.now)


# The cluster state


def test_the_first_state_has_all_objects_and_how_current_they_are() -> None:
    scene = Scene().start(Node=decoded("Node", objects.node()), Pod=decoded("Pod", objects.pod(node="n")))
    (full,) = scene.writes.full
    assert [node.name for node in full.objects.nodes] == ["n"]
    assert [pod.key for pod in full.objects.pods] == ["default/p"]
    assert set(full.kinds) == {kind.name for kind in WATCHED_KINDS}
    (state,) = scene.writes.states
    assert (state.sequence, state.full.key) == (1, "state/full-1")
    assert state.changes.changed == ClusterObjects()


def test_nothing_is_written_before_every_kind_is_known_nor_while_a_kind_is_silent() -> None:
    scene = Scene()
    scene.tell(*listed("Pod"))
    scene.pass_time(2 * PERIOD_SECONDS)
    assert scene.writes.full == []
    scene = Scene().start()
    scene.now += STALE_SECONDS + 1
    scene.loop.updates.put(change("Node", "uid-n", decoded("Node", objects.node())))
    scene.loop.run_once()
    assert len(scene.writes.states) == 1


def test_changes_are_written_at_most_every_ten_seconds_and_only_when_there_are_some() -> None:
    scene = Scene().start()
    scene.pass_time(60)
    assert len(scene.writes.states) == 1
    begin = scene.now
    for number in range(50):
        scene.tell(change("Pod", f"uid-{number}", decoded("Pod", objects.pod(str(number), node="n"))))
        scene.pass_time(0.5)
    scene.pass_time(20)
    taken = [state.taken.timestamp() - begin for state in scene.writes.states[1:]]
    assert len(taken) == 4
    assert all(later - earlier >= PERIOD_SECONDS for earlier, later in pairwise(taken))
    assert len(scene.writes.states[-1].changes.changed.pods) == 50


def test_a_doorbell_for_pods_comes_after_the_state_that_shows_them() -> None:
    scene = Scene().start()
    scene.tell(change("Node", "uid-n", decoded("Node", objects.node())))
    scene.sent.clear()
    scene.tell(waiting())
    scene.pass_time(1.5)
    assert PODS in scene.rang()
    state = scene.writes.states[-1]
    assert [pod.key for pod in state.changes.changed.pods] == ["default/p"]
    assert scene.loop.pods.late == 0


def test_finished_pods_and_deleted_objects_are_gone() -> None:
    scene = Scene().start(Pod=decoded("Pod", objects.pod(node="n")), Node=decoded("Node", objects.node()))
    scene.tell(change("Pod", "uid-p", decoded("Pod", objects.pod(node="n", phase="Succeeded"))))
    scene.tell(change("Node", "uid-n", None))
    scene.pass_time(PERIOD_SECONDS + 1)
    assert scene.writes.states[-1].changes.gone == {"Pod": ("uid-p",), "Node": ("uid-n",)}


def test_a_slow_store_delays_a_doorbell_by_a_second_and_another_follows_when_it_answers() -> None:
    scene = Scene().start()
    scene.writes.hang = True
    begin = scene.now
    scene.tell(waiting())
    scene.pass_time(3, step=0.25)
    assert [at - begin for at, _ in scene.sent] == [1.0 + WAIT_SECONDS]
    assert scene.loop.pods.late == 1
    # Planners must not trust an earlier state meanwhile.
    assert scene.sequences[-1][1] == scene.writes.states[-1].sequence
    scene.writes.answer()
    scene.pass_time(0.5)
    assert scene.rang() == [PODS, PODS]


def test_while_the_store_hangs_doorbells_do_not_wait_again() -> None:
    scene = Scene().start()
    scene.writes.hang = True
    scene.tell(waiting())
    scene.pass_time(5)
    begin = scene.now
    scene.sent.clear()
    scene.tell(waiting("other"))
    scene.pass_time(1.5, step=0.25)
    assert [at - begin for at, _ in scene.sent] == [1.0]


def test_without_a_store_doorbells_ring_and_the_heartbeat_names_a_state_that_is_not_there() -> None:
    scene = Scene().start()
    written = scene.loop.shipping.sequence
    scene.writes.fail = True
    begin = scene.now
    scene.tell(waiting())
    scene.pass_time(2, step=0.25)
    assert scene.sent[0][0] - begin < 1.0 + WAIT_SECONDS
    assert scene.loop.shipping.failures
    assert [sequence for at, sequence in scene.sequences if at <= scene.sent[0][0]][-1] > written
    scene.writes.fail = False
    scene.pass_time(60)
    assert scene.loop.shipping.shows(scene.loop.cache.changes.number)


def bound(name: str) -> ObjectChange:
    return change("Pod", f"uid-{name}", decoded("Pod", objects.pod(name, node="n")))


def test_large_changes_make_another_full_body_and_what_changed_meanwhile_is_not_lost() -> None:
    scene = Scene().start()
    scene.writes.pod_bytes = 40_000
    scene.tell(bound("a"), bound("b"))
    scene.writes.hang = True
    scene.pass_time(PERIOD_SECONDS + 1)
    (result,) = scene.writes.hanging
    assert isinstance(result, StateResult)
    scene.writes.answer()
    scene.writes.hang = True
    scene.pass_time(1)
    assert [pod.metadata.name for pod in scene.writes.full[-1].objects.pods] == ["a", "b"]
    scene.tell(bound("c"))
    scene.writes.answer()
    scene.pass_time(2 * PERIOD_SECONDS)
    state = scene.writes.states[-1]
    assert state.full.key == "state/full-2"
    assert [pod.metadata.name for pod in state.changes.changed.pods] == ["c"]


def test_a_full_body_that_could_not_be_stored_changes_nothing() -> None:
    scene = Scene().start()
    scene.writes.pod_bytes = 40_000
    scene.tell(bound("a"), bound("b"))
    scene.writes.fail = True
    scene.pass_time(60)
    scene.tell(bound("c"))
    scene.pass_time(60)
    scene.writes.fail = False
    scene.pass_time(60)
    state, full = scene.writes.states[-1], scene.writes.full[-1]
    held = {pod.metadata.name for pod in (*full.objects.pods, *state.changes.changed.pods)}
    assert (held, state.full.key) == ({"a", "b", "c"}, f"state/full-{len(scene.writes.full)}")
    assert scene.loop.shipping.shows(scene.loop.cache.changes.number)


def test_while_no_full_body_can_be_stored_changes_of_the_earlier_one_go_on() -> None:
    scene = Scene().start()
    scene.writes.pod_bytes, scene.writes.fail_full = 40_000, True
    scene.tell(bound("a"), bound("b"))
    scene.pass_time(60)
    scene.tell(bound("c"))
    scene.pass_time(60)
    assert len(scene.writes.full) > 2
    state = scene.writes.states[-1]
    assert state.full.key == "state/full-1"
    assert {pod.metadata.name for pod in state.changes.changed.pods} == {"a", "b", "c"}


def test_a_quiet_cluster_writes_its_bodies_anew_before_they_expire() -> None:
    scene = Scene().start()
    scene.now += OLDEST_FULL_SECONDS
    scene.pass_time(2)
    assert len(scene.writes.full) == 2
    assert scene.writes.states[-1].full.key == "state/full-2"


def test_a_capacity_buffer_is_written_with_what_it_refers_to() -> None:
    scene = with_buffer()
    scene.tell(deployment(cpu="3"))
    scene.pass_time(2)
    (spare,) = scene.writes.states[-1].changes.changed.capacity_buffers
    assert spare.template_pod is not None
    assert spare.template_pod.requests["cpu"] == 3000
    scene.tell(change("CapacityBuffer", "uid-spare", None))
    scene.pass_time(2)
    assert scene.writes.states[-1].changes.gone["CapacityBuffer"] == ("uid-spare",)
