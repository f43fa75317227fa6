"""Disruption that is found each minute and refused each minute: how often the cluster is listed for it."""

import logging
from collections.abc import Callable, Sequence
from datetime import timedelta
from functools import partial

import msgspec
import pytest

from spotwright.errors import Conflict, OutOfTime, Unavailable
from spotwright.model import labels
from spotwright.model.cluster_state import ClusterObjects
from spotwright.model.karpenter.capacity_buffer import CapacityBuffer
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.model.snapshot import CAPACITY_BUFFER, LaunchedInMinute
from spotwright.simulation import builders
from spotwright.simulation.effects import Crash, Fault
from spotwright.simulation.world import World
from spotwright.telemetry import log_lines
from spotwright.workflows.disrupt.pauses import LONGEST_PAUSE_SECONDS, PAUSE_PER_SECOND
from spotwright.workflows.disrupt.workflow import disrupt
from spotwright.workflows.planning import overlay
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import Row
from tests.scenarios.lifecycle.conftest import fresh_world
from tests.scenarios.lifecycle.disruption import scheduled_events
from tests.scenarios.lifecycle.disruption.edits import edit

LIST_SECONDS = 12
HOUR_SECONDS = 3600
PAUSE_SECONDS = PAUSE_PER_SECOND * LIST_SECONDS
MOST_LISTS = HOUR_SECONDS // PAUSE_SECONDS
EVERY_NODE = (Budget("100%"),)
ON_DEMAND = builders.capacity_types(labels.ON_DEMAND)


def running(
    cpu_millicores: int = 1800,
    *requirements: NodeSelectorRequirement,
    announce: Callable[[World, NodeClaim], None] | None = None,
) -> World:
    """A node with a pod, which nothing disrupts until now; the forwarder ships a cluster state."""
    world = fresh_world()
    world.cluster_state.lag_seconds = 0
    world.cluster.update("nodepools", "default", budgets=(Budget("0"),), requirements=requirements)
    world.deploy(builders.pod("web", cpu_millicores=cpu_millicores), 1)
    assert world.run(180, until=lambda: len(world.running_pods()) == 1)
    world.run(600)
    if announce is not None:
        announce(world, world.claims()[0])
        world.run(30)
    world.doorbells.messages.clear()
    world.cluster.update("nodepools", "default", budgets=EVERY_NODE)
    return world


def recommend(world: World, claim: NodeClaim) -> None:
    world.deliver_event("EC2 Instance Rebalance Recommendation", {"instance-id": scheduled_events.instance(claim)})


def drifted() -> World:
    world = running()
    (claim,) = world.claims()
    drift = Condition("Drifted", "True", "NodePoolDrifted", last_transition_time=world.clock.seconds())
    world.cluster.update("nodeclaims", claim.name, conditions=(*claim.conditions, drift))
    return world


def too_large() -> World:
    world = running(7000, *ON_DEMAND)
    (pod,) = world.running_pods()
    world.cluster.put("pods", msgspec.structs.replace(pod, requests=pod.requests | {"cpu": 800}))
    return world


FOUND: dict[str, Callable[[], World]] = {
    "drift": drifted,
    "a scheduled change": lambda: running(announce=partial(scheduled_events.announce, days=3)),
    "a rebalance recommendation": lambda: running(announce=recommend),
    "consolidation": too_large,
}


def protect(world: World) -> None:
    """A pod is protected from disruption, which the cluster state does not show."""
    (pod,) = world.running_pods()
    annotations = pod.metadata.annotations | {labels.DO_NOT_DISRUPT: "true"}
    world.cluster.put("pods", with_annotations(pod, annotations))

    def unprotected(objects: ClusterObjects) -> ClusterObjects:
        pods = tuple(with_annotations(shown, {}) for shown in objects.pods)
        return msgspec.structs.replace(objects, pods=pods)

    world.cluster_state.lie = unprotected


def with_annotations(pod: Pod, annotations: dict[str, str]) -> Pod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=annotations))


def lose_commits(world: World) -> None:
    """Another decision is always committed first."""

    def commit(**committed: object) -> None:
        raise Conflict("another was first", code="ConditionalCheckFailed")

    world.state.commit = commit  # type: ignore[method-assign]


def reach_ceiling(world: World) -> None:
    """As many nodes were launched within the hour as may be, and are again and again."""
    world.settings = msgspec.structs.replace(world.settings, max_nodes_per_hour=1)
    minute = int(world.clock.now().timestamp()) // 60
    launched = tuple(LaunchedInMinute(minute + number, 1, 1) for number in range(90))
    world.state.cluster_row = msgspec.structs.replace(world.state.cluster_row, launched=launched)


REFUSED = [protect, lose_commits]


def count_lists(world: World, monkeypatch: pytest.MonkeyPatch, seconds: float = LIST_SECONDS) -> list[int]:
    """The seconds at which all pods were listed, which takes so long."""
    began, lists = world.clock.now(), list[int]()
    usual = world.cluster.pods

    def pods(*, node: str = "", pending: bool = False, limit: int | None = None) -> tuple[Pod, ...]:
        if not node and not pending:
            lists.append(int((world.clock.now() - began).total_seconds()))
            world.clock.advance(seconds)
        return usual(node=node, pending=pending, limit=limit)

    monkeypatch.setattr(world.cluster, "pods", pods)
    return lists


def evaluate_each_minute(world: World, seconds: int = HOUR_SECONDS) -> None:
    """Nothing but ``disrupt`` runs: each minute, and when it has rung for itself."""
    due, end = world.clock.now(), world.clock.now() + timedelta(seconds=seconds)
    while world.clock.now() < end:
        bells = world.doorbells.receive("disrupt")
        if world.clock.now() >= due:
            due += timedelta(minutes=1)
            bells = (*bells, Doorbell(world.cluster.name, "evaluate"))
        if bells:
            invoke(world, bells)
        world.clock.advance(1)


def invoke(world: World, bells: tuple[Doorbell, ...]) -> None:
    """What fails returns in six minutes."""
    try:
        tuple(disrupt(world.ports, bells, clock=world.clock.now))
    except OutOfTime:
        world.doorbells.ring("disrupt", bells, delay_seconds=360)


@pytest.mark.parametrize("found", FOUND)
def test_what_a_ceiling_of_launches_holds_back_is_not_read_live(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit alone knew of the ceiling: the cluster was listed each minute as long as it was reached."""
    world = FOUND[found]()
    reach_ceiling(world)
    lists = count_lists(world, monkeypatch)
    evaluate_each_minute(world)
    assert not lists
    assert any("MAX_NODES_PER_HOUR" in event.message for event in world.cluster.events)


@pytest.mark.parametrize("refuse", REFUSED)
@pytest.mark.parametrize("found", FOUND)
def test_what_is_refused_each_minute_lists_the_cluster_for_a_twentieth_of_the_time(
    found: str, refuse: Callable[[World], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was listed each minute, for ever."""
    world = FOUND[found]()
    refuse(world)
    lists = count_lists(world, monkeypatch)
    evaluate_each_minute(world)
    assert 0 < len(lists) <= MOST_LISTS


@pytest.fixture
def refused(monkeypatch: pytest.MonkeyPatch) -> tuple[World, list[int]]:
    """A drifted node that was refused a moment ago, and each list of the cluster."""
    world = drifted()
    protect(world)
    lists = count_lists(world, monkeypatch)
    assert is_listed(world, lists)
    return world, lists


def is_listed(world: World, lists: list[int], after_seconds: float = 0) -> bool:
    """Whether the cluster is listed for an evaluation so many seconds from now."""
    world.clock.advance(after_seconds)
    before = len(lists)
    evaluate(world)
    return len(lists) > before


def test_the_pause_is_twenty_times_what_the_refused_commit_took(
    refused: tuple[World, list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    world, lists = refused
    with caplog.at_level(logging.INFO):
        assert not is_listed(world, lists, PAUSE_SECONDS - 1)
        assert len(left_evaluations(caplog)) == 1
        assert is_listed(world, lists, 1)
        assert len(left_evaluations(caplog)) == 1


def left_evaluations(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Why the cluster was not listed."""
    return [vars(record)["reason"] for record in caplog.records if record.message == log_lines.LEFT_EVALUATION.message]


def another_budget(world: World) -> None:
    edit(world, "nodepools", budgets=(Budget("1"),))


def another_class(world: World) -> None:
    edit(world, "ec2nodeclasses")


def another_pod_on_the_node(world: World) -> None:
    (pod,) = world.running_pods()
    world.cluster.put("pods", builders.pod("another", cpu_millicores=1, node_name=pod.node_name, phase="Running"))


def another_node(world: World) -> None:
    (claim,) = world.claims()
    metadata = msgspec.structs.replace(claim.metadata, uid="another")
    world.cluster.put("nodeclaims", msgspec.structs.replace(claim, metadata=metadata))


@pytest.mark.parametrize("change", [another_budget, another_class, another_pod_on_the_node, another_node])
def test_when_something_of_the_nodes_has_changed_nothing_is_waited_for(
    refused: tuple[World, list[int]], change: Callable[[World], None]
) -> None:
    world, lists = refused
    change(world)
    assert is_listed(world, lists)


def test_what_changes_elsewhere_ends_no_pause(
    refused: tuple[World, list[int]], caplog: pytest.LogCaptureFixture
) -> None:
    """In a large cluster pods and nodes come and go all the time."""
    world, lists = refused
    world.cluster.put("pods", builders.pod("elsewhere", node_name="elsewhere", phase="Running"))
    (claim,) = world.claims()
    settled = tuple(condition for condition in claim.conditions if condition.type != "Drifted")
    elsewhere = msgspec.structs.replace(claim.metadata, name="elsewhere", uid="elsewhere")
    world.cluster.put(
        "nodeclaims",
        msgspec.structs.replace(
            claim, metadata=elsewhere, conditions=settled, provider_id="aws:///a/i-0elsewhere", node_name="elsewhere"
        ),
    )
    with caplog.at_level(logging.INFO):
        assert not is_listed(world, lists)
    assert left_evaluations(caplog) == [
        f"the cluster was listed for the same nodes (Drifted), which is done again in {PAUSE_SECONDS + 1} s"
    ]


def test_nodes_that_are_refused_for_one_reason_are_judged_for_another_at_once(
    refused: tuple[World, list[int]],
) -> None:
    world, lists = refused
    scheduled_events.announce(world, world.claims()[0], days=3)
    row = world.state.notices()[0]
    world.state.save(msgspec.structs.replace(row, phase="scheduled"))
    assert is_listed(world, lists)
    assert {pause.reason for pause in world.state.cluster().commit_pauses} == {"Drifted", "ScheduledChange"}
    assert not is_listed(world, lists), "neither pause ends the other"


def test_no_pause_of_commits_is_longer_than_a_few_minutes(monkeypatch: pytest.MonkeyPatch) -> None:
    world = drifted()
    protect(world)
    lists = count_lists(world, monkeypatch, 50)
    assert is_listed(world, lists)
    assert not is_listed(world, lists, LONGEST_PAUSE_SECONDS - 1)
    assert is_listed(world, lists, 1)


@pytest.mark.parametrize("change", [None, another_pod_on_the_node])
def test_a_commit_that_is_cut_off_is_followed_by_the_longest_pause_for_whatever_nodes(
    change: Callable[[World], None] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a large cluster they are others each minute."""
    world = drifted()
    world.effects.crash_at("state", "commit")
    with pytest.raises(Crash):
        evaluate(world)
    world.state.cluster_row = msgspec.structs.replace(world.state.cluster_row, pending_decisions=())
    world.state.planners.clear()
    lists = count_lists(world, monkeypatch)
    if change is not None:
        change(world)
    assert not is_listed(world, lists, LONGEST_PAUSE_SECONDS - 1)
    assert is_listed(world, lists, 1)


def evaluate(world: World) -> None:
    tuple(disrupt(world.ports, [Doorbell(world.cluster.name, "evaluate")], clock=world.clock.now))


@pytest.mark.parametrize("change", [None, another_pod_on_the_node])
def test_a_commit_that_fails_is_followed_by_a_pause_by_what_it_took_for_whatever_nodes(
    change: Callable[[World], None] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = drifted()
    lists = count_lists(world, monkeypatch)
    world.effects.inject(Fault("cluster", "pods", OutOfTime("the invocation ends")))
    with pytest.raises(OutOfTime):
        evaluate(world)
    if change is not None:
        change(world)
    assert not is_listed(world, lists, PAUSE_SECONDS - 1)
    assert is_listed(world, lists, 1)


def test_the_pause_of_a_wrong_clock_holds_no_commit_up(refused: tuple[World, list[int]]) -> None:
    world, lists = refused
    (pause,) = world.state.cluster().commit_pauses
    late = msgspec.structs.replace(pause, until=world.clock.milliseconds() + 3_600_000)
    world.state.pause_commits((late,))
    assert is_listed(world, lists)


def test_nodes_are_disrupted_where_no_pause_can_be_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    world = drifted()
    world.effects.inject(Fault("state", "pause_commits", Unavailable("no answer"), times=9))
    lists = count_lists(world, monkeypatch)
    assert is_listed(world, lists)
    assert world.state.cluster().pending_decisions


def lose_breaker(world: World) -> None:
    """Another invocation always counts disruptions first."""
    world.effects.inject(Fault("state", "save_breaker", Conflict("another was first"), times=9))


@pytest.mark.parametrize(("seconds", "pause"), [(2, 40), (0, 1)])
@pytest.mark.parametrize("lose", [lose_commits, lose_breaker])
def test_a_consolidation_that_loses_its_commit_is_judged_again_after_the_pause(
    lose: Callable[[World], None], seconds: int, pause: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was judged again a second later, by another list, until it was dropped."""
    world = too_large()
    lists = count_lists(world, monkeypatch, seconds)
    lose(world)
    evaluate_each_minute(world, 15)
    tuple(disrupt(world.ports, world.doorbells.receive("disrupt"), clock=world.clock.now))
    assert len(lists) == 1
    (again,) = world.doorbells.messages_of("disrupt", "validate")
    assert again.at - world.clock.milliseconds() == pause * 1000


@pytest.mark.parametrize("lose", [lose_commits, lose_breaker])
def test_a_consolidation_that_loses_its_commit_is_given_up_where_the_pause_outlasts_it(
    lose: Callable[[World], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its nodes were locked until it was dropped, and an event said that nobody had judged it."""
    world = too_large()
    count_lists(world, monkeypatch)
    lose(world)
    evaluate_each_minute(world, 15)
    tuple(disrupt(world.ports, world.doorbells.receive("disrupt"), clock=world.clock.now))
    assert not world.doorbells.messages_of("disrupt", "validate")
    assert not world.state.commands()
    (event,) = (event for event in world.cluster.events if event.reason == "ConsolidationRejected")
    assert "another decision was made first" in event.message


def test_a_consolidation_that_was_refused_is_not_proposed_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    world = too_large()
    protect(world)
    count_lists(world, monkeypatch)
    evaluate_each_minute(world, 240)
    assert len([event for event in world.cluster.events if event.reason == "ConsolidationCandidate"]) == 1


def empty_nodes(number: int, *, beside: int = 1) -> World:
    """Nodes that nobody needs ``beside`` some that stay; their budget kept them until now. The forwarder ships a
    cluster state."""
    world = running()
    world.cluster.update("nodepools", "default", budgets=(Budget("0"),))
    web = builders.pod("web", cpu_millicores=1800)
    world.deploy(web, number + beside)
    assert world.run(180, until=lambda: len(world.running_pods()) == number + beside)
    world.deploy(web, beside)
    world.run(600)
    assert len(world.claims()) == number + beside
    for pod in world.running_pods():
        world.cluster.put("pods", with_annotations(pod, {labels.DO_NOT_DISRUPT: "true"}))
    world.doorbells.messages.clear()
    world.cluster.update("nodepools", "default", budgets=EVERY_NODE)
    return world


def fail_lists(world: World) -> None:
    world.effects.inject(Fault("cluster", "pods", OutOfTime("the invocation ends"), times=10_000))


def a_pod_each_minute(world: World) -> None:
    """On one of the nodes, each minute another: what is known of the nodes is never the same."""
    (first, *_), usual = world.claims(), world.state.create

    def create(row: Row) -> bool:
        name = f"daemon-{world.clock.milliseconds()}"
        world.cluster.put("pods", builders.daemonset_pod(name, first.node_name))
        return usual(row)

    world.state.create = create  # type: ignore[method-assign]


def a_capacity_buffer(world: World) -> None:
    """Empty nodes may have its room, so that the cluster is listed for any number of them."""
    world.settings = msgspec.structs.replace(world.settings, feature_gates=(CAPACITY_BUFFER,))
    world.cluster.put("capacitybuffers", CapacityBuffer(ObjectMeta("spare", "default"), pod_template_ref="web"))


@pytest.mark.parametrize("change", [None, a_pod_each_minute, a_capacity_buffer])
def test_empty_nodes_whose_lists_fail_have_the_cluster_listed_for_a_twentieth_of_the_time(
    change: Callable[[World], None] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was listed for each proposal, for ever."""
    monkeypatch.setattr(overlay, "MAXIMUM_CANDIDATES", 0)
    world = empty_nodes(3)
    if change is not None:
        change(world)
    lists = count_lists(world, monkeypatch)
    fail_lists(world)
    evaluate_each_minute(world)
    assert 0 < len(lists) <= MOST_LISTS


def test_while_lists_fail_as_many_empty_nodes_go_as_are_read_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlay, "MAXIMUM_CANDIDATES", 2)
    world = empty_nodes(3)
    count_lists(world, monkeypatch)
    fail_lists(world)
    assert world.run(300, until=lambda: len(world.claims()) == 1)


@pytest.mark.parametrize(("listed", "pause"), [(True, 40), (False, 1)])
@pytest.mark.parametrize("lose", [lose_commits, lose_breaker])
def test_empty_nodes_that_lose_their_commit_are_validated_again_after_the_pause_of_a_list(
    lose: Callable[[World], None], listed: bool, pause: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were listed for again a second later, until they were dropped."""
    monkeypatch.setattr(overlay, "MAXIMUM_CANDIDATES", 0 if listed else 3)
    world = empty_nodes(3)
    lists = count_lists(world, monkeypatch, 2)
    lose(world)
    evaluate_each_minute(world, 15)
    tuple(disrupt(world.ports, world.doorbells.receive("disrupt"), clock=world.clock.now))
    assert len(lists) == int(listed)
    (again,) = world.doorbells.messages_of("disrupt", "validate")
    assert again.at - world.clock.milliseconds() == pause * 1000
    world.clock.advance(pause)
    tuple(disrupt(world.ports, world.doorbells.receive("disrupt"), clock=world.clock.now))
    assert len(lists) == 2 * int(listed)


@pytest.mark.parametrize("seconds", [2, 2.03])
def test_a_doorbell_that_takes_long_to_ring_does_not_have_empty_nodes_given_up(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause after the list was counted from a later moment than the doorbell, which came before its end."""
    monkeypatch.setattr(overlay, "MAXIMUM_CANDIDATES", 0)
    world = empty_nodes(3)
    lists = count_lists(world, monkeypatch, seconds)
    lose_breaker(world)
    evaluate_each_minute(world, 15)
    usual = world.doorbells.ring

    def ring(queue: str, bells: Sequence[Doorbell], *, delay_seconds: int = 0) -> None:
        usual(queue, bells, delay_seconds=delay_seconds)
        world.clock.advance(0.04)

    monkeypatch.setattr(world.doorbells, "ring", ring)
    tuple(disrupt(world.ports, world.doorbells.receive("disrupt"), clock=world.clock.now))
    (again,) = world.doorbells.messages_of("disrupt", "validate")
    world.clock.advance((again.at - world.clock.milliseconds()) / 1000)
    tuple(disrupt(world.ports, world.doorbells.receive("disrupt"), clock=world.clock.now))
    assert len(lists) == 2


def followers_alone() -> World:
    """One node, on which CoreDNS alone runs."""
    world = empty_nodes(1, beside=0)
    dns = builders.pod(
        "coredns", namespace="kube-system", labels={"k8s-app": "kube-dns"}, node_name=world.claims()[0].node_name
    )
    world.cluster.put("pods", msgspec.structs.replace(dns, phase="Running"))
    return world


def test_a_node_with_followers_alone_is_listed_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where there is no cluster state it was listed for its emptiness, and then for its followers."""
    world = followers_alone()
    evaluate_each_minute(world, 15)
    world.cluster_state.lag_seconds = None
    lists = count_lists(world, monkeypatch)
    tuple(disrupt(world.ports, world.doorbells.receive("disrupt"), clock=world.clock.now))
    assert len(lists) == 1
    assert world.state.cluster().pending_decisions


@pytest.mark.parametrize("refuse", [fail_lists, lose_commits])
def test_a_node_with_followers_alone_that_stays_is_listed_for_a_twentieth_of_the_time(
    refuse: Callable[[World], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is read by name, and all other pods of the cluster are listed after that."""
    world = followers_alone()
    lists = count_lists(world, monkeypatch)
    refuse(world)
    evaluate_each_minute(world)
    assert 0 < len(lists) <= MOST_LISTS


def test_a_proposal_that_would_be_listed_for_in_a_pause_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its nodes were locked for two minutes, whatever else was to be done with them."""
    world = followers_alone()
    lists = count_lists(world, monkeypatch)
    lose_commits(world)
    evaluate_each_minute(world, 60)
    assert len(lists) == 1
    evaluate(world)
    (proposal,) = world.state.commands()
    assert proposal.phase == "proposed"
    evaluate_each_minute(world, 20)
    assert not world.state.commands()
    assert len(lists) == 1
