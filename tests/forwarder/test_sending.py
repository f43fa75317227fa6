"""Doorbells that leave late, again or at the end, and heartbeats, in time that only the test moves."""

import threading

import pytest

from forwarder.doorbells import PODS
from forwarder.kinds import WATCHED_KINDS
from forwarder.loop import ANSWER_SECONDS, HEARTBEAT_SECONDS
from forwarder.object_cache import STALE_SECONDS
from forwarder.outgoing import RESEND_SECONDS
from forwarder.watcher import Bookmark, ListedPage, ListEnd, ObjectChange
from tests.forwarder import objects
from tests.forwarder.objects import decoded
from tests.forwarder.scene import NODE, Scene, change, waiting


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
