"""What rings for which change, and when, in time that only the test moves."""

from itertools import pairwise
from queue import SimpleQueue
from threading import Event

import msgspec
import pytest

from forwarder.doorbells import PODS, QueuedDoorbell
from forwarder.kinds import WATCHED_KINDS, ClusterObject, decode_manifest
from forwarder.loop import (
    BOUND_WINDOW,
    NODE_SECONDS,
    OPENING_SECONDS,
    OTHER_WINDOW,
    POD_EVENT_SECONDS,
    ROOM_SECONDS,
    SHORTEST_DRAIN_SECONDS,
    Update,
)
from forwarder.object_cache import STALE_SECONDS
from forwarder.pods_doorbell import REPEAT_SECONDS
from forwarder.watcher import ObjectChange
from spotwright.model.labels import DISRUPTED
from tests.forwarder import objects
from tests.forwarder.objects import decoded
from tests.forwarder.scene import NODE, Scene, change, listed, waiting

CLOSED = decoded("Node", objects.node(taints=(DISRUPTED,)))
BOUND = decoded("Pod", objects.pod(node="n"))


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
    assert len(times) == 2
    assert all(later - earlier >= POD_EVENT_SECONDS for earlier, later in pairwise(times))


def test_pods_that_come_to_a_node_ring_it_together() -> None:
    scene = Scene().start(Node=decoded("Node", objects.node()))
    for number in range(4):
        last = scene.now
        scene.tell(change("Pod", f"uid-{number}", decoded("Pod", objects.pod(str(number), node="n"))))
        scene.pass_time(1)
    scene.pass_time(20)
    assert scene.rang() == [NODE]
    assert scene.sent[0][0] - last == pytest.approx(BOUND_WINDOW.idle_seconds, abs=0.6)


@pytest.mark.parametrize(("others", "seconds"), [(4, 4 + BOUND_WINDOW.idle_seconds), (30, BOUND_WINDOW.max_seconds)])
def test_a_node_to_which_a_pod_came_rings_when_no_other_pod_comes_anywhere_but_not_much_later(
    others: int, seconds: float
) -> None:
    """While a hundred nodes join, the steps that let pods on them come before those that note what came."""
    another = objects.node(name="another")
    scene = Scene().start(Node=decoded("Node", objects.node()))
    scene.tell(change("Node", "uid-another", decoded("Node", another)))
    scene.pass_time(5)
    begin = scene.now
    scene.tell(change("Pod", "uid", decoded("Pod", objects.pod("first", node="n"))))
    for number in range(others):
        scene.pass_time(1)
        scene.tell(change("Pod", f"uid-{number}", decoded("Pod", objects.pod(str(number), node="another"))))
    scene.pass_time(20)
    (rang,) = [at for at, bells in scene.sent if NODE in bells]
    assert rang - begin == pytest.approx(seconds, abs=0.6)


def test_a_pod_that_goes_rings_its_node_at_once_also_where_others_have_just_come() -> None:
    scene = Scene().start(Node=decoded("Node", objects.node()))
    for number in range(2):
        scene.tell(change("Pod", f"uid-{number}", decoded("Pod", objects.pod(str(number), node="n"))))
    scene.pass_time(1)
    scene.tell(change("Pod", "uid-0", None))
    scene.pass_time(1)
    assert scene.rang() == [NODE]
    scene.pass_time(20)
    assert scene.rang() == [NODE], "that step has seen those that came"


@pytest.mark.parametrize(("came_after", "rings_after"), [(1, POD_EVENT_SECONDS), (9, 9 + BOUND_WINDOW.idle_seconds)])
def test_a_pod_that_comes_to_a_node_that_has_just_rung_waits_for_others_and_until_ten_seconds_are_over(
    came_after: float, rings_after: float
) -> None:
    scene = Scene().start(Node=decoded("Node", objects.node()))
    scene.tell(change("Pod", "uid-a", decoded("Pod", objects.pod("a", node="n"))))
    scene.tell(change("Pod", "uid-a", None))
    begin = scene.now
    scene.pass_time(came_after)
    scene.tell(change("Pod", "uid-b", decoded("Pod", objects.pod("b", node="n"))))
    scene.pass_time(20)
    assert scene.rang() == [NODE, NODE]
    assert scene.sent[-1][0] - begin == pytest.approx(rings_after, abs=0.6)


def test_a_pod_that_comes_while_a_node_still_has_to_wait_waits_for_others_all_the_same() -> None:
    scene = Scene().start(Node=decoded("Node", objects.node()))
    scene.tell(change("Node", "uid-another", decoded("Node", objects.node(name="another"))))
    scene.tell(change("Pod", "uid-a", decoded("Pod", objects.pod("a", node="n"))))
    scene.tell(change("Pod", "uid-a", None))
    scene.pass_time(1)
    scene.tell(change("Pod", "uid-b", decoded("Pod", objects.pod("b", node="n"))))
    scene.pass_time(8.5)
    scene.sent.clear()
    begin = scene.now
    scene.tell(change("Pod", "uid-c", decoded("Pod", objects.pod("c", node="another"))))
    scene.pass_time(20)
    (rang,) = [at for at, bells in scene.sent if QueuedDoorbell("lifecycle", "node", "another") in bells]
    assert rang - begin == pytest.approx(BOUND_WINDOW.idle_seconds, abs=0.6)


class Silence(SimpleQueue[Update]):
    """Updates of which none comes while the loop waits for one: it waits to the end."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene

    def get(self, block: bool = True, timeout: float | None = None) -> Update:
        if self.empty():
            self.scene.now += timeout or 0
        return self.get_nowait()


@pytest.mark.parametrize(("told", "seconds"), [
    (change("NodeClaim", "uid-c", decoded("NodeClaim", objects.claim())), OTHER_WINDOW.idle_seconds),
    (change("Pod", "uid-p", BOUND), BOUND_WINDOW.idle_seconds + OTHER_WINDOW.idle_seconds),
])  # fmt: skip
def test_the_loop_waits_for_updates_no_longer_than_until_the_next_doorbell(told: ObjectChange, seconds: float) -> None:
    scene = Scene().start(Node=decoded("Node", objects.node()))
    begin = scene.now
    scene.tell(told)
    scene.loop.updates = Silence(scene)
    scene.now += seconds / 2
    while not scene.sent:
        scene.loop.run_once()
    assert scene.sent[0][0] - begin == pytest.approx(seconds, abs=0.06)


def test_a_forwarder_that_stops_rings_for_pods_that_have_just_come() -> None:
    """The next one does not know that they are new."""
    scene = Scene().start(Node=decoded("Node", objects.node()))
    scene.tell(change("Pod", "uid-p", BOUND))
    stopping = Event()
    stopping.set()
    scene.loop.run(stopping)
    assert NODE in scene.rang()
    assert scene.left


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
    scene = Scene().start(Node=decoded("Node", objects.node(ready=False)), Pod=decoded("Pod", objects.pod(node="n")))
    begin = scene.now
    for number in range(20):
        scene.tell(change("Node", "uid-n", decoded("Node", objects.node(ready=number % 2 == 0))))
        scene.pass_time(0.1, step=0.1)
    scene.tell(change("Pod", "uid-p", None))
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


REGISTERED = "karpenter.sh/registered"


def registered(*taints: str, deleting: bool = False, memory: str = "7Gi") -> ClusterObject:
    node = objects.node(taints=taints, further_labels=(REGISTERED,), deleting=deleting)
    node["status"]["allocatable"]["memory"] = memory
    return decoded("Node", node)


@pytest.mark.parametrize("joined", [registered("node.kubernetes.io/not-ready"), registered(JOINED[0])])
def test_a_node_that_pods_may_come_to_is_initialized_when_those_that_wait_have_come(joined: ClusterObject) -> None:
    """One step sees that it is to be initialized, and its pods."""
    scene = Scene().start(Node=joined)
    scene.tell(waiting("p"), waiting("other"))
    scene.pass_time(5)
    scene.sent.clear()
    begin = scene.now
    scene.tell(change("Node", "uid-n", registered()))
    scene.pass_time(1.5, step=0.1)
    scene.tell(change("Pod", "uid-p", BOUND))
    scene.pass_time(9)
    assert [at - begin for at, bells in scene.sent if NODE in bells] == pytest.approx(
        [1.5 + BOUND_WINDOW.idle_seconds], abs=0.6
    )


def test_a_node_to_which_no_pod_comes_is_initialized_soon_all_the_same() -> None:
    scene = Scene().start(Node=registered("node.kubernetes.io/not-ready"))
    scene.tell(waiting("other"))
    scene.pass_time(5)
    scene.sent.clear()
    begin = scene.now
    scene.tell(change("Node", "uid-n", registered()))
    scene.pass_time(9)
    assert [at - begin for at, bells in scene.sent if NODE in bells] == pytest.approx(
        [BOUND_WINDOW.idle_seconds], abs=0.6
    )


@pytest.mark.parametrize("waits", [False, True])
def test_a_node_that_pods_wait_for_until_it_is_looked_at_rings_at_once(waits: bool) -> None:
    """It is held, or no pod waits and the nodes that it is to replace do."""
    taints = ("spotwright.dev/held",) if waits else ()
    scene = Scene().start(Node=registered("node.kubernetes.io/not-ready", *taints))
    if waits:
        scene.tell(waiting("other"))
    scene.pass_time(5)
    scene.sent.clear()
    begin = scene.now
    scene.tell(change("Node", "uid-n", registered(*taints)))
    scene.pass_time(3, step=0.1)
    assert [at - begin for at, bells in scene.sent if NODE in bells] == pytest.approx([0], abs=0.25)


@pytest.mark.parametrize(("before", "after"), [
    (registered(), registered(memory="6Gi")),
    (registered(), registered("node.kubernetes.io/not-ready")),
    (registered("node.kubernetes.io/not-ready"), registered(deleting=True)),
])  # fmt: skip
def test_what_else_becomes_of_a_node_that_is_to_be_initialized_rings_at_once(
    before: ClusterObject, after: ClusterObject
) -> None:
    scene = Scene().start(Node=before)
    scene.tell(waiting("other"))
    scene.pass_time(12)
    scene.sent.clear()
    begin = scene.now
    scene.tell(change("Node", "uid-n", after))
    scene.pass_time(2, step=0.1)
    assert [at - begin for at, bells in scene.sent if NODE in bells] == pytest.approx([0], abs=0.25)


@pytest.mark.parametrize(("waits", "rings_after"), [(False, 0), (True, BOUND_WINDOW.idle_seconds)])
def test_a_node_of_which_a_list_shows_that_pods_may_come_rings_as_one_of_which_a_watch_does(
    waits: bool, rings_after: float
) -> None:
    scene = Scene().start(Node=registered("node.kubernetes.io/not-ready"))
    if waits:
        scene.tell(waiting("other"))
    scene.pass_time(5)
    scene.sent.clear()
    begin = scene.now
    scene.tell(*listed("Node", registered()))
    scene.pass_time(9, step=0.1)
    assert [at - begin for at, bells in scene.sent if NODE in bells] == pytest.approx([rings_after], abs=0.25)


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
    scene.pass_time(BOUND_WINDOW.idle_seconds + 2)
    assert scene.rang() == [NODE]


def test_a_node_that_was_made_anew_while_its_watch_was_broken_rings_for_its_pods() -> None:
    scene = Scene().start(Node=decoded("Node", objects.node()))
    manifest = objects.node()
    manifest["metadata"]["uid"] = "uid-of-the-next"
    scene.tell(*listed("Node", decoded("Node", manifest)))
    scene.pass_time(20)
    scene.sent.clear()
    scene.tell(change("Pod", "uid-p", BOUND))
    scene.pass_time(BOUND_WINDOW.idle_seconds + 2)
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
