"""Nodes that go without a replacement decided before: the planner is told of their pods before these are evicted."""

from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta

import msgspec
import pytest

from spotwright.lifecycle.drain import PLANNING_PERIOD
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import Condition
from spotwright.simulation import builders
from spotwright.simulation.effects import Crash, Effect
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell

# Such a pod fills a small node.
POD = builders.pod("inflate", cpu_millicores=1800, labels={"app": "inflate"})


def running(world: World, **fields: object) -> NodeClaim:
    world.deploy(msgspec.structs.replace(POD, **fields), 1)
    assert world.run(60, until=lambda: bool(world.running_pods()))
    world.run(30)
    (claim,) = world.claims()
    return claim


def delete_claim(world: World, claim: NodeClaim) -> None:
    world.cluster.delete("nodeclaims", claim.metadata)


def delete_node(world: World, claim: NodeClaim) -> None:
    world.cluster.delete_node(world.cluster.node(claim.node_name))


def expire(world: World, claim: NodeClaim) -> None:
    """Its time is over now; nobody deletes it but Spotwright."""
    assert claim.metadata.creation_timestamp is not None
    age = int((world.clock.now() - claim.metadata.creation_timestamp).total_seconds())
    world.cluster.update("nodeclaims", claim.name, expire_after_seconds=age)


def is_deleted(world: World, claim: NodeClaim) -> bool:
    current = world.cluster.nodeclaim(claim.name)
    return current is None or current.metadata.deletion_timestamp is not None


def first(world: World, port: str, action: str, since: int) -> Effect:
    return next(effect for effect in world.effects.select(port, action) if effect.number > since)


@pytest.mark.parametrize("cause", [delete_claim, delete_node, expire])
def test_what_takes_its_pods_is_launched_before_they_are_evicted(
    world: World, cause: Callable[[World, NodeClaim], None]
) -> None:
    claim = running(world)
    since = len(world.effects.log)
    cause(world, claim)
    assert world.run(120, until=lambda: is_deleted(world, claim))
    deleted = world.clock.now()
    assert world.run(60, until=lambda: bool(world.effects.select("cluster", "evict")))
    launched, evicted = first(world, "ec2", "create_fleet", since), first(world, "cluster", "evict", since)
    assert launched.number < evicted.number
    assert launched.at - deleted <= timedelta(seconds=1)
    assert evicted.at - deleted <= timedelta(seconds=4)
    assert world.run(120, until=lambda: world.cluster.nodeclaim(claim.name) is None and bool(world.running_pods()))
    assert len(world.effects.select("ec2", "create_fleet")) == 2, "the pod that comes after it needs no further node"


def test_pods_that_a_budget_keeps_have_their_place_already(world: World) -> None:
    """Without it, the first pod that may go would be the first that anybody plans for."""
    world.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget("inflate", "inflate", min_available=1))
    claim = running(world)
    delete_claim(world, claim)
    assert world.run(10, until=lambda: len(world.claims()) == 2)
    world.run(120)
    assert world.cluster.nodeclaim(claim.name) is not None
    assert len(world.claims()) == 2


def test_pods_that_need_all_the_time_that_is_left_are_told_at_once(world: World) -> None:
    world.cluster.update("nodepools", "default", termination_grace_period_seconds=32)
    claim = running(world, termination_grace_period_seconds=30)
    delete_claim(world, claim)
    assert world.run(1, until=lambda: bool(world.effects.select("cluster", "evict")))


def test_an_empty_node_waits_for_no_plan(world: World) -> None:
    claim = running(world)
    world.deploy(POD, 0)
    assert world.run(10, until=lambda: not world.running_pods() and not world.cluster.pods(node=claim.node_name))
    planned = len(world.effects.select("state", "request_planning"))
    delete_claim(world, claim)
    assert world.run(120, until=lambda: not world.claims())
    assert len(world.effects.select("state", "request_planning")) == planned


def test_a_time_to_come_keeps_no_pod(world: World) -> None:
    """The clock of the function that began the drain was ten minutes ahead."""
    claim = running(world)
    delete_claim(world, claim)
    world.settle()
    current = world.cluster.nodeclaim(claim.name)
    assert current is not None
    later = world.clock.now() + timedelta(minutes=10)
    conditions = tuple(
        msgspec.structs.replace(found, last_transition_time=later) if found.type == "Drained" else found
        for found in current.conditions
    )
    world.cluster.update("nodeclaims", claim.name, conditions=conditions)
    assert world.run(5, until=lambda: bool(world.effects.select("cluster", "evict")))


def test_the_planner_is_rung_for_once(world: World) -> None:
    claim = running(world)
    delete_claim(world, claim)
    for _ in range(2):
        lifecycle(world.ports, [Doorbell(world.cluster.name, "claim", claim.name)], now=world.clock.now())
    assert not world.effects.select("cluster", "evict")
    assert [message.doorbell.kind for message in world.doorbells.messages].count("pods") == 1


@pytest.mark.parametrize("changes", range(1, 7))
def test_a_first_step_that_is_cut_off_anywhere_has_the_planner_rung_for_before_pods_are_evicted(
    world: World, changes: int
) -> None:
    claim = running(world)
    delete_claim(world, claim)
    world.doorbells.messages.clear()
    bell = Doorbell(world.cluster.name, "claim", claim.name)
    world.effects.crash_after(changes)
    with suppress(Crash):
        lifecycle(world.ports, [bell], now=world.clock.now())
    world.effects.crash_after(None)
    for _ in range(2):
        lifecycle(world.ports, [bell], now=world.clock.now())
    assert world.doorbells.messages_of("provision", "pods")
    assert not world.effects.select("cluster", "evict")
    world.clock.advance(PLANNING_PERIOD.total_seconds())
    lifecycle(world.ports, [bell], now=world.clock.now())
    assert world.effects.select("cluster", "evict")


def test_what_is_disrupted_has_its_replacement_and_waits_for_no_plan(world: World) -> None:
    claim = running(world)
    disrupted = Condition("DisruptionReason", "True", "Drifted", last_transition_time=world.clock.now())
    conditions = (*(found for found in claim.conditions if found.type != disrupted.type), disrupted)
    world.cluster.update("nodeclaims", claim.name, conditions=conditions)
    current = world.cluster.nodeclaim(claim.name)
    assert current is not None
    delete_claim(world, current)
    lifecycle(world.ports, [Doorbell(world.cluster.name, "claim", claim.name)], now=world.clock.now())
    assert world.effects.select("cluster", "evict")
