"""A cluster that launches too much stops for a while, says why, and goes on."""

import json
from typing import Any

import msgspec
import pytest

from spotwright.decisions.decision import decode_decision
from spotwright.model.cluster_state import ClusterObjects
from spotwright.model.kubernetes.node import instance_id
from spotwright.model.snapshot import STATIC_CAPACITY
from spotwright.simulation import builders
from spotwright.simulation.effects import Crash
from spotwright.simulation.world import World
from spotwright.workflows.planning.replay import replay
from spotwright.workflows.provision.workflow import provision
from tests.scenarios.lifecycle.conftest import fresh_world

# One fills a small node.
POD = builders.pod("inflate", cpu_millicores=1800)
HOUR = 3600


def world_with(**ceilings: int) -> World:
    world = fresh_world()
    world.settings = msgspec.structs.replace(world.settings, **ceilings)
    return world


def events(world: World, reason: str) -> list[Any]:
    return [event for event in world.cluster.events if event.reason == reason]


def launched(world: World) -> int:
    return sum(counted.nodes for counted in world.state.cluster().launched)


def test_a_burst_goes_as_far_as_the_ceiling_says_why_and_goes_on_when_it_ends() -> None:
    world = world_with(max_nodes_per_hour=2)
    world.deploy(POD, 3)
    assert not world.run(180, until=lambda: len(world.running_pods()) == 3)
    assert len(world.running_pods()) == 2
    assert len(world.ec2.all_instances()) == 2
    (told, *_) = events(world, "LaunchesHeldBack")
    assert (told.kind, told.name) == ("nodepools", "default")
    assert (
        "1 node held back: setting MAX_NODES_PER_HOUR allows 2 new nodes within an hour, and none is left"
        in told.message
    )
    (pod,) = {event.name for event in events(world, "FailedScheduling")}
    assert pod.startswith("inflate-")
    world.clock.advance(HOUR - 180)
    assert world.run(150, until=lambda: len(world.running_pods()) == 3)
    assert len(world.ec2.all_instances()) == 3


def test_launches_of_the_next_minute_are_rung_for_at_its_beginning() -> None:
    world = world_with(max_launches_per_minute=1)
    for number in range(3):
        template = builders.pod(f"shape-{number}", cpu_millicores=1800)
        labelled = msgspec.structs.replace(template, node_selector={"topology.kubernetes.io/zone": zone(world, number)})
        world.deploy(labelled, 1)
    world.run(1)
    assert sum(counted.launches for counted in world.state.cluster().launched) == 1
    (rung, *_) = world.doorbells.messages_of("provision", "pods")
    assert rung.at == world.clock.milliseconds() // 60_000 * 60_000 + 60_000
    assert world.run(180, until=lambda: len(world.running_pods()) == 3)


def zone(world: World, number: int) -> str:
    types = next(iter(world.catalogs.catalog.by_nodeclass.values()))
    zones = sorted({offering.zone for instance_type in types for offering in instance_type.offerings})
    return zones[number % len(zones)]


@pytest.mark.parametrize("changes", range(1, 9))
def test_what_is_launched_is_counted_once_wherever_an_invocation_dies(changes: int) -> None:
    world = world_with(max_nodes_per_hour=2)
    world.deploy(POD, 3)
    world.kubelets.reconcile()
    world.effects.crash_after(changes)
    with pytest.raises(Crash):
        provision(world.ports, clock=world.clock.now)
    for _ in range(3):
        provision(world.ports, clock=world.clock.now)
    world.run(180)
    assert launched(world) == 2
    assert len(world.ec2.all_instances()) == 2


def test_a_replacement_counts_with_what_was_launched_before() -> None:
    world = world_with(max_nodes_per_hour=3)
    world.deploy(POD, 2)
    assert world.run(120, until=lambda: len(world.running_pods()) == 2)
    world.run(60)
    world.interrupt_spot(instance_id(world.claims()[0].provider_id))
    world.run(60)
    assert launched(world) == len(world.ec2.all_instances()) == 3


def test_replacements_count_and_are_held_back_like_any_node() -> None:
    world = world_with(max_nodes_per_hour=2)
    world.deploy(POD, 2)
    assert world.run(120, until=lambda: len(world.running_pods()) == 2)
    world.run(60)
    world.interrupt_spot(instance_id(world.claims()[0].provider_id))
    world.run(60)
    assert launched(world) == 2
    assert len(world.ec2.all_instances()) == 2


def test_a_plan_that_was_cut_is_replayed_bit_for_bit() -> None:
    world = world_with(max_nodes_per_hour=2)
    world.deploy(POD, 3)
    world.kubelets.reconcile()
    provision(world.ports, clock=world.clock.now)
    head = world.state.cluster().head
    assert decode_decision(world.blobs.get(head)).plan.nodes_held_back
    assert replay(head, blobs=world.blobs, catalogs=world.catalogs).agrees


def test_nodes_that_ec2_had_no_capacity_for_hold_nothing_back() -> None:
    """They are tried again and again; without one of them launched, other pods would wait for an hour."""
    world = world_with(max_nodes_per_hour=4)
    world.ec2.capacity[("spot", "*", "*")] = world.ec2.capacity[("on-demand", "*", "*")] = 0
    world.deploy(POD, 3)
    world.run(1200)
    assert not world.ec2.all_instances()
    world.ec2.capacity.clear()
    assert world.run(300, until=lambda: len(world.running_pods()) == 3)
    world.deploy(POD, 6)
    world.run(180)
    assert len(world.ec2.all_instances()) == 4


def test_a_busy_hour_leaves_a_small_row() -> None:
    world = world_with(max_nodes_per_hour=10**6)
    for minute in range(90):
        world.cluster.put("pods", builders.pod(f"pod-{minute}", cpu_millicores=1800, unschedulable=True))
        provision(world.ports, clock=world.clock.now)
        world.state.mark_acted(world.state.cluster().head)
        world.clock.advance(60)
    row = world.state.cluster()
    assert len(row.launched) <= 60
    assert len(json.dumps(msgspec.to_builtins(row))) < 10_000


def test_ceilings_hold_when_a_scale_down_of_the_state_turns_out_to_be_none() -> None:
    """The state shows a node too many of a static pool, the API server does not: what it says is planned instead."""
    world = world_with(max_nodes_per_hour=2)
    world.settings = msgspec.structs.replace(world.settings, feature_gates=(STATIC_CAPACITY,))
    world.cluster.put("nodepools", builders.nodepool("fixed", replicas=1))
    assert world.run(180, until=lambda: [claim.is_condition_true("Initialized") for claim in world.claims()] == [True])

    def with_another_claim(objects: ClusterObjects) -> ClusterObjects:
        (claim,) = objects.nodeclaims
        metadata = msgspec.structs.replace(claim.metadata, name="fixed-gone", uid="gone")
        gone = msgspec.structs.replace(claim, metadata=metadata, provider_id="aws:///a/i-gone", node_name="gone")
        return msgspec.structs.replace(objects, nodeclaims=(*objects.nodeclaims, gone))

    world.cluster_state.lag_seconds, world.cluster_state.lie = 0, with_another_claim
    world.deploy(POD, 6)
    world.kubelets.reconcile()
    provision(world.ports, clock=world.clock.now)
    assert launched(world) == 2
