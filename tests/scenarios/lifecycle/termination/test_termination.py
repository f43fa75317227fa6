"""The end of a NodeClaim: one step after the other, nothing let go before the instance is gone."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from spotwright.errors import ApiError, Conflict, NotFound, Unavailable
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.eviction import DISRUPTED_TAINT
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle import nodeclaims
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell
from tests.scenarios.lifecycle.termination.running_nodes import delete, gone, running_node


def test_a_deleted_claim_takes_pods_instance_and_node_down_in_this_order(world: World) -> None:
    claim = running_node(world, pods=2)
    began = len(world.effects.log)
    delete(world, claim)
    assert world.run(90, until=lambda: gone(world, claim))
    acts = [f"{effect.port}.{effect.action}" for effect in world.effects.log[began:]]
    order = ["cluster.set_taints", "cluster.evict", "ec2.terminate"]
    assert [acts.index(one) for one in order] == sorted(acts.index(one) for one in order)
    assert acts[::-1].index("ec2.terminate") > acts[::-1].index("cluster.set_taints"), "the Node is let go at the end"
    assert not world.ec2.live_instances()
    assert not world.cluster.nodes()
    assert {"Evicted", "Finalized"} <= {event.reason for event in world.cluster.events}


def test_neither_node_nor_claim_goes_before_the_instance_is_terminated(world: World) -> None:
    claim = running_node(world)
    delete(world, claim)
    for _ in range(120):
        world.run(1)
        if gone(world, claim):
            break
        assert world.cluster.node(claim.node_name) is not None or world.ec2.all_instances()[0].state == "terminated"
    assert gone(world, claim)
    assert world.ec2.all_instances()[0].state == "terminated"


def test_what_ec2_says_of_the_end_rings_though_it_has_said_that_the_instance_shuts_down(world: World) -> None:
    claim = running_node(world)
    delete(world, claim)
    assert world.run(60, until=lambda: bool(world.effects.select("ec2", "terminate")))
    id = instance_id(claim.provider_id)

    def rung_for(state: str) -> bool:
        before = len(world.effects.log)
        world.deliver_event("EC2 Instance State-change Notification", {"instance-id": id, "state": state})
        world.settle()
        row = world.state.notice(id)
        assert row is not None
        assert row.phase == ("expected" if state == "shutting-down" else "done")
        rung = {effect.subject for effect in world.effects.log[before:] if effect.port == "doorbells"}
        return f"lifecycle/claim:{claim.name}" in rung

    assert not rung_for("shutting-down"), "nothing is to be done yet"
    assert rung_for("terminated")
    assert not rung_for("terminated"), "the same message again"


def disrupted_node(world: World) -> NodeClaim:
    """A node of two pods, long since tainted for a command, whose claim is deleted now; no schedule is near."""
    claim = running_node(world, pods=2)
    world.run(70 - world.clock.now().second)
    node, current = world.cluster.node(claim.node_name), world.cluster.nodeclaim(claim.name)
    assert node is not None
    assert current is not None
    world.cluster.set_taints(node, (*node.taints, DISRUPTED_TAINT))
    disrupted = Condition("DisruptionReason", "True", "Drifted", last_transition_time=world.clock.now())
    world.cluster.update("nodeclaims", claim.name, conditions=(*current.conditions, disrupted))
    delete(world, claim)
    return claim


def seconds_until_terminated(world: World) -> float:
    began = world.clock.now()
    assert world.run(40, until=lambda: bool(world.effects.select("ec2", "terminate")))
    return (world.clock.now() - began).total_seconds()


def test_pods_that_stop_before_the_shortest_drain_is_over_make_the_node_wait_no_longer_than_that(world: World) -> None:
    """Their end rang too early, and no other pod will."""
    disrupted_node(world)
    assert 5 <= seconds_until_terminated(world) <= 6


def test_the_doorbell_of_a_drained_node_that_met_another_change_comes_again(world: World) -> None:
    world.kubelets.stop_seconds = 6.0
    disrupted_node(world)
    world.run(5)
    world.effects.inject(Fault("cluster", "write_nodeclaim_status", Conflict("it changed", code="Conflict")))
    assert seconds_until_terminated(world) <= 3


@pytest.mark.parametrize(("tick", "next_tick"), [(0, 0), (1007, 1008)], ids=["EC2", "a tick"])
def test_the_doorbell_of_an_ended_instance_that_met_another_change_comes_again(
    world: World, monkeypatch: pytest.MonkeyPatch, tick: int, next_tick: int
) -> None:
    """The step of its node was taken at the same moment: NodeClaim and Node stayed until the next tick, a quarter of a
    minute later. What a tick met is left to the next one alone."""
    claim = disrupted_node(world)
    assert world.run(40, until=lambda: bool(world.effects.select("ec2", "terminate")))

    def lose(*_: object, **__: object) -> float | None:
        raise Conflict("it changed", code="Conflict")

    world.doorbells.messages.clear()
    with monkeypatch.context() as once:
        once.setattr(nodeclaims, "finalize", lose)
        lifecycle(world.ports, [Doorbell(world.cluster.name, "claim", claim.name, tick)], now=world.clock.now())
    (again,) = world.doorbells.messages_of("lifecycle", "claim")
    assert again.doorbell == Doorbell(world.cluster.name, "claim", claim.name, next_tick)
    assert 1 <= (again.at - world.clock.milliseconds()) / 1000 <= 2


@pytest.mark.parametrize(
    ("kind", "lost"),
    [("claim", NotFound("it is gone", code="NotFound")), ("node", Conflict("it changed", code="Conflict"))],
)
def test_no_doorbell_comes_again_of_a_claim_that_is_gone_or_of_a_node_that_changed(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str, lost: ApiError
) -> None:
    """Another invocation finished the claim; and whatever changed a Node that is drained, its claim has its ticks."""
    claim = disrupted_node(world)
    assert world.run(40, until=lambda: bool(world.effects.select("ec2", "terminate")))

    def lose(*_: object, **__: object) -> float | None:
        raise lost

    world.doorbells.messages.clear()
    monkeypatch.setattr(nodeclaims, "finalize", lose)
    key = claim.name if kind == "claim" else claim.node_name
    lifecycle(world.ports, [Doorbell(world.cluster.name, kind, key)], now=world.clock.now())
    assert not world.doorbells.messages_of("lifecycle", "claim")


@pytest.mark.parametrize("grace_seconds", [None, 300])
def test_no_claim_is_written_from_what_it_was_before(
    world: World, monkeypatch: pytest.MonkeyPatch, grace_seconds: int | None
) -> None:
    """Each step goes on with the claim that it wrote: nothing is read again after a Conflict."""
    claim = running_node(world)
    world.cluster.update("nodeclaims", claim.name, termination_grace_period_seconds=grace_seconds)
    write, stale = world.cluster.write_nodeclaim_status, list[str]()

    def noted(written: NodeClaim, *arguments: Any, **more: Any) -> NodeClaim:
        current = world.cluster.nodeclaim(written.name)
        if current is not None and current.metadata.resource_version != written.metadata.resource_version:
            stale.append(written.metadata.resource_version)
        return write(written, *arguments, **more)

    monkeypatch.setattr(world.cluster, "write_nodeclaim_status", noted)
    delete(world, claim)
    assert world.run(90, until=lambda: gone(world, claim))
    assert not stale


def test_a_claim_that_was_made_anew_as_the_first_one_of_its_name_went_keeps_its_finalizer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another worker had let the first one go."""
    claim = running_node(world)
    patch, made = world.cluster.patch_metadata, list[NodeClaim]()

    def patch_metadata(kind: str, metadata: ObjectMeta, change: Mapping[str, Any]) -> None:
        if change.get("finalizers") == [] and kind == "nodeclaims" and not made:
            about = ObjectMeta(claim.name, labels={labels.NODEPOOL: "default"}, finalizers=(labels.FINALIZER,))
            made.append(world.cluster.put("nodeclaims", NodeClaim(about, claim.node_class_ref)))
        patch(kind, metadata, change)

    monkeypatch.setattr(world.cluster, "patch_metadata", patch_metadata)
    delete(world, claim)
    assert world.run(120, until=lambda: bool(made))
    current = world.cluster.nodeclaim(claim.name)
    assert current is not None
    assert current.metadata.uid == made[0].metadata.uid
    assert labels.FINALIZER in current.metadata.finalizers


def test_a_drain_lasts_five_seconds_even_when_nobody_is_there(world: World) -> None:
    claim = running_node(world)
    for pod in world.running_pods():
        world.cluster.remove("pods", pod.key)
    delete(world, claim)
    began = world.clock.now()
    assert world.run(60, until=lambda: bool(world.effects.select("ec2", "terminate")))
    assert world.effects.select("ec2", "terminate")[0].at - began >= timedelta(seconds=5)


def test_a_drain_that_began_in_the_future_lasts_no_longer(world: World) -> None:
    """The clock of the function that began it was ten minutes ahead; the five seconds count from the deletion."""
    claim = running_node(world)
    for pod in world.running_pods():
        world.cluster.remove("pods", pod.key)
    delete(world, claim)
    began = world.clock.now()
    world.settle()
    conditions = tuple(
        msgspec.structs.replace(found, last_transition_time=began + timedelta(minutes=10))
        if found.type == "Drained"
        else found
        for found in world.claims()[0].conditions
    )
    world.cluster.update("nodeclaims", claim.name, conditions=conditions)
    assert world.run(15, until=lambda: bool(world.effects.select("ec2", "terminate")))
    assert world.effects.select("ec2", "terminate")[0].at - began >= timedelta(seconds=5)


def test_deleting_a_node_deletes_its_claim(world: World) -> None:
    claim = running_node(world)
    node = world.cluster.node(claim.node_name)
    assert node is not None
    world.cluster.delete("nodes", node.metadata)
    assert world.run(90, until=lambda: gone(world, claim))
    assert world.cluster.node(claim.node_name) is None
    assert not world.ec2.live_instances()


def test_a_machine_that_vanished_is_not_drained(world: World) -> None:
    claim = running_node(world)
    world.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget("keep", "inflate", max_unavailable=0))
    world.ec2.stop(world.ec2.live_instances()[0].id, after_seconds=0)
    delete(world, claim)
    assert world.run(90, until=lambda: gone(world, claim))
    assert not world.effects.select("ec2", "terminate") or world.ec2.all_instances()[0].state == "terminated"


def test_an_unknown_id_must_be_unknown_for_a_minute(world: World) -> None:
    claim = running_node(world)
    for pod in world.running_pods():
        world.cluster.remove("pods", pod.key)
    delete(world, claim)
    world.ec2.forget_instance(world.ec2.live_instances()[0].id)
    began = world.clock.now()
    assert world.run(150, until=lambda: gone(world, claim))
    assert world.clock.now() - began >= timedelta(seconds=60)


@pytest.mark.parametrize("action", ["instance", "instances_of_launch"])
def test_an_api_in_trouble_ends_nothing(world: World, action: str) -> None:
    claim = running_node(world)
    delete(world, claim)
    world.effects.inject(Fault("ec2", action, Unavailable("no answer"), times=10_000))
    world.run(120)
    if action == "instance":
        assert not gone(world, claim)
        assert world.cluster.node(claim.node_name) is not None


def test_an_expired_claim_goes_by_itself(world: World) -> None:
    world.cluster.update("nodepools", "default", expire_after_seconds=600)
    claim = running_node(world)
    world.run(560)
    assert not gone(world, claim)
    assert world.run(720, until=lambda: gone(world, claim))
    (said,) = [event.message for event in world.cluster.events if event.reason == "Deleting"]
    assert said.startswith("Deleting the NodeClaim: older than expireAfter since 2026-")


def test_a_deleted_node_takes_its_claim_along_when_the_message_is_lost(world: World) -> None:
    """Nobody tells of the Node again: the sweep rings for the claim alone."""
    claim = running_node(world)
    node = world.cluster.node(claim.node_name)
    world.forwarder_runs = False
    world.cluster.delete_node(node)
    assert world.run(700, until=lambda: gone(world, claim))
    assert not world.ec2.live_instances()
    assert not world.cluster.nodes()


def test_a_node_that_goes_with_its_instance_takes_its_claim_along_when_no_message_comes(world: World) -> None:
    claim = running_node(world)
    world.forwarder_runs = False
    world.ec2.stop(instance_id(claim.provider_id), after_seconds=0)
    assert world.run(700, until=lambda: gone(world, claim))
    assert not world.cluster.nodes()
