"""What `kubectl describe nodeclaim` tells of a life: in order, without repeats, and why it ended."""

from collections import Counter
from contextlib import suppress
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from spotwright.decisions.decision import Decision, Disruption, Launch, encode_decision
from spotwright.disruption.breaker import Batch
from spotwright.errors import Conflict, Throttled, Unavailable
from spotwright.model import labels
from spotwright.model.ec2.fleet import FleetResult
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.requirements import NodeSelectorRequirement, Operator
from spotwright.scheduling.plan import NewNode
from spotwright.simulation import builders
from spotwright.simulation.effects import Crash, Fault
from spotwright.simulation.world import World
from spotwright.telemetry.events import place_in_life
from spotwright.workflows.disrupt import consolidate
from spotwright.workflows.disrupt.validate import validate
from spotwright.workflows.lifecycle.launch import decisions
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import CommandRow
from tests.scenarios.lifecycle.conftest import are_initialized
from tests.scenarios.lifecycle.disruption.edits import edit

MINUTES = 60
SMALL = builders.pod("small", cpu_millicores=800)
ON_DEMAND = builders.capacity_types(labels.ON_DEMAND)
CONSOLIDATION = ("ConsolidationCandidate", "ConsolidationApproved", "ConsolidationRejected")
MOVE = "is replaced with on-demand c5.large (savings: $0.2880/h)"


@pytest.fixture
def lived(world: World) -> World:
    """A node that runs a pod for some minutes."""
    world.deploy(builders.pod("web", cpu_millicores=1800), 1)
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)
    assert world.run(10, until=lambda: are_initialized(world))
    return world


def story(world: World, name: str) -> list[tuple[str, str]]:
    """Reason and message of the events of an object, as kubectl shows them: times have whole seconds."""
    told = [event for event in world.cluster.events if event.name == name]
    told.sort(key=lambda event: (event.at.replace(microsecond=0), place_in_life(event.reason)))
    return [(event.reason, event.message) for event in told]


def reasons(world: World, name: str) -> list[str]:
    return [reason for reason, _ in story(world, name)]


def test_a_quiet_life_is_told_once(lived: World) -> None:
    (claim,) = lived.claims()
    lived.run(10 * MINUTES)
    told = reasons(lived, claim.name)
    assert told[:5] == ["Launched", "Registered", "Initialized", "Ready", "ConsistentStateFound"]
    assert len(told) == len(set(told))


@pytest.mark.parametrize("seconds", [None, 1800], ids=["never", "half-an-hour"])
def test_what_consolidate_after_keeps_is_told_once_or_not_at_all(world: World, seconds: int | None) -> None:
    """As in Karpenter: Never is said, and of a time that has not passed the condition Consolidatable says enough."""
    edit(world, "nodepools", consolidate_after_seconds=seconds)
    world.deploy(builders.pod("web", cpu_millicores=1800), 1)
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)
    world.run(5 * MINUTES)
    (claim,) = world.claims()
    said = [message for reason, message in story(world, claim.name) if reason == "Unconsolidatable"]
    assert said == (['NodePool "default" has consolidation disabled'] if seconds is None else [])


def test_a_node_that_never_joined_says_so_when_its_claim_goes(world: World) -> None:
    world.deploy(builders.pod("web", cpu_millicores=1800), 1)
    world.run(1)
    (claim,) = world.claims()
    world.kubelets.broken_instances.update(instance.id for instance in world.ec2.live_instances())
    assert world.run(17 * MINUTES, until=lambda: world.cluster.find("nodeclaims", claim.name) is None)
    assert story(world, claim.name)[1] == (
        "Deleting",
        "Deleting the NodeClaim: not Registered 15 minutes after 2026-01-05T09:00:00Z:"
        " Node not registered with cluster",
    )
    assert reasons(world, claim.name)[2:] == ["InstanceTerminating", "Finalized"]


# A disruption


@pytest.fixture
def too_large(world: World) -> World:
    """Two small pods on a node that is four times as large as they need."""
    on_large_nodes(world, 8)
    world.deploy(SMALL, 2)
    return world


def on_large_nodes(world: World, pods: int) -> None:
    """Nodes with eight pods each, that may be replaced from now on."""
    only = (*ON_DEMAND, NodeSelectorRequirement(labels.INSTANCE_TYPE, Operator.IN, ("c5.2xlarge",)))
    world.cluster.update("nodepools", "default", requirements=only, budgets=(Budget("0"),))
    world.deploy(SMALL, pods)
    assert world.run(180, until=lambda: len(world.running_pods()) == pods)
    world.cluster.update("nodepools", "default", requirements=ON_DEMAND, budgets=(Budget("100%"),))


def forbid_disruption(world: World, pod: Pod) -> None:
    about = msgspec.structs.replace(pod.metadata, annotations={labels.DO_NOT_DISRUPT: "true"})
    world.cluster.put("pods", msgspec.structs.replace(pod, metadata=about))


def commands(world: World) -> list[CommandRow]:
    rows = [world.state.command(key.removeprefix("command#")) for key in world.state.rows if key.startswith("command#")]
    return [row for row in rows if row is not None]


def run_until_proposed(world: World) -> NodeClaim:
    """The NodeClaim that is proposed to go."""
    (claim,) = world.claims()
    assert world.run(120, until=lambda: any(row.phase == "proposed" for row in commands(world)))
    return claim


def run_until_replaced(world: World, old: NodeClaim) -> NodeClaim:
    """The NodeClaim that took its place."""
    assert world.run(10 * MINUTES, until=lambda: world.cluster.find("nodeclaims", old.name) is None)
    (new,) = world.claims()
    return new


def test_a_node_and_the_one_that_replaces_it_tell_both_sides_of_a_consolidation(too_large: World) -> None:
    old = run_until_proposed(too_large)
    new = run_until_replaced(too_large, old)
    told = story(too_large, old.name)
    assert ("ConsolidationCandidate", f"Consolidation candidate: NodeClaim {old.name} {MOVE}") in told
    known = (*CONSOLIDATION, "DisruptionReason", "DisruptionTerminating")
    of_disruption = [reason for reason, _ in told if reason in known]
    assert of_disruption == [
        "ConsolidationCandidate", "ConsolidationApproved", "DisruptionReason", "DisruptionTerminating",
    ]  # fmt: skip
    assert story(too_large, new.name)[0] == ("DisruptionLaunching", "Launching NodeClaim: Underutilized")
    assert reasons(too_large, new.name)[1:4] == ["Launched", "DisruptionWaitingReadiness", "Registered"]
    waiting = "Waiting on readiness to continue disruption"
    assert ("DisruptionWaitingReadiness", waiting) in story(too_large, new.name)


def test_of_two_replacements_only_the_one_that_boots_is_waited_for(lived: World) -> None:
    """Also of another decision: what takes the pods is waited for, whoever launched it."""
    (there,) = lived.claims()
    lived.kubelets.boot_seconds = 300
    lived.deploy(builders.pod("other", cpu_millicores=1800), 1)
    assert lived.run(
        60, until=lambda: [claim.is_condition_true("Launched") for claim in lived.claims()] == [True, True]
    )
    (booting,) = [claim for claim in lived.claims() if claim.name != there.name]
    row = CommandRow(
        id=f"{1:016x}", cluster=builders.CLUSTER, decision="d", reason="Drifted", candidates=("old",), phase="waiting",
        replacements=(there.name, booting.name), deadline=2**50,
    )  # fmt: skip
    lived.state.create(row)
    lifecycle(lived.ports, [Doorbell(builders.CLUSTER, "command", row.id)], now=lived.clock.now())
    assert "DisruptionWaitingReadiness" in reasons(lived, booting.name)
    assert "DisruptionWaitingReadiness" not in reasons(lived, there.name)


def test_ec2_is_asked_before_anything_is_told(too_large: World, monkeypatch: pytest.MonkeyPatch) -> None:
    told, create_fleet = list[str](), too_large.ec2.create_fleet

    def noting(*args: Any, **fields: Any) -> FleetResult:
        told.extend(event.reason for event in too_large.cluster.events if event.reason == "DisruptionLaunching")
        return create_fleet(*args, **fields)

    old = run_until_proposed(too_large)
    monkeypatch.setattr(too_large.ec2, "create_fleet", noting)
    run_until_replaced(too_large, old)
    assert told == []


def test_a_replacement_that_takes_long_is_said_to_be_waited_for_once(too_large: World) -> None:
    too_large.kubelets.boot_seconds = 9.0 * MINUTES
    new = run_until_replaced(too_large, run_until_proposed(too_large))
    told = Counter(reasons(too_large, new.name))
    assert (told["DisruptionLaunching"], told["DisruptionWaitingReadiness"]) == (1, 1)


def test_a_replacement_that_ec2_refuses_at_first_was_launched_for_a_disruption_all_the_same(too_large: World) -> None:
    old = run_until_proposed(too_large)
    too_large.effects.inject(Fault("ec2", "create_fleet", Throttled("slow down"), times=3))
    new = run_until_replaced(too_large, old)
    assert Counter(reasons(too_large, new.name))["DisruptionLaunching"] == 1


def test_the_replacement_of_an_interrupted_node_says_so(lived: World) -> None:
    (old,) = lived.claims()
    lived.interrupt_spot(old.provider_id.rpartition("/")[2])
    new = run_until_replaced(lived, old)
    assert story(lived, new.name)[0] == ("DisruptionLaunching", "Launching NodeClaim: Interrupted")


@pytest.mark.parametrize(("port", "action"), [("state", "save_call_rate"), ("ec2", "create_fleet")])
def test_a_replacement_whose_launch_is_cut_off_says_what_it_is_for(lived: World, port: str, action: str) -> None:
    """Once its NodeClaim is there, another invocation goes on from the row alone."""
    (old,) = lived.claims()
    lived.interrupt_spot(old.provider_id.rpartition("/")[2])
    lived.effects.crash_at(port, action)
    with pytest.raises(Crash):
        lived.run(10)
    new = run_until_replaced(lived, old)
    assert Counter(reasons(lived, new.name))["DisruptionLaunching"] == 1


@pytest.mark.parametrize("changes", range(1, 40))
def test_wherever_an_invocation_ends_a_replacement_says_once_what_it_is_for(lived: World, changes: int) -> None:
    """Also between the last write of its launch and what is told."""
    (old,) = lived.claims()
    lived.interrupt_spot(old.provider_id.rpartition("/")[2])
    lived.effects.crash_after(changes)
    with suppress(Crash):
        lived.run(10)
    lived.effects.crash_after(None)
    new = run_until_replaced(lived, old)
    assert Counter(reasons(lived, new.name))["DisruptionLaunching"] == 1


def test_a_node_for_pods_is_launched_for_no_disruption(lived: World) -> None:
    lived.run(10 * MINUTES)
    told = {event.reason for event in lived.cluster.events}
    assert not told & {"DisruptionLaunching", "DisruptionWaitingReadiness", "ConsolidationCandidate"}


def launch_beside_replacement(world: World) -> None:
    """A launch of two nodes, one for pods, and one for the pods of a node that is interrupted."""
    node = NewNode(
        nodepool="default", nodeclass="default", pods=(), instance_types=("c5.large",), requirements=(), labels={},
        taints=(), startup_taints=(), requests={"cpu": 1}, price_picousd_per_hour=1, capacity_type="spot",
        zones=(builders.ZONES[0],),
    )  # fmt: skip
    row = world.state.cluster()
    decision = Decision(
        "d", "interrupt", world.cluster.name, row.version, world.clock.now(), "", "", "",
        launches=(Launch("launch", ("for-node", "for-pods"), node),),
        stored_disruptions=(Disruption(f"{1:016x}", "Interrupted", ("old",), {}, ("for-node",), deadline=2**50),),
    )  # fmt: skip
    world.state.commit(expected_version=row.version, key=world.blobs.put("decisions", encode_decision(decision)))
    lifecycle(world.ports, [Doorbell(builders.CLUSTER, "decision", "d")], now=world.clock.now())


def test_of_a_launch_only_replacements_are_said_to_be_launched_for_the_disruption(world: World) -> None:
    launch_beside_replacement(world)
    assert "DisruptionLaunching" in reasons(world, "for-node")
    assert "Launched" in reasons(world, "for-pods")
    assert "DisruptionLaunching" not in reasons(world, "for-pods")


def test_a_launch_whose_row_says_no_reason_yet_tells_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Versions wrote rows of replacements without it."""
    monkeypatch.setattr(decisions, "_launch_reason", lambda _, launch: launch.reason)
    launch_beside_replacement(world)
    assert "Launched" in reasons(world, "for-node")
    assert "DisruptionLaunching" not in reasons(world, "for-node")


def rejections(world: World, claim: NodeClaim) -> list[str]:
    return [message for reason, message in story(world, claim.name) if reason == "ConsolidationRejected"]


def rejected(claim: NodeClaim, why: str) -> str:
    move, savings = MOVE.split(" (")
    return f"Consolidation rejected: NodeClaim {claim.name} {move}, reason: {why} ({savings}"


def test_a_consolidation_that_a_pod_forbids_meanwhile_is_rejected_with_the_reason(too_large: World) -> None:
    claim = run_until_proposed(too_large)
    pod, *_ = too_large.running_pods()
    forbid_disruption(too_large, pod)
    too_large.run(5 * MINUTES)
    why = f"pod has the karpenter.sh/do-not-disrupt annotation (Pod={pod.key})"
    assert rejections(too_large, claim) == [rejected(claim, why)]
    assert "ConsolidationApproved" not in reasons(too_large, claim.name)


def two_proposed(world: World) -> tuple[NodeClaim, NodeClaim]:
    """Two nodes that are too large, each proposed to be replaced by itself."""
    on_large_nodes(world, 16)
    world.forget_deployments()
    first, second = sorted(world.claims(), key=lambda claim: claim.name)
    for claim in (first, second):
        pods = [pod for pod in world.running_pods() if pod.node_name == claim.node_name]
        for pod in pods[2:]:
            world.cluster.remove("pods", pod.key)
    assert world.run(120, until=lambda: any(row.phase == "proposed" for row in commands(world)))
    return first, second


def leave_one_to_the_breaker(world: World) -> None:
    at = int(world.clock.now().timestamp() * 1000)
    world.state.save_breaker(msgspec.structs.replace(world.state.breaker(), batches=(Batch("others", at, 19, 1),)))


def test_of_two_nodes_of_which_the_breaker_admits_one_the_other_is_rejected(world: World) -> None:
    names = {claim.name for claim in two_proposed(world)}
    (proposal,) = commands(world)
    leave_one_to_the_breaker(world)
    result = validate(world.ports, proposal.id, clock=lambda: world.clock.now() + timedelta(seconds=16))
    told = {event.name: event.reason for event in world.cluster.events if event.reason in CONSOLIDATION[1:]}
    (goes,) = result.committed
    (kept,) = names - {goes}
    assert told == {goes: "ConsolidationApproved", kept: "ConsolidationRejected"}


def test_each_node_of_a_proposal_has_its_own_reason(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The breaker admits one of two, and there is no time to plan for that alone."""
    two_proposed(world)
    (proposal,) = commands(world)
    leave_one_to_the_breaker(world)
    has_time = iter((True, False))
    monkeypatch.setattr(consolidate, "_has_time", lambda _: next(has_time))
    validate(world.ports, proposal.id, clock=lambda: world.clock.now() + timedelta(seconds=16))
    (row,) = commands(world)
    assert (row.phase, row.moves) == ("aborted", ())
    told = [event.message for event in world.cluster.events if event.reason == "ConsolidationRejected"]
    assert sorted(message.partition("reason: ")[2] for message in told) == [
        "no time was left to plan for its pods; tried again later (savings: $0.2880/h)",
        "the breaker admits no more nodes now (setting BREAKER_PERCENT) (savings: $0.2880/h)",
    ]


def test_a_proposal_that_another_validation_ended_is_not_told_again(too_large: World) -> None:
    claim = run_until_proposed(too_large)
    (proposal,) = commands(too_large)
    too_large.state.cluster_row = msgspec.structs.replace(too_large.state.cluster_row, disruption_paused=True)
    too_large.effects.inject(Fault("state", "save", Conflict("another was first"), times=1))
    validate(too_large.ports, proposal.id, clock=lambda: too_large.clock.now() + timedelta(seconds=16))
    assert rejections(too_large, claim) == []


def test_of_two_nodes_that_were_proposed_one_is_approved_and_the_other_rejected(world: World) -> None:
    kept, goes = two_proposed(world)
    forbid_disruption(world, next(pod for pod in world.running_pods() if pod.node_name == kept.node_name))
    assert world.run(5 * MINUTES, until=lambda: world.cluster.find("nodeclaims", goes.name) is None)
    assert [reason for reason in reasons(world, kept.name) if reason in CONSOLIDATION] == [
        "ConsolidationCandidate", "ConsolidationRejected",
    ]  # fmt: skip
    assert [reason for reason in reasons(world, goes.name) if reason in CONSOLIDATION] == [
        "ConsolidationCandidate", "ConsolidationApproved",
    ]  # fmt: skip


def test_a_consolidation_that_a_pause_ends_is_rejected_with_the_reason(too_large: World) -> None:
    claim = run_until_proposed(too_large)
    too_large.state.cluster_row = msgspec.structs.replace(too_large.state.cluster_row, disruption_paused=True)
    too_large.run(5 * MINUTES)
    why = "disruption is paused; `spotwright resume` ends it"
    assert rejections(too_large, claim) == [rejected(claim, why)]


def test_a_consolidation_that_nobody_judged_in_time_is_rejected(too_large: World) -> None:
    claim = run_until_proposed(too_large)
    too_large.doorbells.receive("disrupt")
    too_large.forget_changes()
    too_large.effects.inject(Fault("cluster", "pods", Unavailable("the API server does not answer"), times=1000))
    assert too_large.run(5 * MINUTES, until=lambda: all(row.phase == "aborted" for row in commands(too_large)))
    assert rejections(too_large, claim) == [rejected(claim, "it was not validated within two minutes")]


def test_a_consolidation_of_a_node_that_a_user_deletes_meanwhile_is_rejected(too_large: World) -> None:
    claim = run_until_proposed(too_large)
    too_large.cluster.delete("nodeclaims", claim.metadata)
    too_large.run(5 * MINUTES)
    assert rejections(too_large, claim) == [rejected(claim, "node is deleting or marked for deletion")]


def test_of_a_node_that_is_gone_no_rejection_is_told(too_large: World) -> None:
    claim = run_until_proposed(too_large)
    too_large.cluster.remove("nodeclaims", claim.name)
    too_large.run(5 * MINUTES)
    assert rejections(too_large, claim) == []


# Pods that keep their node for a while


def test_until_when_a_pod_keeps_its_node_is_told_and_when_that_has_ended(world: World) -> None:
    keeps = builders.pod("web", cpu_millicores=1800, annotations={labels.DO_NOT_DISRUPT: "20m"})
    world.deploy(keeps, 1)
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)
    (pod,) = world.running_pods()
    assert pod.start_time is not None
    world.run(90 * MINUTES)
    until = (pod.start_time + timedelta(minutes=20)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert story(world, pod.name)[-2:] == [
        ("DoNotDisruptUntil", f"The karpenter.sh/do-not-disrupt grace period will elapse at {until}"),
        (
            "DoNotDisruptGracePeriodElapsed",
            "The karpenter.sh/do-not-disrupt grace period has elapsed: the annotation keeps the pod's node no longer",
        ),
    ]
    assert Counter(reasons(world, pod.name))["DoNotDisruptUntil"] == 1
