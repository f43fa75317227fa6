"""When the cluster state is written, and what doorbells wait for it, in time that only the test moves."""

from itertools import pairwise

from forwarder.doorbells import PODS
from forwarder.kinds import WATCHED_KINDS
from forwarder.object_cache import STALE_SECONDS
from forwarder.state_jobs import StateResult
from forwarder.state_shipping import OLDEST_FULL_SECONDS, PERIOD_SECONDS, WAIT_SECONDS
from forwarder.watcher import ObjectChange
from spotwright.model.cluster_state import ClusterObjects
from tests.forwarder import objects
from tests.forwarder.objects import decoded
from tests.forwarder.scene import Scene, change, listed, waiting


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
