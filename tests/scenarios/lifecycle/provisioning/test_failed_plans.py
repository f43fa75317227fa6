"""Plans whose list of the cluster fails: it is not listed again at once, whoever rings."""

from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from spotwright.decisions.decision import decode_decision
from spotwright.errors import Conflict, OutOfTime, Unavailable
from spotwright.model import labels
from spotwright.model.cluster_state import ClusterObjects
from spotwright.model.kubernetes.node import instance_id
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.taints import Taint, TaintEffect
from spotwright.model.snapshot import STATIC_CAPACITY
from spotwright.simulation import builders
from spotwright.simulation.effects import Crash, Fault
from spotwright.simulation.world import World
from spotwright.telemetry import log_lines
from spotwright.workflows.planning.overlay import BehindError
from spotwright.workflows.planning.repeated_plan import LONGEST_PAUSE_SECONDS, PAUSE_PER_SECOND
from spotwright.workflows.planning.replay import replay
from spotwright.workflows.planning.time_budget import MINIMUM_PODS
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.state import FAILED_PLANS, LISTED_FOR_PODS
from spotwright.workflows.provision.workflow import LISTING_SECONDS, provision, unserved_request
from spotwright.workflows.sweep.poll import POLL_SECONDS, poll
from tests.scenarios.lifecycle.conftest import fresh_world

# A list is given up so long after it began.
LIST_SECONDS = 20
PAUSE_SECONDS = LIST_SECONDS * PAUSE_PER_SECOND
HOUR_SECONDS = 3600
# Nodes with it are not for the pod that waits.
OTHERS = Taint("others", TaintEffect.NO_SCHEDULE)


class Slow:
    """An API server that answers no list of all pods in time while it is ``slow``; ``lists``: how many were begun."""

    def __init__(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        self.slow, self.seconds, self.lists = True, float(LIST_SECONDS), 0
        usual = world.cluster.pods

        def pods(*, node: str = "", pending: bool = False, limit: int | None = None) -> tuple[Pod, ...]:
            if not node and not pending:
                self.lists += 1
                if self.slow:
                    world.clock.advance(self.seconds)
                    raise OutOfTime("the invocation ends")
            return usual(node=node, pending=pending, limit=limit)

        monkeypatch.setattr(world.cluster, "pods", pods)


@pytest.fixture
def waiting() -> World:
    """A node, and a pod that waits for another one. There is no cluster state, and no forwarder that rings."""
    world = fresh_world()
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(60, until=lambda: bool(world.running_pods()))
    world.run(60)
    world.forwarder_runs = False
    world.state.heartbeat_at = 0
    world.deploy(builders.pod("large", cpu_millicores=1800), 1)
    world.kubelets.reconcile()
    world.doorbells.messages.clear()
    return world


@pytest.fixture
def api_server(waiting: World, monkeypatch: pytest.MonkeyPatch) -> Slow:
    return Slow(waiting, monkeypatch)


def plan(world: World, *bells: Doorbell) -> int:
    """How many decisions were made. What fails returns in six minutes."""
    try:
        request = unserved_request(bells or (Doorbell(world.cluster.name, "pods"),))
        return len(provision(world.ports, clock=world.clock.now, unserved_request=request).decisions)
    except OutOfTime:
        world.doorbells.ring("provision", [Doorbell(world.cluster.name, "pods")], delay_seconds=360)
    return 0


def go_on(world: World, seconds: int, *, rung_each: int = 0) -> int:
    """The sweep looks, the forwarder rings each so many seconds (0 = there is none), and pods are planned for; how many
    decisions were made."""
    decisions, end = 0, world.clock.now() + timedelta(seconds=seconds)
    look = ring = world.clock.now()
    while world.clock.now() < end:
        now = world.clock.now()
        if rung_each:
            world.state.heartbeat_at = world.clock.milliseconds()
        if now >= look:
            look = now + timedelta(seconds=POLL_SECONDS)
            poll(world, now=now, scheduled=now.second < POLL_SECONDS)
        if rung_each and now >= ring:
            ring = now + timedelta(seconds=rung_each)
            world.doorbells.ring("provision", [Doorbell(world.cluster.name, "pods")])
        if bells := world.doorbells.receive("provision"):
            decisions += plan(world, *bells)
        world.clock.advance(1)
    return decisions


@pytest.mark.parametrize("rung_each", [0, 10], ids=["polled", "rung by a forwarder without a state"])
def test_a_cluster_that_cannot_be_listed_in_time_is_listed_for_a_fifth_of_the_time(
    waiting: World, api_server: Slow, rung_each: int
) -> None:
    """It was listed as soon as the list before had failed."""
    go_on(waiting, HOUR_SECONDS, rung_each=rung_each)
    assert 0 < api_server.lists <= HOUR_SECONDS // PAUSE_SECONDS


def lists_after(world: World, api_server: Slow, seconds: float = 0) -> bool:
    """Whether a doorbell so many seconds from now has the cluster listed."""
    world.clock.advance(seconds)
    before = api_server.lists
    plan(world)
    return api_server.lists > before


def test_the_pause_is_four_times_what_the_plan_took(waiting: World, api_server: Slow) -> None:
    assert lists_after(waiting, api_server)
    assert not lists_after(waiting, api_server, PAUSE_SECONDS - 1)
    assert lists_after(waiting, api_server, 1)


def test_no_pause_of_lists_is_longer_than_two_minutes(waiting: World, api_server: Slow) -> None:
    api_server.seconds = 50
    assert lists_after(waiting, api_server)
    assert not lists_after(waiting, api_server, LONGEST_PAUSE_SECONDS - 1)
    assert lists_after(waiting, api_server, 1)


def test_requests_of_a_pause_are_rung_for_once_at_its_end(
    waiting: World, api_server: Slow, caplog: pytest.LogCaptureFixture
) -> None:
    plan(waiting)
    waiting.doorbells.messages.clear()
    requests = waiting.state.cluster().planning_requests
    end = waiting.clock.milliseconds() + PAUSE_SECONDS * 1000
    with caplog.at_level("INFO", "spotwright"):
        for _ in range(5):
            waiting.clock.advance(1)
            assert not plan(waiting)
    (again,) = waiting.doorbells.messages_of("provision", "pods")
    assert (again.at, again.doorbell.epoch) == (end, requests + 1)
    assert not waiting.state.cluster().planner_until
    left = [vars(record)["reason"] for record in caplog.records if record.message == log_lines.LEFT_PLAN.message]
    assert left[0] == "the last list of the cluster failed; the next one begins in 79 s"
    waiting.clock.advance(PAUSE_SECONDS - 5)
    api_server.slow = False
    assert plan(waiting, *waiting.doorbells.receive("provision")) == 1
    row = waiting.state.cluster()
    assert row.served_requests == row.planning_requests


def test_a_pause_of_part_of_a_second_is_over_when_what_it_kept_back_is_rung_for(
    waiting: World, api_server: Slow
) -> None:
    api_server.seconds = 0.1
    plan(waiting)
    waiting.doorbells.messages.clear()
    plan(waiting)
    (again,) = waiting.doorbells.messages_of("provision", "pods")
    assert again.at == waiting.clock.milliseconds() + 1000


def test_when_lists_are_answered_again_pods_wait_for_the_end_of_the_pause_at_most(
    waiting: World, api_server: Slow
) -> None:
    plan(waiting)
    api_server.slow = False
    assert go_on(waiting, PAUSE_SECONDS + POLL_SECONDS) == 1


def test_a_look_of_the_sweep_rings_for_no_plan_that_would_be_left(waiting: World, api_server: Slow) -> None:
    plan(waiting)
    waiting.doorbells.messages.clear()
    poll(waiting, now=waiting.clock.now(), scheduled=False)
    assert not waiting.doorbells.messages_of("provision", "pods")
    waiting.clock.advance(PAUSE_SECONDS)
    poll(waiting, now=waiting.clock.now(), scheduled=False)
    assert waiting.doorbells.messages_of("provision", "pods")


def test_beside_a_forwarder_the_poll_of_each_minute_rings_since_a_state_may_be_of_use(
    waiting: World, api_server: Slow
) -> None:
    plan(waiting)
    waiting.doorbells.messages.clear()
    waiting.state.heartbeat_at = waiting.clock.milliseconds()
    poll(waiting, now=waiting.clock.now(), scheduled=True)
    assert waiting.doorbells.messages_of("provision", "pods")


def test_while_lists_pause_the_poll_of_each_minute_rings_for_a_pod_whose_doorbell_was_lost(
    waiting: World, api_server: Slow
) -> None:
    """The requests of before were served by a cluster state, and so is the pod's."""
    plan(waiting)
    waiting.cluster_state.lag_seconds = 0
    assert plan(waiting) == 1
    lost = builders.pod("lost", cpu_millicores=1800, phase="Pending")
    waiting.cluster.put("pods", msgspec.structs.replace(lost, unschedulable=True))
    waiting.doorbells.messages.clear()
    waiting.state.heartbeat_at = waiting.clock.milliseconds()
    poll(waiting, now=waiting.clock.now(), scheduled=True)
    assert waiting.doorbells.messages_of("provision", "pods")
    assert plan(waiting, *waiting.doorbells.receive("provision")) == 1
    assert api_server.lists == 1


def test_of_a_cluster_state_is_planned_at_once(waiting: World, api_server: Slow) -> None:
    """Also for pods that have waited for long: otherwise these would wait for a list."""
    plan(waiting)
    waiting.clock.advance(1)
    waiting.cluster_state.lag_seconds = 0
    for pod in waiting.cluster.pods(pending=True):
        created = waiting.clock.now() - timedelta(minutes=10)
        metadata = msgspec.structs.replace(pod.metadata, creation_timestamp=created)
        waiting.cluster.put("pods", msgspec.structs.replace(pod, metadata=metadata))
    assert plan(waiting) == 1
    assert api_server.lists == 1


def waits_long(world: World, cpu_millicores: int = 10**6) -> None:
    """A pod has waited for long: by the cluster state nothing is done for it, unless it is smaller."""
    world.cluster_state.lag_seconds = 0
    created = world.clock.now() - timedelta(minutes=10)
    late = builders.pod("late", cpu_millicores=cpu_millicores, phase="Pending")
    metadata = msgspec.structs.replace(late.metadata, creation_timestamp=created)
    world.cluster.put("pods", msgspec.structs.replace(late, metadata=metadata, unschedulable=True))


def test_the_cluster_is_not_listed_for_pods_of_daemonsets_however_long_they_wait(
    waiting: World, api_server: Slow
) -> None:
    waiting.cluster_state.lag_seconds = 0
    created = waiting.clock.now() - timedelta(minutes=10)
    daemon = msgspec.structs.replace(builders.daemonset_pod("agent", ""), phase="Pending", unschedulable=True)
    metadata = msgspec.structs.replace(daemon.metadata, creation_timestamp=created)
    waiting.cluster.put("pods", msgspec.structs.replace(daemon, metadata=metadata))
    assert plan(waiting) == 1
    assert api_server.lists == 0


def test_a_list_for_pods_that_wait_long_that_fails_is_made_again_after_the_pause(
    waiting: World, api_server: Slow
) -> None:
    """It counted as one of those that are made every ten minutes."""
    waits_long(waiting)
    assert lists_after(waiting, api_server)
    api_server.slow = False
    assert not lists_after(waiting, api_server, PAUSE_SECONDS - 1)
    assert lists_after(waiting, api_server, 1)
    assert not lists_after(waiting, api_server, LISTING_SECONDS - 1)
    assert lists_after(waiting, api_server, 1)


def test_a_list_for_pods_that_wait_long_whose_commit_is_lost_is_made_again_at_once(
    waiting: World, api_server: Slow
) -> None:
    """The plan that was made in place of it knew no more than the cluster state says."""
    waits_long(waiting)
    api_server.slow = False
    waiting.effects.inject(Fault("state", "commit", Conflict("another decision was first")))
    assert plan(waiting) == 1
    assert api_server.lists == 2


def test_a_list_for_pods_that_wait_long_that_is_cut_off_is_made_again_after_the_longest_pause(
    waiting: World, api_server: Slow
) -> None:
    """Others would wait for their nodes as long as each plan lists and is cut off."""
    waits_long(waiting)
    api_server.slow = False
    waiting.effects.crash_at("state", "commit")
    with pytest.raises(Crash):
        plan(waiting)
    waiting.state.planners.pop("provision")
    assert not lists_after(waiting, api_server, LONGEST_PAUSE_SECONDS - 1)
    assert lists_after(waiting, api_server, 1)


def test_where_it_cannot_be_noted_that_the_cluster_was_listed_for_pods_that_wait_they_are_served(
    waiting: World, api_server: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits_long(waiting)
    api_server.slow = False
    refuse_note(waiting, LISTED_FOR_PODS, monkeypatch)
    assert plan(waiting) == 1
    row = waiting.state.cluster()
    assert row.served_requests == row.planning_requests


def test_where_the_note_of_a_list_for_pods_that_wait_long_cannot_be_taken_back_they_are_served(
    waiting: World, api_server: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits_long(waiting)
    api_server.slow, usual = False, waiting.state.end_planning

    def unavailable(work: str, *, until: int, served: int | None = None) -> bool:
        if work == LISTED_FOR_PODS:
            raise Unavailable("DynamoDB does not answer")
        return usual(work, until=until, served=served)

    monkeypatch.setattr(waiting.state, "end_planning", unavailable)
    assert plan(waiting) == 1
    row = waiting.state.cluster()
    assert row.served_requests == row.planning_requests


def test_a_note_of_a_wrong_clock_keeps_no_list_from_pods_that_wait_long(waiting: World, api_server: Slow) -> None:
    waits_long(waiting)
    late = waiting.clock.milliseconds() + 20 * 60_000
    waiting.state.cluster_row = msgspec.structs.replace(waiting.state.cluster_row, listed_for_pods_until=late)
    assert lists_after(waiting, api_server)


def test_where_the_state_must_not_be_relied_on_the_pause_counts(
    waiting: World, api_server: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def behind(*given: object, **more: object) -> None:
        raise BehindError("it hides something", code="NearLimits")

    waiting.cluster_state.lag_seconds = 0
    monkeypatch.setattr("spotwright.workflows.provision.workflow.decide_on_read_nodes", behind)
    assert lists_after(waiting, api_server)
    assert not lists_after(waiting, api_server, PAUSE_SECONDS - 1)
    assert lists_after(waiting, api_server, 1)


def refuse_note(world: World, refused: str, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = world.state.begin_planning

    def unavailable(work: str, *, now: int, until: int) -> bool:
        if work == refused:
            raise Unavailable("DynamoDB does not answer")
        return usual(work, now=now, until=until)

    monkeypatch.setattr(world.state, "begin_planning", unavailable)


def removed(world: World) -> set[str]:
    """NodeClaims that committed decisions remove."""
    decisions = [decode_decision(world.blobs.get(key)) for key in world.state.cluster().pending_decisions]
    return {name for decision in decisions for name in decision.candidates}


def beyond_its_replicas(world: World) -> None:
    """A static NodePool has a node too many."""
    world.settings = msgspec.structs.replace(world.settings, feature_gates=frozenset({STATIC_CAPACITY}))
    world.cluster.put("nodepools", builders.nodepool("static", replicas=0))
    (claim,) = world.claims()
    of_pool = {**claim.metadata.labels, labels.NODEPOOL: "static"}
    metadata = msgspec.structs.replace(claim.metadata, name="static-1", uid="static-1", labels=of_pool)
    static = {"metadata": metadata, "provider_id": "aws:///a/i-1", "node_name": "", "taints": (OTHERS,)}
    world.cluster.put("nodeclaims", msgspec.structs.replace(claim, **static))
    world.cluster_state.lag_seconds = 0


def test_where_no_pod_waits_nodes_of_a_static_pool_are_rung_for_at_the_end_of_the_pause(
    waiting: World, api_server: Slow
) -> None:
    """A plan by the cluster state does nothing for them, however often it is made."""
    beyond_its_replicas(waiting)
    for pod in waiting.cluster.pods(pending=True):
        waiting.cluster.remove("pods", pod.key)
    assert lists_after(waiting, api_server)
    end = waiting.clock.milliseconds() + PAUSE_SECONDS * 1000
    waiting.clock.advance(1)
    plan(waiting)
    assert min(message.at for message in waiting.doorbells.messages_of("provision", "pods")) == end


def test_pods_do_not_wait_for_the_list_that_nodes_of_a_static_pool_are_removed_by(
    waiting: World, api_server: Slow
) -> None:
    beyond_its_replicas(waiting)
    assert lists_after(waiting, api_server)
    assert plan(waiting) == 1
    assert api_server.lists == 1
    assert not removed(waiting)
    head = waiting.state.cluster().head
    assert replay(head, blobs=waiting.ports.blobs, catalogs=waiting.ports.catalogs).agrees
    waiting.clock.advance(PAUSE_SECONDS)
    api_server.slow = False
    bells = waiting.doorbells.receive("provision")
    assert bells, "the nodes follow"
    plan(waiting, *bells)
    assert removed(waiting) == {"static-1"}


def near_its_limits(world: World, **pool: Any) -> None:
    """A NodePool with a node that the cluster state hides: by the state there is room for another one."""
    limited = builders.nodepool("limited", **pool)
    limited = msgspec.structs.replace(limited, resources={"cpu": 2000}, node_count=1)
    world.cluster.put("nodepools", limited)
    (claim,) = world.claims()
    of_pool = {**claim.metadata.labels, labels.NODEPOOL: "limited"}
    metadata = msgspec.structs.replace(claim.metadata, name="limited-1", uid="limited-1", labels=of_pool)
    node = {"metadata": metadata, "provider_id": "aws:///a/i-1", "node_name": ""}
    world.cluster.put("nodeclaims", msgspec.structs.replace(claim, **node))

    def hidden(objects: ClusterObjects) -> ClusterObjects:
        claims = (shown for shown in objects.nodeclaims if shown.name != "limited-1")
        return msgspec.structs.replace(objects, nodeclaims=tuple(claims))

    world.cluster_state.lag_seconds, world.cluster_state.lie = 0, hidden


def of_limited(name: str) -> Pod:
    pod = builders.pod(name, cpu_millicores=1000, node_selector={labels.NODEPOOL: "limited"}, phase="Pending")
    return msgspec.structs.replace(pod, unschedulable=True)


def planned_pods(world: World) -> set[str]:
    decisions = [decode_decision(world.blobs.get(key)) for key in world.state.cluster().pending_decisions]
    return {key.split("-")[0] for decision in decisions for node in decision.plan.new_nodes for key in node.pods}


def test_pods_of_other_nodepools_do_not_wait_for_the_list_that_one_near_its_limits_is_counted_by(
    waiting: World, api_server: Slow
) -> None:
    """All pods waited, as long as lists failed."""
    near_its_limits(waiting, limits={"cpu": 3000})
    for number in range(30):
        waiting.cluster.put("pods", of_limited(f"limited-{number}"))
    assert plan(waiting) == 1
    assert api_server.lists == 0
    assert planned_pods(waiting) == {"default/large"}
    assert not waiting.state.cluster().pods_alike, "others follow"
    head = waiting.state.cluster().head
    assert replay(head, blobs=waiting.ports.blobs, catalogs=waiting.ports.catalogs).agrees
    bells = waiting.doorbells.receive("provision")
    assert bells, "the others follow"
    plan(waiting, *bells)
    assert api_server.lists == 1
    waiting.clock.advance(PAUSE_SECONDS)
    api_server.slow = False
    plan(waiting)
    assert api_server.lists > 1
    assert planned_pods(waiting) == {"default/large"}, "the NodePool has no room"
    row = waiting.state.cluster()
    assert row.served_requests == row.planning_requests


def test_a_list_for_pods_that_wait_long_leaves_nothing_to_another_list(waiting: World, api_server: Slow) -> None:
    """Of the cluster state a NodePool was near its limits."""
    near_its_limits(waiting, limits={"cpu": 3000})
    waiting.cluster.put("pods", of_limited("limited-0"))
    waits_long(waiting, cpu_millicores=1800)
    api_server.slow = False
    plan(waiting)
    assert api_server.lists == 1
    row = waiting.state.cluster()
    assert row.served_requests == row.planning_requests
    assert not waiting.doorbells.messages_of("provision", "pods")


def test_pods_of_other_nodepools_are_as_many_as_there_is_time_for_after_the_first_plan(
    waiting: World, api_server: Slow
) -> None:
    """All that the first plan was of were planned again, though it had left no time for them."""
    near_its_limits(waiting, limits={"cpu": 3000})
    waiting.cluster.put("pods", of_limited("limited-0"))
    for number in range(MINIMUM_PODS + 50):
        small = builders.pod(f"small-{number}", cpu_millicores=100, phase="Pending")
        waiting.cluster.put("pods", msgspec.structs.replace(small, unschedulable=True))
    left = iter((60.0, 60.0))
    result = provision(waiting.ports, clock=waiting.clock.now, seconds_left=lambda: next(left, 1.0))
    (planned,) = result.plans
    placed = [len(node.pods) for node in planned.new_nodes] + [len(node.pods) for node in planned.existing_nodes]
    assert sum(placed) == MINIMUM_PODS
    assert 0 < result.postponed_pods <= 51
    assert waiting.doorbells.messages_of("provision", "pods"), "the others follow"
    head = waiting.state.cluster().head
    assert replay(head, blobs=waiting.ports.blobs, catalogs=waiting.ports.catalogs).agrees


def test_what_is_left_to_a_list_is_rung_for_at_the_end_of_the_pause_whatever_is_planned_meanwhile(
    waiting: World, api_server: Slow
) -> None:
    """The doorbell of that moment was for requests that counted as served: its pods waited for the sweep."""
    near_its_limits(waiting, limits={"cpu": 3000})
    waiting.cluster.put("pods", of_limited("limited-0"))
    for number in range(3):
        another = builders.pod(f"another-{number}", cpu_millicores=1800, phase="Pending")
        waiting.cluster.put("pods", msgspec.structs.replace(another, unschedulable=True))
        assert plan(waiting) == 1, "while the pause goes on as well"
        plan(waiting, *waiting.doorbells.receive("provision"))
    assert api_server.lists == 1
    waiting.clock.advance(PAUSE_SECONDS)
    plan(waiting, *waiting.doorbells.receive("provision"))
    assert api_server.lists == 2


def test_pods_do_not_wait_for_the_list_that_a_static_nodepool_is_counted_by(waiting: World, api_server: Slow) -> None:
    gates = frozenset({STATIC_CAPACITY})
    waiting.settings = msgspec.structs.replace(waiting.settings, feature_gates=gates)
    near_its_limits(waiting, replicas=1)
    for pod in waiting.cluster.pods(pending=True):
        large = {"cpu": 3000, "memory": 1}
        waiting.cluster.put("pods", msgspec.structs.replace(pod, requests=large))
    assert plan(waiting) == 1
    assert api_server.lists == 0
    assert planned_pods(waiting) == {"default/large"}
    head = waiting.state.cluster().head
    assert replay(head, blobs=waiting.ports.blobs, catalogs=waiting.ports.catalogs).agrees


def test_where_nodeclaims_cannot_be_listed_only_pods_of_the_nodepool_near_its_limits_wait(
    waiting: World, api_server: Slow
) -> None:
    near_its_limits(waiting, limits={"cpu": 3000})
    waiting.cluster.put("pods", of_limited("limited-0"))
    waiting.effects.inject(Fault("cluster", "nodeclaims", Unavailable("no answer"), times=9))
    assert plan(waiting) == 1
    assert planned_pods(waiting) == {"default/large"}


def test_a_plan_of_lists_that_cannot_be_stored_is_followed_by_a_pause(
    waiting: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual, lists = waiting.cluster.pods, list[int]()

    def pods(*, node: str = "", pending: bool = False, limit: int | None = None) -> tuple[Pod, ...]:
        if not node and not pending:
            lists.append(1)
            waiting.clock.advance(2)
        return usual(node=node, pending=pending, limit=limit)

    monkeypatch.setattr(waiting.cluster, "pods", pods)
    waiting.effects.inject(Fault("blobs", "put", Unavailable("no bucket")))
    for seconds, listed in ((0, 1), (7, 1), (1, 2)):
        waiting.clock.advance(seconds)
        with suppress(Unavailable):
            provision(waiting.ports, clock=waiting.clock.now)
        assert len(lists) == listed


def test_a_plan_that_fails_before_it_lists_has_no_pause(waiting: World) -> None:
    waiting.cluster_state.lag_seconds = 0
    waiting.effects.inject(Fault("blobs", "put", Unavailable("no bucket"), times=9))
    with pytest.raises(Unavailable):
        provision(waiting.ports, clock=waiting.clock.now)
    assert not waiting.state.cluster().failed_plans_pause_until


def test_what_fails_after_a_plan_of_lists_was_committed_is_followed_by_no_pause(
    waiting: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That plan did not fail, and the next one had not begun to list."""
    usual = waiting.cluster.pods

    def pods(*, node: str = "", pending: bool = False, limit: int | None = None) -> tuple[Pod, ...]:
        if not node and not pending:
            waiting.clock.advance(20)
            waiting.state.request_planning()
        return usual(node=node, pending=pending, limit=limit)

    monkeypatch.setattr(waiting.cluster, "pods", pods)
    monkeypatch.setattr("spotwright.workflows.provision.workflow.MAXIMUM_PENDING_DECISIONS", 1)
    with pytest.raises(Unavailable, match="1 committed decisions of"):
        provision(waiting.ports, clock=waiting.clock.now)
    assert len(waiting.state.cluster().pending_decisions) == 1
    assert not waiting.state.cluster().failed_plans_pause_until


def test_where_the_pause_cannot_be_noted_the_plan_fails_as_it_did(
    waiting: World, api_server: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse_note(waiting, FAILED_PLANS, monkeypatch)
    with pytest.raises(OutOfTime):
        provision(waiting.ports, clock=waiting.clock.now)
    assert not waiting.state.cluster().planner_until
    assert lists_after(waiting, api_server)


def test_the_pause_of_a_wrong_clock_holds_no_list_up(waiting: World, api_server: Slow) -> None:
    late = waiting.clock.milliseconds() + 10 * 60_000
    waiting.state.cluster_row = msgspec.structs.replace(waiting.state.cluster_row, failed_plans_pause_until=late)
    assert lists_after(waiting, api_server)


def test_a_notice_of_interruption_waits_for_no_pause(waiting: World, api_server: Slow) -> None:
    plan(waiting)
    api_server.slow = False
    waiting.interrupt_spot(instance_id(waiting.claims()[0].provider_id))
    assert waiting.run(10, until=lambda: len(waiting.claims()) > 1)
    assert api_server.lists > 1
    assert waiting.clock.milliseconds() < waiting.state.cluster().failed_plans_pause_until
