"""Nodes that have drifted are replaced: within their budgets, pods' places first, and told when that cannot be."""

import math
from collections.abc import Sequence

import msgspec
import pytest

from spotwright.disruption.blockers import nominated_until
from spotwright.disruption.breaker import Breaker
from spotwright.errors import Throttled
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.pod_constraints import PodAffinityTerm
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.disrupt.drift import commit_drift
from spotwright.workflows.disrupt.evaluate import NOMINATIONS_SECONDS, evaluate
from spotwright.workflows.lifecycle.actions import CLAIMS_SECONDS, SHOWN_SECONDS
from spotwright.workflows.planning.replay import replay
from spotwright.workflows.planning.snapshot import gather_live
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import epoch_ms
from tests.scenarios.lifecycle.conftest import are_initialized
from tests.scenarios.lifecycle.disruption.edits import edit, look, stamp

TEAM_B = {"team": "b"}


def with_nodes(world: World, count: int, *, consolidate: bool = False) -> None:
    """So many nodes with a pod each; only drift disrupts them, one at a time."""
    budgets = (Budget("1"), *(() if consolidate else (Budget("0", reasons=("Underutilized",)),)))
    world.cluster.update("nodepools", "default", budgets=budgets)
    stamp(world)
    look(world, "nodepools")
    world.deploy(builders.pod("inflate", cpu_millicores=5000), count)
    assert world.run(180, until=lambda: len(world.running_pods()) == count == len(world.claims()))
    assert world.run(10, until=lambda: are_initialized(world))


def relabel(world: World) -> None:
    edit(world, "nodepools", labels=TEAM_B)
    look(world, "nodepools")


def teams(world: World) -> list[str]:
    return sorted(claim.metadata.labels.get("team", "") for claim in world.claims())


def disrupted(world: World) -> list[NodeClaim]:
    """Claims that are disrupted and have their instance still."""
    return [
        claim
        for claim in world.claims()
        if claim.is_condition_true("DisruptionReason") and not claim.is_condition_true("InstanceTerminating")
    ]


def test_drifted_nodes_are_replaced_one_after_the_other_and_no_pod_is_without_a_place(world: World) -> None:
    with_nodes(world, 3)
    relabel(world)
    most = 0
    for _ in range(900):
        world.run(1)
        most = max(most, len(disrupted(world)))
        if teams(world) == ["b", "b", "b"]:
            break
    assert teams(world) == ["b", "b", "b"]
    assert most == 1
    assert world.run(60, until=lambda: len(world.running_pods()) == 3)
    assert "Disrupting NodeClaim: Drifted" in {event.message for event in world.cluster.events}


def test_drift_need_not_wait_for_the_minute(world: World) -> None:
    with_nodes(world, 1)
    world.run(60 - world.clock.now().second + 2)
    relabel(world)
    assert world.run(CLAIMS_SECONDS + 3, until=lambda: len(disrupted(world)) == 1)


def drift_as_it_joins(world: World) -> NodeClaim:
    """The claim of the second of two nodes, which drifts a moment after it joined; nothing is to disrupt the first."""
    with_nodes(world, 1)
    (first,) = world.claims()
    world.cluster.update("nodes", first.node_name, annotations={labels.DO_NOT_DISRUPT: "true"})
    world.run(60 - world.clock.now().second + 2)
    world.deploy(builders.pod("inflate", cpu_millicores=5000), 2)
    assert world.run(30, until=lambda: len(world.running_pods()) == 2)
    assert world.run(10, until=lambda: are_initialized(world))
    relabel(world)
    return max(world.claims(), key=nominated_until)


def test_drift_of_a_node_that_has_just_joined_need_not_wait_for_the_minute(world: World) -> None:
    """For so long it counts as nominated for the pods that it was launched for."""
    end = nominated_until(drift_as_it_joins(world))
    left = (end - world.clock.now()).total_seconds()
    assert NOMINATIONS_SECONDS < left < 58 - world.clock.now().second - 5, "the schedule comes later"
    assert world.run(math.ceil(left) + 5, until=lambda: len(disrupted(world)) == 1)


def test_many_evaluations_ring_once_for_the_end_of_a_nomination(world: World) -> None:
    end = nominated_until(drift_as_it_joins(world))
    for _ in range(5):
        world.doorbells.ring("disrupt", [Doorbell(world.cluster.name, "evaluate")])
        world.run(1)
    rung = [bell.at for bell in world.doorbells.messages if bell.doorbell.kind == "evaluate"]
    assert len([at for at in rung if at >= epoch_ms(end)]) == 1


def test_evaluations_when_nominations_end_keep_a_distance(world: World) -> None:
    """Where hundreds of drifted nodes join, a nomination ends at any time."""
    end = nominated_until(drift_as_it_joins(world))
    world.clock.advance((end - world.clock.now()).total_seconds() - 1)
    world.state.planners.pop("nominations", None)
    evaluate(world.ports, gather=gather_live, clock=world.clock.now)
    soonest = epoch_ms(world.clock.now()) + NOMINATIONS_SECONDS * 1000
    assert max(bell.at for bell in world.doorbells.messages if bell.doorbell.kind == "evaluate") == soonest


def test_nobody_evaluates_when_the_nominations_of_other_nodes_end(world: World) -> None:
    with_nodes(world, 2)
    assert max(map(nominated_until, world.claims())) > world.clock.now()
    evaluate(world.ports, gather=gather_live, clock=world.clock.now)
    assert "nominations" not in world.state.planners


def test_nobody_evaluates_when_an_empty_node_that_nothing_consolidates_is_nominated_no_more(world: World) -> None:
    world.cluster.update("nodepools", "default", consolidate_after_seconds=None)
    with_nodes(world, 1)
    world.deploy(builders.pod("inflate", cpu_millicores=5000), 0)
    assert world.run(15, until=lambda: not world.cluster.all("pods"))
    assert nominated_until(world.claims()[0]) > world.clock.now()
    evaluate(world.ports, gather=gather_live, clock=world.clock.now)
    assert "nominations" not in world.state.planners


@pytest.mark.parametrize("failing", ["state", "doorbells"])
def test_a_node_is_disrupted_though_nothing_can_be_rung_for_when_another_one_is_nominated_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    end = nominated_until(drift_as_it_joins(world))
    (first,) = (claim for claim in world.claims() if nominated_until(claim) != end)
    node = world.cluster.find("nodes", first.node_name)
    bare = msgspec.structs.replace(node.metadata, annotations={})
    world.cluster.put("nodes", msgspec.structs.replace(node, metadata=bare))
    ring, throttle = world.doorbells.ring, world.state.throttle

    def fail_to_ring(queue: str, bells: Sequence[Doorbell], *, delay_seconds: int = 0) -> None:
        if queue == "disrupt":
            raise Throttled("too many messages")
        ring(queue, bells, delay_seconds=delay_seconds)

    def fail_to_note(work: str, *, now: int, until: int) -> int:
        if work == "nominations":
            raise Throttled("too many writes")
        return throttle(work, now=now, until=until)

    world.state.planners.pop("nominations", None)
    if failing == "doorbells":
        monkeypatch.setattr(world.doorbells, "ring", fail_to_ring)
    else:
        monkeypatch.setattr(world.state, "throttle", fail_to_note)
    result = evaluate(world.ports, gather=gather_live, clock=world.clock.now)
    assert world.clock.now() < end
    assert result.committed == (first.name,)


def test_the_next_one_need_not_wait_for_the_minute_either(world: World) -> None:
    """A node whose instance terminates counts for no budget any more."""
    with_nodes(world, 3)
    relabel(world)

    def terminating() -> int:
        return sum(claim.is_condition_true("InstanceTerminating") for claim in world.claims())

    # The first is the canary, after which the second goes when it has proved itself.
    assert world.run(300, until=lambda: teams(world).count("b") == 2 and terminating() == 1)
    if world.clock.now().second > 50:
        world.run(61 - world.clock.now().second)
    assert world.run(CLAIMS_SECONDS + 3, until=lambda: len(disrupted(world)) == 1)


def test_drifted_nodes_stay_while_pods_wait_that_came_since_they_were_looked_at(world: World) -> None:
    with_nodes(world, 2)
    world.forwarder_runs = False
    relabel(world)
    assert world.run(10, until=lambda: any(claim.is_condition_true("Drifted") for claim in world.claims()))
    world.cluster.put("pods", builders.pod("late", cpu_millicores=5000, unschedulable=True))
    result = commit_drift(world.ports, now=world.clock.now(), seconds_left=None)
    assert result.obstacle == "1 node is needed for pending pods first"
    assert not result.committed


def test_when_a_pod_protects_a_drifted_node_no_more_it_is_replaced_soon(world: World) -> None:
    with_nodes(world, 1)
    (pod,) = world.running_pods()
    protected = pod.metadata.annotations | {labels.DO_NOT_DISRUPT: "true"}
    kept = world.cluster.put(
        "pods", msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, annotations=protected))
    )
    relabel(world)
    world.run(180)
    world.run(60 - world.clock.now().second + 2)
    assert not disrupted(world)
    bare = msgspec.structs.replace(kept.metadata, annotations=pod.metadata.annotations)
    world.cluster.put("pods", msgspec.structs.replace(kept, metadata=bare))
    world.doorbells.ring("lifecycle", [Doorbell(world.cluster.name, "node", pod.node_name)])
    assert world.run(SHOWN_SECONDS + 5, until=lambda: len(disrupted(world)) == 1)


def test_a_wider_budget_replaces_more_at_once_and_each_ends_by_itself(world: World) -> None:
    with_nodes(world, 3)
    world.cluster.update("nodepools", "default", budgets=(Budget("2"), Budget("0", reasons=("Underutilized",))))
    relabel(world)
    assert world.run(300, until=lambda: len(disrupted(world)) == 2)
    assert world.run(900, until=lambda: teams(world) == ["b", "b", "b"])
    rows = [world.state.command(key.removeprefix("command#")) for key in world.state.rows if key.startswith("command#")]
    assert [len(row.candidates) for row in rows if row] == [1, 1, 1]


@pytest.mark.parametrize("reasons", [(), ("Drifted",)])
def test_a_closed_budget_keeps_them(world: World, reasons: tuple[str, ...]) -> None:
    with_nodes(world, 2)
    world.cluster.update("nodepools", "default", budgets=(Budget("0", reasons=reasons),))
    relabel(world)
    world.run(300)
    assert teams(world) == ["", ""]
    assert not disrupted(world)


def test_consolidate_after_never_does_not_keep_a_drifted_node(world: World) -> None:
    """F18 of Karpenter's behavior: drift is not consolidation."""
    with_nodes(world, 1)
    world.cluster.update("nodepools", "default", consolidate_after_seconds=None)
    relabel(world)
    assert world.run(300, until=lambda: teams(world) == ["b"])


def test_a_pod_that_has_no_other_place_keeps_its_node_and_another_one_goes(world: World) -> None:
    """F13 of Karpenter's behavior."""
    with_nodes(world, 2)
    pod = world.running_pods()[0]
    # Nothing that can be bought has so much.
    world.cluster.put("pods", msgspec.structs.replace(pod, requests=pod.requests | {"cpu": 150_000}))
    relabel(world)
    assert world.run(300, until=lambda: teams(world) == ["", "b"])
    world.run(120)
    assert teams(world) == ["", "b"]
    blocked = [event.message for event in world.cluster.events if event.reason == "DisruptionBlocked"]
    assert any(f"pod {pod.key} would have no place" in message for message in blocked)


def test_do_not_disrupt_keeps_a_drifted_node_unless_it_has_a_grace_period(world: World) -> None:
    """F16 of Karpenter's behavior."""
    with_nodes(world, 1)
    (pod,) = world.running_pods()
    about = msgspec.structs.replace(pod.metadata, annotations={labels.DO_NOT_DISRUPT: "true"})
    world.cluster.put("pods", msgspec.structs.replace(pod, metadata=about))
    relabel(world)
    world.run(180)
    assert teams(world) == [""]
    (claim,) = world.claims()
    world.cluster.put("nodeclaims", msgspec.structs.replace(claim, termination_grace_period_seconds=60))
    assert world.run(180, until=lambda: any(c.metadata.deletion_timestamp is not None for c in world.claims()))


def test_a_replacement_that_never_joins_leaves_the_drifted_node_as_it_was(world: World) -> None:
    with_nodes(world, 1)
    world.kubelets.boot_seconds = 3600.0
    relabel(world)
    assert world.run(300, until=lambda: len(disrupted(world)) == 1)
    assert world.run(900, until=lambda: not disrupted(world))
    (old,) = [claim for claim in world.claims() if "team" not in claim.metadata.labels]
    node = world.cluster.node(old.node_name)
    assert node is not None
    assert labels.DISRUPTED not in {taint.key for taint in node.taints}
    assert len(world.running_pods()) == 1


def test_a_replacement_that_is_never_initialized_stays_and_takes_no_pods_of_the_drifted_nodes(world: World) -> None:
    """Consolidation does not use it either, while the roll-out is stopped."""
    apart = PodAffinityTerm(labels.HOSTNAME, (NodeSelectorRequirement("app", "In", ("inflate",)),), ("default",))
    world.cluster.update("nodepools", "default", consolidate_after_seconds=0, budgets=(Budget("10%"),))
    stamp(world)
    look(world, "nodepools")
    world.deploy(builders.pod("inflate", labels={"app": "inflate"}, pod_anti_affinity=(apart,)), 2)
    assert world.run(180, until=lambda: len(world.running_pods()) == 2 == len(world.claims()))
    before = {claim.metadata.uid for claim in world.claims()}
    edit(world, "nodepools", startup_taints=(Taint("example.com/taint", "PreferNoSchedule"),))
    look(world, "nodepools")
    assert world.run(300, until=lambda: len(disrupted(world)) == 1)
    assert world.run(660, until=lambda: not disrupted(world))
    assert len(world.claims()) == len(world.cluster.nodes()) == 3
    for _ in range(240):
        world.run(1)
        assert before <= {claim.metadata.uid for claim in world.claims()}
        assert not disrupted(world)
    assert len(world.running_pods()) == 2


def test_a_decision_to_replace_is_replayed_as_it_was_made(world: World) -> None:
    with_nodes(world, 1)
    relabel(world)
    assert world.run(300, until=lambda: teams(world) == ["b"])
    replays = [
        replay(key, blobs=world.ports.blobs, catalogs=world.ports.catalogs)
        for key in world.blobs.bodies
        if key.startswith("decisions/")
    ]
    drifts = [
        result for result in replays if {disruption.reason for disruption in result.decision.disruptions} == {"Drifted"}
    ]
    assert drifts
    assert all(result.agrees for result in drifts)


def test_an_empty_node_that_has_drifted_goes_as_an_empty_one(world: World) -> None:
    """G11 of Karpenter's behavior."""
    with_nodes(world, 1)
    world.deploy(builders.pod("inflate", cpu_millicores=5000), 0)
    (claim,) = world.claims()
    drifting = (*claim.conditions, Condition("Drifted", "True", "NodePoolDrifted"))
    world.cluster.put("nodeclaims", msgspec.structs.replace(claim, conditions=drifting))
    assert world.run(200, until=lambda: not world.claims())
    assert "Disrupting NodeClaim: Empty" in {event.message for event in world.cluster.events}


def test_drift_that_budgets_let_go_at_once_does_not_open_the_breaker(world: World) -> None:
    """A canary goes first, and each node has its replacement."""
    with_nodes(world, 44)
    world.cluster.update("nodepools", "default", budgets=(Budget("100%"), Budget("0", reasons=("Underutilized",))))
    relabel(world)
    assert world.run(420, until=lambda: teams(world) == ["b"] * 44)
    assert not world.state.stored_breaker.open_until_ms
    assert [batch.nodes for batch in world.state.stored_breaker.batches] == [1], "the canary"


def test_drifted_nodes_that_nothing_replaces_count_for_the_breaker_whatever_budgets_allow(world: World) -> None:
    """They have no canary, and the breaker is for just such a mistake: pods that are read as gone."""
    with_nodes(world, 44)
    keeps = tuple(Budget("0", reasons=(reason,)) for reason in ("Empty", "Underutilized"))
    world.cluster.update("nodepools", "default", budgets=(Budget("100%"), *keeps))
    world.deploy(builders.pod("inflate", cpu_millicores=5000), 0)
    relabel(world)
    assert world.run(300, until=lambda: len(world.claims()) <= 22)
    world.run(300)
    assert len(world.claims()) == 22


def hold_after_canary(world: World, count: int, drifted: str) -> None:
    """So many nodes have drifted, and the first was replaced; the breaker is open. ``drifted``: the budget for it."""
    with_nodes(world, count)
    world.cluster.update("nodepools", "default", budgets=(Budget(drifted), Budget("0", reasons=("Underutilized",))))
    relabel(world)
    assert world.run(300, until=lambda: len(disrupted(world)) == 1)
    world.state.stored_breaker = Breaker(open_until_ms=epoch_ms(world.clock.now()) + 3_600_000)
    assert world.run(300, until=lambda: teams(world) == [*[""] * (count - 1), "b"])
    world.run(60)


def test_a_breaker_that_opened_meanwhile_holds_drifted_nodes_that_do_not_count_for_it(world: World) -> None:
    hold_after_canary(world, 3, "100%")
    held = commit_drift(world.ports, now=world.clock.now(), seconds_left=None)
    assert held.breaker_open
    assert not held.committed
    world.state.stored_breaker = Breaker()
    assert len(commit_drift(world.ports, now=world.clock.now(), seconds_left=None).committed) == 2
    assert world.state.stored_breaker == Breaker()


@pytest.mark.parametrize(("budget", "has_pods"), [("43", True), ("100%", False)])
def test_drifted_nodes_count_that_budgets_or_lack_of_pods_tell_apart(world: World, budget: str, has_pods: bool) -> None:
    """After a canary: budgets keep one of them, or nothing comes for them."""
    hold_after_canary(world, 44, budget)
    if not has_pods:
        world.deploy(builders.pod("inflate", cpu_millicores=5000), 0)
    world.state.stored_breaker = Breaker()
    result = commit_drift(world.ports, now=world.clock.now(), seconds_left=None)
    assert (len(result.committed), result.breaker_open) == (22, True)


def test_nodes_that_do_not_count_go_beside_the_first_of_those_that_do(world: World) -> None:
    """Of another NodePool, which has no roll-out."""
    off = {labels.DRIFT_ROLLOUT: "Off"}
    world.cluster.put("nodepools", builders.nodepool("other", metadata=ObjectMeta("other", annotations=off)))
    world.cluster.update("nodepools", "other", budgets=(Budget("100%"), Budget("0", reasons=("Underutilized",))))
    hold_after_canary(world, 3, "100%")
    world.deploy(builders.pod("theirs", cpu_millicores=5000, node_selector={labels.NODEPOOL: "other"}), 21)
    assert world.run(180, until=lambda: len(world.running_pods()) == 24)
    for claim in world.claims():
        if claim.nodepool == "other":
            drifting = (*claim.conditions, Condition("Drifted", "True", "NodePoolDrifted"))
            world.cluster.put("nodeclaims", msgspec.structs.replace(claim, conditions=drifting))
    world.run(30)
    world.state.stored_breaker = Breaker()
    result = commit_drift(world.ports, now=world.clock.now(), seconds_left=None)
    nodepools = [claim.nodepool for claim in world.claims() if claim.name in result.committed]
    assert (nodepools.count("default"), nodepools.count("other"), result.breaker_open) == (2, 20, True)


def test_of_more_than_the_breaker_admits_the_first_go(world: World) -> None:
    """Twenty nodes may go in ten minutes; with none of them, it would open again and again."""
    with_nodes(world, 21)
    world.cluster.update("nodepools", "default", budgets=(Budget("100%"), Budget("0", reasons=("Underutilized",))))
    world.cluster.update("nodepools", "default", annotations={labels.DRIFT_ROLLOUT: "Off"})
    relabel(world)
    assert world.run(300, until=lambda: len(disrupted(world)) == 20)
