"""What rings for which change, and when, in time that only the test moves."""

from itertools import pairwise
from queue import SimpleQueue
from threading import Event

import pytest

from forwarder.doorbells import PODS, QueuedDoorbell
from forwarder.kinds import WATCHED_KINDS
from forwarder.loop import (
    BOUND_WINDOW,
    CLOCKS_DIFFER_SECONDS,
    NODE_SECONDS,
    OTHER_WINDOW,
    POD_EVENT_SECONDS,
    SHORTEST_DRAIN_SECONDS,
    Update,
)
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


@pytest.mark.parametrize("fraction", [0.0, 0.5, 0.95])
def test_the_shortest_drain_counts_from_the_second_in_which_it_began(fraction: float) -> None:
    """As the time of the condition Drained, which the step that the doorbell rings for goes by."""
    scene = Scene(fraction=fraction).start(Node=decoded("Node", objects.node()))
    scene.tell(change("Pod", "uid-p", decoded("Pod", objects.pod("p", node="n"))))
    scene.pass_time(20)
    scene.sent.clear()
    begin = scene.now
    scene.tell(change("Node", "uid-n", decoded("Node", objects.node(taints=(DISRUPTED,)))))
    scene.tell(change("Pod", "uid-p", None))
    scene.pass_time(9, step=0.05)
    (rung_at,) = [at for at, bells in scene.sent if NODE in bells]
    earliest = SHORTEST_DRAIN_SECONDS - fraction
    rung_at -= OTHER_WINDOW.idle_seconds
    assert earliest + CLOCKS_DIFFER_SECONDS - 0.001 <= rung_at - begin <= earliest + 0.4


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
