"""Many doorbells at once: one invocation plans for all of them, and no request is lost when it dies."""

from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import msgspec
import pytest

from spotwright.errors import Denied, Unavailable
from spotwright.model.cluster_state import ClusterObjects, ClusterStateError
from spotwright.model.kubernetes.pod import Pod
from spotwright.simulation import builders
from spotwright.simulation.effects import Crash, Fault
from spotwright.simulation.world import World
from spotwright.workflows.disrupt.pauses import LONGEST_PAUSE_SECONDS
from spotwright.workflows.disrupt.workflow import EVALUATE_AGAIN_SECONDS, disrupt
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.state import LISTED_EVALUATIONS
from spotwright.workflows.provision.workflow import RETRY_SECONDS, provision
from spotwright.workflows.sweep.poll import poll
from tests.scenarios.lifecycle.conftest import fresh_world

POD = builders.pod("inflate", cpu_millicores=1800)
# request, note, two bodies, commit, doorbell, served, note taken back
CHANGES = 8
# The note of a dead planner ends after a minute, and the sweep looks every minute.
BOUND_SECONDS = 121


@pytest.fixture
def waiting() -> World:
    """Two pods that wait, and a forwarder that lives but has rung already."""
    world = fresh_world()
    world.forwarder_runs = False
    world.state.heartbeat_at = 10**15
    world.deploy(POD, 2)
    world.kubelets.reconcile()
    return world


@pytest.fixture
def gatherings(waiting: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """An entry for each time that all pods were listed."""
    lists: list[str] = []
    usual = waiting.cluster.pods

    def pods(*, node: str = "", pending: bool = False, limit: int | None = None) -> tuple[Pod, ...]:
        if not node and not pending:
            lists.append("pods")
        return usual(node=node, pending=pending, limit=limit)

    monkeypatch.setattr(waiting.cluster, "pods", pods)
    return lists


def plan(world: World) -> int:
    """How many decisions an invocation made."""
    return len(provision(world.ports, clock=world.clock.now).decisions)


def plan_nine_times(world: World) -> None:
    for _ in range(9):
        plan(world)


def unserved(world: World) -> int:
    row = world.state.cluster()
    return row.planning_requests - row.served_requests


def test_ten_doorbells_at_once_are_one_gathering(waiting: World, gatherings: list[str]) -> None:
    decisions: list[int] = []
    waiting.effects.interject(2, lambda: decisions.extend(plan(waiting) for _ in range(9)))
    decisions.append(plan(waiting))
    assert len(gatherings) == 1
    assert sum(decisions) == 1
    assert unserved(waiting) == 0


@pytest.mark.parametrize("changes", range(2, CHANGES))
def test_requests_that_come_at_any_moment_are_served_by_who_is_at_work(
    waiting: World, gatherings: list[str], changes: int
) -> None:
    """What is asked for after the pods were read takes a second reading, whoever asked, and no third."""
    waiting.effects.interject(changes, lambda: plan_nine_times(waiting))
    plan(waiting)
    assert unserved(waiting) == 0
    assert len(gatherings) <= 2
    assert len(waiting.effects.select("state", "commit")) == 1
    assert not waiting.state.cluster().planner_until


@pytest.mark.parametrize("changes", range(1, CHANGES + 1))
def test_who_dies_at_any_change_leaves_no_request_behind(waiting: World, changes: int) -> None:
    waiting.effects.crash_after(changes)
    with pytest.raises(Crash):
        plan(waiting)
    waiting.clock.advance(1)
    plan_nine_times(waiting)
    assert waiting.run(BOUND_SECONDS, until=lambda: unserved(waiting) == 0 and bool(waiting.claims()))
    assert waiting.run(60, until=lambda: len(waiting.running_pods()) == 2)
    assert len(waiting.ec2.all_instances()) == 2


def test_of_two_threads_one_reads_the_cluster(waiting: World, monkeypatch: pytest.MonkeyPatch) -> None:
    reading, left = Event(), Event()
    lists: list[str] = []
    usual = waiting.cluster.pods

    def pods(*, node: str = "", pending: bool = False, limit: int | None = None) -> tuple[Pod, ...]:
        lists.append("pods")
        reading.set()
        assert left.wait(300)
        return usual(node=node, pending=pending, limit=limit)

    monkeypatch.setattr(waiting.cluster, "pods", pods)
    decisions: list[int] = []
    first = Thread(target=lambda: decisions.append(plan(waiting)))
    first.start()
    assert reading.wait(300)
    second = Thread(target=lambda: decisions.append(plan(waiting)))
    second.start()
    second.join(300)
    assert decisions == [0], "the second one left while the first one reads"
    assert len(lists) == 1
    left.set()
    first.join(300)
    assert decisions == [0, 1]
    assert len(lists) == 2, "the request came after the first reading"
    assert unserved(waiting) == 0


def test_when_planning_fails_the_requests_of_others_are_rung_for(waiting: World) -> None:
    waiting.effects.inject(Fault("blobs", "put", Unavailable("no bucket", code="NoSuchBucket")))
    waiting.effects.interject(2, lambda: plan_nine_times(waiting))
    with pytest.raises(Unavailable):
        plan(waiting)
    assert not waiting.state.cluster().planner_until
    (rung,) = waiting.doorbells.messages_of("provision", "pods")
    assert rung.at == waiting.clock.milliseconds() + RETRY_SECONDS * 1000
    waiting.clock.advance(RETRY_SECONDS)
    assert plan(waiting) == 1
    assert unserved(waiting) == 0


def test_when_planning_fails_and_nobody_else_asked_only_the_message_returns(waiting: World) -> None:
    waiting.effects.inject(Fault("blobs", "put", Unavailable("no bucket", code="NoSuchBucket")))
    with pytest.raises(Unavailable):
        plan(waiting)
    assert not waiting.doorbells.messages_of("provision", "pods")


def test_the_sweep_rings_for_what_a_dead_planner_left_at_its_end_and_for_nothing_served(
    waiting: World, gatherings: list[str]
) -> None:
    waiting.effects.crash_at("state", "begin_planning")
    with pytest.raises(Crash):
        plan(waiting)
    waiting.forget_deployments()
    for pod in waiting.cluster.all("pods"):
        waiting.cluster.remove("pods", pod.key)
    waiting.clock.advance(20)
    poll(waiting, now=waiting.clock.now(), scheduled=True)
    (rung,) = waiting.doorbells.messages_of("provision", "pods")
    assert rung.at == waiting.state.cluster().planner_until == waiting.clock.milliseconds() + 40_000
    assert rung.doorbell == Doorbell(waiting.cluster.name, "pods", epoch=1)
    waiting.clock.advance(40)
    provision(waiting.ports, clock=waiting.clock.now, unserved_request=1)
    assert unserved(waiting) == 0
    assert len(gatherings) == 1
    provision(waiting.ports, clock=waiting.clock.now, unserved_request=1)
    assert len(gatherings) == 1, "the request is served"


def test_a_paused_cluster_holds_no_note_and_is_not_rung_for(waiting: World) -> None:
    waiting.state.cluster_row = type(waiting.state.cluster_row)(waiting.cluster.name, paused=True)
    assert plan(waiting) == 0
    assert not waiting.state.cluster().planner_until
    for pod in waiting.cluster.all("pods"):
        waiting.cluster.remove("pods", pod.key)
    poll(waiting, now=waiting.clock.now(), scheduled=True)
    assert not waiting.doorbells.messages_of("provision", "pods")


def test_who_always_loses_the_commit_rings_for_what_is_left(waiting: World, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = waiting.state.commit

    def commit(*, expected_version: int, **committed: Any) -> None:
        usual(expected_version=expected_version, key=waiting.blobs.put("decisions", f"{expected_version}".encode()))
        waiting.state.mark_acted(waiting.state.cluster().head)
        usual(expected_version=expected_version, **committed)

    monkeypatch.setattr(waiting.state, "commit", commit)
    assert plan(waiting) == 0
    assert unserved(waiting) == 1
    assert len(waiting.doorbells.messages_of("provision", "pods")) == 1
    assert not waiting.state.cluster().planner_until


@pytest.mark.parametrize(
    ("ships_state", "until_seconds", "evaluates"),
    [(False, 20, False), (False, 100, False), (True, 20, True), (False, 0, True), (False, 200, True)],
    ids=[
        "beside a planner that lists",
        "beside one whose clock is 40 s ahead",
        "from the cluster state",
        "alone",
        "the note of a wrong clock",
    ],
)
def test_nodes_are_not_evaluated_beside_a_planner_that_lists_the_cluster(
    waiting: World, gatherings: list[str], ships_state: bool, until_seconds: int, evaluates: bool
) -> None:
    now = waiting.clock.milliseconds()
    waiting.cluster_state.lag_seconds = 1 if ships_state else None
    waiting.state.cluster_row = msgspec.structs.replace(
        waiting.state.cluster_row, planner_until=until_seconds and now + until_seconds * 1000
    )
    bell = Doorbell(waiting.cluster.name, "evaluate")
    assert bool(list(disrupt(waiting.ports, [bell], clock=waiting.clock.now))) == evaluates
    assert bool(gatherings) == (evaluates and not ships_state)
    again = [(left.at - now, left.doorbell.epoch) for left in waiting.doorbells.messages_of("disrupt", "evaluate")]
    assert again == ([] if evaluates else [(EVALUATE_AGAIN_SECONDS * 1000, 1)])


def test_an_evaluation_that_a_planner_kept_back_twice_is_left_to_the_schedule(waiting: World) -> None:
    """Pods may wait for as long as there is no forwarder: each minute one chain of doorbells more would go on."""
    now = waiting.clock.milliseconds()
    waiting.state.heartbeat_at = 0
    waiting.state.cluster_row = msgspec.structs.replace(waiting.state.cluster_row, planner_until=now + 20_000)
    again = Doorbell(waiting.cluster.name, "evaluate", epoch=1)
    assert not list(disrupt(waiting.ports, [again], clock=waiting.clock.now))
    assert not waiting.doorbells.messages_of("disrupt", "evaluate")


def evaluate_after(world: World, seconds: float) -> bool:
    """Whether nodes are evaluated so many seconds from now."""
    world.clock.advance(seconds)
    bell = Doorbell(world.cluster.name, "evaluate", epoch=1)
    return bool(list(disrupt(world.ports, [bell], clock=world.clock.now)))


@pytest.fixture
def slow_lists(waiting: World, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What each list of all pods takes from now on, seconds: the last entry."""
    seconds = [0.0]
    usual = waiting.cluster.pods

    def pods(*, node: str = "", pending: bool = False, limit: int | None = None) -> tuple[Pod, ...]:
        if not node and not pending:
            waiting.clock.advance(seconds[-1])
        return usual(node=node, pending=pending, limit=limit)

    monkeypatch.setattr(waiting.cluster, "pods", pods)
    return seconds


def test_evaluations_list_a_large_cluster_for_a_twentieth_of_the_time(waiting: World, slow_lists: list[float]) -> None:
    """Each minute they had the API server write for 12 s of 60 what pods that wait are planned of, too."""
    waiting.state.heartbeat_at = 0
    slow_lists.append(12)
    assert evaluate_after(waiting, 0)
    assert not evaluate_after(waiting, 60)
    assert not evaluate_after(waiting, 179)
    slow_lists.append(2)
    assert evaluate_after(waiting, 1)
    assert evaluate_after(waiting, 40)


UNUSABLE: dict[str, Callable[[World], object]] = {
    "none was shipped": lambda world: None,
    "of another schema": lambda world: refuse(world, "WrongSchema"),
    "cut short": lambda world: refuse(world, "CutShort"),
    "not fresh": lambda world: ship(world, 3600),
    "an object cannot be read": lambda world: refuse(world, "Malformed"),
    "refused": lambda world: world.effects.inject(Fault("cluster_state", "load", Denied("AccessDenied"), times=9)),
    "shows what cannot be": lambda world: setattr(world.cluster_state, "lie", with_negative_pod),
}


def refuse(world: World, code: str) -> None:
    world.cluster_state.error = ClusterStateError("it cannot be used", code=code)


def ship(world: World, lag: float) -> None:
    world.cluster_state.lag_seconds = lag


def with_negative_pod(objects: ClusterObjects) -> ClusterObjects:
    return msgspec.structs.replace(objects, pods=(builders.pod("less", cpu_millicores=-1),))


@pytest.mark.parametrize("obstacle", UNUSABLE)
def test_evaluations_list_as_little_beside_a_forwarder_whose_state_cannot_be_used(
    waiting: World, slow_lists: list[float], obstacle: str
) -> None:
    if obstacle != "none was shipped":
        ship(waiting, 0)
    UNUSABLE[obstacle](waiting)
    slow_lists.append(12)
    waiting.state.heartbeat_at = waiting.clock.milliseconds()
    assert evaluate_after(waiting, 0)
    for _ in range(3):
        waiting.state.heartbeat_at = waiting.clock.milliseconds()
        assert not evaluate_after(waiting, 60)
    assert evaluate_after(waiting, 60)


def test_an_evaluation_from_a_state_has_no_pause_though_there_is_no_heartbeat(
    waiting: World, slow_lists: list[float]
) -> None:
    waiting.state.heartbeat_at = 0
    ship(waiting, 1)
    slow_lists.append(12)
    assert evaluate_after(waiting, 1)
    assert not waiting.state.cluster().evaluations_pause_until
    ship(waiting, 3600)
    assert evaluate_after(waiting, 1), "none was listed before"


def test_proposals_are_validated_and_a_cluster_state_is_evaluated_while_lists_rest(
    waiting: World, slow_lists: list[float]
) -> None:
    waiting.state.heartbeat_at = 0
    slow_lists.append(12)
    assert evaluate_after(waiting, 0)
    validation = Doorbell(waiting.cluster.name, "validate", "proposal")
    assert [kind for kind, _ in disrupt(waiting.ports, [validation], clock=waiting.clock.now)] == ["validate"]
    assert not evaluate_after(waiting, 1)
    ship(waiting, 1)
    assert evaluate_after(waiting, 1)


def test_no_pause_of_evaluations_is_longer_than_a_few_minutes(waiting: World, slow_lists: list[float]) -> None:
    waiting.state.heartbeat_at = 0
    slow_lists.append(50)
    assert evaluate_after(waiting, 0)
    assert not evaluate_after(waiting, LONGEST_PAUSE_SECONDS - 1)
    assert evaluate_after(waiting, 1)


def test_an_evaluation_that_is_cut_off_while_it_lists_is_followed_by_the_longest_pause(waiting: World) -> None:
    """A cluster ten times larger takes longer to list than the function may run: each minute's evaluation began anew,
    and the API server wrote lists for nobody all the time."""
    waiting.state.heartbeat_at = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(waiting.cluster, "pods", cut_off)
        with pytest.raises(Crash):
            evaluate_after(waiting, 0)
    assert not evaluate_after(waiting, LONGEST_PAUSE_SECONDS - 1)
    assert evaluate_after(waiting, 1)


def cut_off(*, node: str = "", pending: bool = False) -> tuple[Pod, ...]:
    raise Crash("the function's time is over")


def test_an_evaluation_that_fails_is_followed_by_a_pause_by_what_it_took(
    waiting: World, slow_lists: list[float]
) -> None:
    waiting.state.heartbeat_at = 0
    slow_lists.append(2)
    waiting.effects.inject(Fault("cluster", "pods", Unavailable("context deadline exceeded")))
    with pytest.raises(Unavailable):
        evaluate_after(waiting, 0)
    assert not evaluate_after(waiting, 39)
    assert evaluate_after(waiting, 1)


@pytest.mark.parametrize(("seconds", "evaluates"), [(360, False), (361, True)])
def test_the_pause_of_a_wrong_clock_holds_no_evaluation_up(waiting: World, seconds: int, evaluates: bool) -> None:
    waiting.state.heartbeat_at = 0
    now = waiting.clock.milliseconds()
    waiting.state.begin_planning("listed evaluations", now=now, until=now + seconds * 1000)
    assert evaluate_after(waiting, 0) == evaluates


@pytest.mark.parametrize("action", ["begin_planning", "end_planning"])
def test_an_evaluation_counts_where_its_pause_cannot_be_noted(
    waiting: World, slow_lists: list[float], action: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting.state.heartbeat_at = 0
    slow_lists.append(12)
    refuse_notes(waiting, action, LISTED_EVALUATIONS, monkeypatch)
    assert evaluate_after(waiting, 0)
    # One that was noted and cannot be shortened is waited for.
    assert evaluate_after(waiting, 1 if action == "begin_planning" else LONGEST_PAUSE_SECONDS)


def refuse_notes(world: World, action: str, refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """``action``: begin_planning or end_planning, of this work."""
    usual = getattr(world.state, action)

    def unavailable(work: str, **times: Any) -> bool:
        if work == refused:
            raise Unavailable("DynamoDB does not answer")
        return bool(usual(work, **times))

    monkeypatch.setattr(world.state, action, unavailable)


PLANNERS: dict[str, Callable[[World], object]] = {
    "provision": plan,
    "disrupt": lambda world: evaluate_after(world, 0),
}


@pytest.mark.parametrize("work", PLANNERS)
def test_where_its_note_cannot_be_taken_back_a_planner_fails_by_what_failed_first(
    waiting: World, work: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting.state.heartbeat_at = 0
    waiting.effects.inject(Fault("cluster", "pods", Unavailable("context deadline exceeded")))
    refuse_notes(waiting, "end_planning", work, monkeypatch)
    with pytest.raises(Unavailable, match="context deadline exceeded"):
        PLANNERS[work](waiting)
