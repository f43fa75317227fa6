"""EC2 may answer TerminateInstances that an instance has ended: then its NodeClaim goes at once."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from spotwright.errors import ApiError, Throttled, Unavailable
from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.node import Node, instance_id
from spotwright.model.snapshot import STATIC_CAPACITY
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.termination.expected_ends import EXPECTED_WITHIN
from spotwright.workflows.lifecycle.workflow import step_doorbells
from spotwright.workflows.ports.doorbells import READ_NODECLAIMS, Doorbell
from spotwright.workflows.ports.rows import EXPECTED, NoticeRow, Row
from tests.scenarios.lifecycle.termination.drained_claims import NODES, STATE, drained, step

KEPT = "example.com/keep"
TERMINATION = ["Drained", "VolumesDetached", "InstanceTerminating"]


def ending(world: World) -> list[NodeClaim]:
    """Claims whose instances the next step terminates, and EC2 says that they have ended."""
    claims = drained(world)
    world.ec2.shutdown_seconds = 0
    world.doorbells.messages.clear()
    return claims


def phases(world: World, claims: list[NodeClaim]) -> list[str]:
    return [row.phase for row in world.state.notices_of([instance_id(claim.provider_id) for claim in claims])]


def left(world: World) -> list[str]:
    return [claim.name for claim in world.claims()]


def rung(world: World) -> list[str]:
    """Claims that are rung for now."""
    return [bell.key for bell in world.doorbells.receive("lifecycle") if bell.kind == "claim"]


def keep(world: World, kind: str, name: str) -> None:
    """Somebody else's finalizer has been there since before the deletion."""
    (found,) = (one for one in world.cluster.all(kind) if one.name == name)
    about = msgspec.structs.replace(found.metadata, finalizers=(*found.metadata.finalizers, KEPT))
    world.cluster.put(kind, msgspec.structs.replace(found, metadata=about))


def test_claims_go_in_the_invocation_that_terminates_their_instances(world: World) -> None:
    claims = ending(world)
    reads = world.effects.reads.copy()
    actions = [effect.action for effect in step(world)]
    assert not world.claims()
    assert not world.cluster.all("nodes")
    assert phases(world, claims) == ["done"] * NODES
    # Rows end by one write, before anything goes.
    assert actions.count("save_together") == 1
    assert actions.index("terminate") < actions.index("save_together") < actions.index("delete")
    assert "write_nodeclaim_status" not in actions
    read = world.effects.reads - reads
    assert read["cluster", "node"] == NODES, "the steps read them before"
    assert not read["ec2", "instance"]
    assert not read["ec2", "instances_by_id"]
    assert rung(world) == []


@pytest.mark.parametrize("seconds", [0, 5, EXPECTED_WITHIN.total_seconds() - 1])
@pytest.mark.parametrize("states", [["terminated"], ["shutting-down", "terminated"]])
def test_what_ec2_tells_of_them_afterwards_is_known(world: World, states: list[str], seconds: float) -> None:
    claims = ending(world)
    step(world)
    world.clock.advance(seconds)
    written = len(world.effects.select("state", "*"))
    world.doorbells.messages.clear()
    for state in states:
        for claim in claims:
            world.deliver_event(STATE, {"instance-id": instance_id(claim.provider_id), "state": state})
    assert not world.doorbells.messages
    assert len(world.effects.select("state", "*")) == written


def test_the_story_of_a_claim_is_told_to_its_end(world: World) -> None:
    (name, *_) = [claim.name for claim in ending(world)]
    step(world)
    told = [event.reason for event in world.cluster.events if event.name == name]
    assert (sorted(told[-4:-1]), told[-1]) == (sorted(TERMINATION), "Finalized")


def test_a_claim_that_another_keeps_has_its_conditions_and_is_not_terminated_again_and_again(world: World) -> None:
    claims = ending(world)
    keep(world, "nodeclaims", claims[0].name)
    step(world)
    assert left(world) == [claims[0].name]
    (kept,) = world.claims()
    assert all(kept.is_condition_true(type) for type in TERMINATION)
    assert rung(world) == [claims[0].name]
    for _ in range(5):
        step(world)
    assert len(world.effects.select("ec2", "terminate")) <= 2
    (kept,) = world.claims()
    assert kept.metadata.finalizers == (KEPT,)
    world.cluster.patch_metadata("nodeclaims", ObjectMeta(kept.name), {"finalizers": []})
    assert not world.claims()


def test_a_claim_whose_node_another_keeps_stays_with_it(world: World) -> None:
    claims = ending(world)
    name = claims[0].node_name
    keep(world, "nodes", name)
    step(world)
    assert left(world) == [claims[0].name]
    assert all(world.claims()[0].is_condition_true(type) for type in TERMINATION)
    assert rung(world) == [claims[0].name]
    for _ in range(5):
        step(world)
        assert rung(world) == []
    assert left(world) == [claims[0].name]
    assert len(world.effects.select("ec2", "terminate")) <= 2
    world.cluster.patch_metadata("nodes", ObjectMeta(name), {"finalizers": []})
    step(world)
    assert not world.claims()


@pytest.mark.parametrize("action", ["set_taints", "delete", "patch_metadata"])
def test_a_claim_whose_last_step_fails_keeps_no_other_and_is_rung_for(world: World, action: str) -> None:
    ending(world)
    world.effects.inject(Fault("cluster", action, Unavailable("no answer")))
    step(world)
    assert len(left(world)) == 1
    assert world.claims()[0].is_condition_true("InstanceTerminating")
    (name,) = rung(world)
    assert left(world) == [name]
    step(world)
    assert not world.claims()
    assert not world.cluster.all("nodes")


@pytest.mark.parametrize("action", ["save_together", "create_together", "notices_of"])
def test_claims_go_though_their_notices_cannot_be_written(world: World, action: str) -> None:
    claims = ending(world)
    world.effects.inject(Fault("state", action, Unavailable("no table")))
    step(world)
    assert not world.claims()
    world.run(int(EXPECTED_WITHIN.total_seconds()) + 60)
    assert set(phases(world, claims)) <= {"done"}


def test_two_invocations_at_once_end_a_claim_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = ending(world)
    usual, others = world.cluster.set_taints, ["once"]

    def meanwhile(node: Node, *arguments: Any, **options: Any) -> Node:
        if others:
            others.clear()
            step(world)
        return usual(node, *arguments, **options)

    monkeypatch.setattr(world.cluster, "set_taints", meanwhile)
    step(world)
    assert not world.claims()
    assert not world.cluster.all("nodes")
    assert phases(world, claims) == ["done"] * NODES
    finalized = [event.name for event in world.cluster.events if event.reason == "Finalized"]
    assert sorted(finalized) == sorted(claim.name for claim in claims)


def test_what_ec2_had_announced_is_left_to_its_own_steps(world: World) -> None:
    claims = ending(world)
    warned = NoticeRow(instance_id(claims[0].provider_id), world.cluster.name, "spot_interrupted", phase="new", due=1)
    assert world.state.create(warned)
    step(world)
    assert not world.claims()
    assert world.state.notice(warned.instance_id) == warned
    assert phases(world, claims[1:]) == ["done"] * (NODES - 1)
    world.run(60)
    assert phases(world, claims) == ["done"] * NODES


def test_a_row_that_another_wrote_meanwhile_stays_as_it_is(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = ending(world)
    usual = world.ec2.terminate

    def warned_meanwhile(ids: Sequence[str]) -> frozenset[str]:
        row = world.state.notice(instance_id(claims[0].provider_id))
        assert row is not None
        assert row.phase == EXPECTED
        world.state.save(msgspec.structs.replace(row, phase="new", warning="spot_interrupted"))
        return usual(ids)

    monkeypatch.setattr(world.ec2, "terminate", warned_meanwhile)
    step(world)
    assert not world.claims()
    assert sorted(phases(world, claims)) == sorted(["new", *["done"] * (NODES - 1)])


def test_a_disrupted_claim_that_goes_at_once_makes_room_in_its_budget(world: World) -> None:
    """In the cluster state, which the forwarder writes every ten seconds, it still counts: NodeClaims are read."""
    claims = ending(world)
    reason = Condition("DisruptionReason", "True", "Drifted")
    conditions = (*claims[0].conditions, reason)
    world.cluster.update("nodeclaims", claims[0].name, conditions=conditions)
    step(world)
    assert READ_NODECLAIMS in {one.doorbell.key for one in world.doorbells.messages_of("disrupt", "evaluate")}


def test_a_warning_that_comes_as_its_end_is_expected_stays(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = ending(world)
    usual, warned = world.state.create_together, instance_id(claims[0].provider_id)

    def warned_meanwhile(rows: Sequence[Row]) -> bool:
        if world.state.notice(warned) is None:
            world.interrupt_spot(warned)
        return usual(rows)

    monkeypatch.setattr(world.state, "create_together", warned_meanwhile)
    step(world)
    row = world.state.notice(warned)
    assert row is not None
    assert (row.kind, row.phase) == ("spot_interrupted", "new")
    assert sorted(phases(world, claims)) == sorted(["new", *["done"] * (NODES - 1)])
    world.run(120)
    assert world.state.health, "its offering was interrupted"


def test_notices_of_a_call_that_had_to_wait_end_as_well(world: World) -> None:
    claims = ending(world)
    world.effects.inject(Fault("ec2", "terminate", Throttled("slow", code="RequestLimitExceeded")))
    step(world)
    assert len(left(world)) == NODES
    world.clock.advance(10)
    step(world)
    assert not world.claims()
    rows = world.state.notices_of([instance_id(claim.provider_id) for claim in claims])
    assert [(row.phase, row.due) for row in rows] == [("done", 0)] * NODES


def test_rows_of_a_call_that_fails_after_another_end_as_well(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = ending(world)
    usual = world.state.create

    def create(row: Row) -> bool:
        if isinstance(row, NoticeRow) and row.instance_id == instance_id(claims[0].provider_id):
            raise Unavailable("no table")
        return usual(row)

    monkeypatch.setattr(world.state, "create", create)
    monkeypatch.setattr(world.state, "create_together", lambda _: False)
    step(world)
    assert not world.claims()
    assert phases(world, claims) == ["done"] * (NODES - 1)


def test_a_claim_without_an_instance_of_its_own_stays_until_its_launch_has_left_none(world: World) -> None:
    """It names none: what was terminated is one of those that its launch left, and there are more of them."""
    claim, *others = ending(world)
    launch = claim.metadata.annotations[labels.LAUNCH]
    for other in others:
        world.cluster.remove("nodeclaims", other.name)
    for node in world.cluster.all("nodes"):
        world.cluster.remove("nodes", node.name)
    unlabeled = {key: value for key, value in claim.metadata.labels.items() if key != labels.INSTANCE_ID}
    about = msgspec.structs.replace(claim.metadata, labels=unlabeled)
    unassigned = msgspec.structs.replace(claim, metadata=about, provider_id="", node_name="", conditions=())
    world.cluster.put("nodeclaims", unassigned)
    row = world.state.launch(launch)
    assert row is not None
    world.state.rows[f"launch#{launch}"] = msgspec.structs.replace(row, instances={}, phase="done")
    step(world)
    assert left(world) == [claim.name]
    assert rung(world) == [claim.name]


def test_two_claims_of_an_instance_go_with_what_ec2_tells(world: World) -> None:
    claim = ending(world)[0]
    about = msgspec.structs.replace(claim.metadata, name="twin", uid="twin")
    world.cluster.put("nodeclaims", msgspec.structs.replace(claim, metadata=about))
    step(world)
    # Whichever goes first takes the Node of the other.
    assert sorted(left(world)) == sorted([claim.name, "twin"])
    world.clock.advance(1)
    world.deliver_event(STATE, {"instance-id": instance_id(claim.provider_id), "state": "terminated"})
    assert world.run(25, until=lambda: not world.claims()), left(world)


def test_a_node_whose_kubelet_is_silent_goes_as_well(world: World) -> None:
    """EC2 is asked about its instance first, and shows it as running."""
    claims = ending(world)
    name = claims[0].node_name
    world.cluster.update("nodes", name, conditions=(Condition("Ready", "Unknown"),))
    asked = world.effects.reads["ec2", "instance"]
    step(world)
    assert world.effects.reads["ec2", "instance"] == asked + 1
    assert not world.claims()
    assert not world.cluster.all("nodes")


def test_a_claim_that_changes_as_it_goes_is_rung_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its Node got a finalizer since it was read."""
    claims = ending(world)
    usual = world.ec2.terminate

    def kept_meanwhile(ids: Sequence[str]) -> frozenset[str]:
        keep(world, "nodes", claims[0].node_name)
        return usual(ids)

    monkeypatch.setattr(world.ec2, "terminate", kept_meanwhile)
    step(world)
    assert left(world) == [claims[0].name]
    assert world.claims()[0].is_condition_true("InstanceTerminating")
    assert rung(world) == [claims[0].name]


def test_conditions_of_a_claim_that_is_gone_are_not_tried(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    claims, tried = ending(world), list[str]()
    usual = world.cluster.write_nodeclaim_status

    def write(claim: NodeClaim, *arguments: Any, **options: Any) -> NodeClaim:
        tried.append(claim.name)
        return usual(claim, *arguments, **options)

    monkeypatch.setattr(world.cluster, "write_nodeclaim_status", write)
    keep(world, "nodeclaims", claims[0].name)
    step(world)
    assert tried == [claims[0].name]


@pytest.mark.parametrize("is_static", [True, False])
def test_a_static_pool_is_planned_for_when_its_node_has_gone_at_once(world: World, is_static: bool) -> None:
    claims = ending(world)
    world.settings = msgspec.structs.replace(world.settings, feature_gates=frozenset({STATIC_CAPACITY}))
    for nodepool in world.cluster.all("nodepools") if is_static else ():
        world.cluster.put("nodepools", msgspec.structs.replace(nodepool, replicas=NODES))
    assert not world.doorbells.messages_of("provision", "pods")
    bells = [Doorbell(world.cluster.name, "claim", claim.name) for claim in claims]
    assert step_doorbells(world.ports, bells, now=world.clock.now()) == {}
    assert not world.claims()
    assert bool(world.doorbells.messages_of("provision", "pods")) == is_static


def test_an_instance_without_a_claim_needs_nothing_more(world: World) -> None:
    claims = ending(world)
    orphan = instance_id(claims[0].provider_id)
    for claim in claims:
        world.cluster.patch_metadata("nodeclaims", ObjectMeta(claim.name), {"finalizers": []})
    world.clock.advance(600)
    bell = Doorbell(world.cluster.name, "instance", orphan)
    for _ in range(3):
        assert step_doorbells(world.ports, [bell], now=world.clock.now()) == {}
        world.clock.advance(120)
    assert [effect.subject for effect in world.effects.select("ec2", "terminate")] == [orphan]


def test_an_instance_that_ec2_does_not_terminate_keeps_no_other(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    claims = ending(world)
    refused = instance_id(claims[0].provider_id)
    usual = world.ec2.terminate

    def terminate(ids: Sequence[str]) -> frozenset[str]:
        if refused in ids:
            raise ApiError(f"The instance '{refused}' may not be terminated", code="OperationNotPermitted")
        return usual(ids)

    monkeypatch.setattr(world.ec2, "terminate", terminate)
    step(world)
    assert left(world) == [claims[0].name]
    (claim,) = world.claims()
    assert claim.is_condition_true("Drained")
    assert not claim.is_condition_true("InstanceTerminating")
    assert labels.FINALIZER in claim.metadata.finalizers


@pytest.mark.parametrize("was_let_go", [False, True])
def test_a_claim_that_another_keeps_as_its_instance_ends_has_its_conditions(
    world: World, monkeypatch: pytest.MonkeyPatch, was_let_go: bool
) -> None:
    claims = ending(world)
    usual = world.ec2.terminate

    def kept_meanwhile(ids: Sequence[str]) -> frozenset[str]:
        keep(world, "nodeclaims", claims[0].name)
        if was_let_go:
            world.cluster.patch_metadata("nodeclaims", ObjectMeta(claims[0].name), {"finalizers": [KEPT]})
        return usual(ids)

    monkeypatch.setattr(world.ec2, "terminate", kept_meanwhile)
    step(world)
    (kept,) = world.claims()
    assert (kept.name, kept.metadata.finalizers) == (claims[0].name, (KEPT,))
    assert all(kept.is_condition_true(type) for type in TERMINATION)


def test_a_claim_whose_node_is_kept_is_rung_for_once_though_ec2_shows_its_instance_running(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = ending(world)
    keep(world, "nodes", claims[0].node_name)
    usual = world.ec2.instance

    def as_it_was(id: str) -> Instance | None:
        found = usual(id)
        return None if found is None else msgspec.structs.replace(found, state="running")

    monkeypatch.setattr(world.ec2, "instance", as_it_was)
    step(world)
    assert rung(world) == [claims[0].name]
    step(world)
    assert len(world.effects.select("ec2", "terminate")) == 2, "it is terminated again"
    assert rung(world) == []


@pytest.mark.parametrize("is_orphan", [False, True])
def test_a_table_that_throttles_postpones_terminations_and_fails_no_doorbell(world: World, is_orphan: bool) -> None:
    claims = ending(world)
    bells = [Doorbell(world.cluster.name, "claim", claim.name) for claim in claims]
    if is_orphan:
        for claim in claims:
            world.cluster.patch_metadata("nodeclaims", ObjectMeta(claim.name), {"finalizers": []})
        world.clock.advance(600)
        bells = [Doorbell(world.cluster.name, "instance", instance_id(claims[0].provider_id))]
    world.effects.inject(Fault("state", "save_call_rates", Throttled("slow", code="TransactionCanceledException")))
    assert step_doorbells(world.ports, bells, now=world.clock.now()) == {}
    assert not world.effects.select("ec2", "terminate")
    assert world.run(60, until=lambda: not world.claims() and not world.ec2.live_instances()), left(world)
    assert not world.failures
