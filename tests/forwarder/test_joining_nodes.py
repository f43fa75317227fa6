"""When nodes that join ring: as they join, when they are open, and when the pods that wait for them have come."""

import pytest

from forwarder.kinds import ClusterObject
from forwarder.loop import BOUND_WINDOW, REGISTRATION_RINGS, REGISTRATION_SECONDS
from tests.forwarder import objects
from tests.forwarder.objects import decoded
from tests.forwarder.scene import NODE, Scene, change, listed, waiting

BOUND = decoded("Pod", objects.pod(node="n"))
HELD = "spotwright.dev/held"
# When a node rings that stays as it is, of which no step is taken.
AGAIN = [REGISTRATION_SECONDS * number for number in range(1, REGISTRATION_RINGS + 1)]
JOINED = ("karpenter.sh/unregistered", "node.kubernetes.io/not-ready")


@pytest.mark.parametrize("is_ready", [True, False])
def test_a_node_that_joins_rings_at_once_and_not_again_before_it_is_registered(is_ready: bool) -> None:
    """The step that registers it sees whether it is open."""
    scene = Scene().start()
    begin = scene.now
    scene.tell(change("Node", "uid-n", decoded("Node", objects.node(ready=is_ready, taints=JOINED))))
    scene.pass_time(2, step=0.1)
    scene.tell(change("Node", "uid-n", decoded("Node", objects.node(taints=JOINED[:1]))))
    scene.pass_time(1, step=0.1)
    scene.tell(change("Node", "uid-n", decoded("Node", objects.node(ready=False, taints=JOINED))))
    scene.pass_time(3, step=0.1)
    assert [at - begin for at, _ in scene.sent] == pytest.approx([0], abs=0.25)


def opened_before_it_was_registered(*, is_listed: bool = False) -> Scene:
    """A moment ago. It has rung when it joined, and not since."""
    scene = Scene().start(Node=decoded("Node", objects.node(ready=False, taints=JOINED)))
    scene.pass_time(5)
    scene.sent.clear()
    opened = decoded("Node", objects.node(taints=JOINED[:1]))
    scene.tell(*(listed("Node", opened) if is_listed else [change("Node", "uid-n", opened)]))
    assert not scene.sent
    return scene


@pytest.mark.parametrize("is_listed", [False, True])
def test_a_node_that_is_open_and_still_not_registered_after_a_while_rings_again_some_times(is_listed: bool) -> None:
    """The step that it rang for when it joined may have failed, and the next tick of its claim may be far."""
    scene = opened_before_it_was_registered(is_listed=is_listed)
    begin = scene.now
    scene.pass_time(10, step=0.1)
    labeled = objects.node(taints=JOINED[:1], further_labels=("theirs",))
    scene.tell(change("Node", "uid-n", decoded("Node", labeled)))
    scene.pass_time(60, step=0.1)
    assert [at - begin for at, _ in scene.sent] == pytest.approx(AGAIN, abs=1)
    assert set(scene.rang()) == {NODE}


@pytest.mark.parametrize("was_open", [False, True])
def test_a_node_that_is_open_and_still_held_after_a_while_rings_again_some_times(was_open: bool) -> None:
    """The step that takes the taint off may have failed. A list shows nothing of what was between."""
    before = decoded("Node", objects.node(taints=JOINED[:1])) if was_open else registered(HELD, JOINED[1])
    scene = Scene().start(Node=before)
    scene.pass_time(20)
    scene.sent.clear()
    begin = scene.now
    scene.tell(*listed("Node", registered(HELD)))
    scene.pass_time(60, step=0.1)
    rings = AGAIN if was_open else [0, *AGAIN]
    assert [at - begin for at, _ in scene.sent] == pytest.approx(rings, abs=1)


@pytest.mark.parametrize("rung", range(REGISTRATION_RINGS))
def test_a_node_that_is_registered_at_last_rings_no_more_and_anew_when_it_is_held_later(rung: int) -> None:
    scene = opened_before_it_was_registered()
    scene.pass_time(REGISTRATION_SECONDS * rung + 1, step=0.1)
    assert len(scene.sent) == rung
    scene.tell(change("Node", "uid-n", registered()))
    scene.pass_time(60, step=0.1)
    scene.sent.clear()
    begin = scene.now
    scene.tell(change("Node", "uid-n", registered(HELD)))
    scene.pass_time(60, step=0.1)
    assert [at - begin for at, _ in scene.sent] == pytest.approx(AGAIN, abs=1)


@pytest.mark.parametrize("rung", range(REGISTRATION_RINGS))
def test_a_node_that_is_registered_and_held_in_the_same_step_rings_as_often_for_that(rung: int) -> None:
    scene = opened_before_it_was_registered()
    scene.pass_time(REGISTRATION_SECONDS * rung + 1, step=0.1)
    assert len(scene.sent) == rung
    scene.sent.clear()
    scene.tell(change("Node", "uid-n", registered(HELD)))
    scene.pass_time(60, step=0.1)
    assert len(scene.sent) == REGISTRATION_RINGS


@pytest.mark.parametrize("becomes", ["as it was", "gone"])
def test_a_node_that_rings_no_more_is_forgotten(becomes: str) -> None:
    scene = opened_before_it_was_registered()
    scene.pass_time(REGISTRATION_SECONDS + 1, step=0.1)
    assert scene.loop._unready_rings
    if becomes == "gone":
        scene.tell(change("Node", "uid-n", None))
    scene.pass_time(60, step=0.1)
    assert not scene.loop._unready_rings


def test_the_loop_wakes_for_a_node_that_is_still_not_registered() -> None:
    scene = opened_before_it_was_registered()
    assert scene.loop.next_at() == scene.now + REGISTRATION_SECONDS


@pytest.mark.parametrize("becomes", ["registered", "drained", "gone"])
def test_a_node_that_opened_before_it_was_registered_does_not_ring_once_it_is_or_nothing_is_to_be_registered(
    becomes: str,
) -> None:
    scene = opened_before_it_was_registered()
    scene.pass_time(2, step=0.1)
    drained = decoded("Node", objects.node(taints=(JOINED[0], "karpenter.sh/disrupted")))
    after = {"registered": registered(), "drained": drained, "gone": None}[becomes]
    scene.tell(change("Node", "uid-n", after))
    scene.pass_time(2, step=0.1)
    scene.sent.clear()
    scene.pass_time(20, step=0.1)
    assert not scene.sent


@pytest.mark.parametrize("taint", ["karpenter.sh/unregistered", "spotwright.dev/held"])
def test_a_registered_node_that_starts_rings_when_it_is_open(taint: str) -> None:
    scene = Scene().start(Node=registered(taint, "node.kubernetes.io/not-ready"))
    scene.pass_time(5)
    scene.sent.clear()
    begin = scene.now
    scene.tell(change("Node", "uid-n", registered(taint)))
    scene.pass_time(3, step=0.1)
    assert [at - begin for at, _ in scene.sent] == pytest.approx([0], abs=0.25)


def test_a_node_that_was_registered_and_opened_while_nobody_watched_rings() -> None:
    scene = Scene().start(Node=decoded("Node", objects.node(ready=False, taints=JOINED)))
    scene.pass_time(5)
    scene.sent.clear()
    scene.tell(*listed("Node", registered("spotwright.dev/held")))
    scene.pass_time(3, step=0.1)
    assert set(scene.rang()) == {NODE}


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
