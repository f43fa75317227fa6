"""What the sweep reads while nothing happens, and what it finds all the same."""

from collections.abc import Callable

import msgspec
import pytest

from spotwright.model.cluster_state import ClusterObjects
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.sweep.workflow import sweep
from tests.scenarios.lifecycle.conftest import fresh_world

MINUTES = 60
NODES = 3


def settled(lag: float | None) -> World:
    """Some nodes with a pod each; the forwarder ships a state that is so late, None = it ships none."""
    world = fresh_world()
    world.cluster_state.lag_seconds = lag
    world.deploy(builders.pod("inflate", cpu_millicores=1800), NODES)
    assert world.run(5 * MINUTES, until=lambda: len(world.running_pods()) == NODES)
    world.run(5 * MINUTES)
    return world


def polls_of_an_hour(world: World) -> dict[str, int]:
    """How often the polls of an hour list, each as in the simulation's hour."""
    before = world.effects.reads.copy()
    for _ in range(60):
        world.clock.advance(MINUTES)
        world.state.heartbeat_at = world.clock.milliseconds()
        world.cluster_state.take()
        tuple(sweep(world.ports, [Doorbell(world.cluster.name, "poll")], clock=world.clock.now))
    reads = world.effects.reads - before
    return {action: number for (port, action), number in reads.items() if port in ("cluster", "ec2")}


def test_a_fresh_state_spares_nine_of_ten_lists() -> None:
    listing, reading = polls_of_an_hour(settled(None)), polls_of_an_hour(settled(1))
    assert (listing["nodeclaims"], reading["nodeclaims"]) == (60, 6)
    assert (listing["instances_of_cluster"], reading["instances_of_cluster"]) == (30, 6)
    assert sum(reading.values()) < 0.7 * sum(listing.values())


@pytest.mark.parametrize("lag", [0, 15, 60])
def test_a_lost_instance_is_found_with_a_state_too(lag: float) -> None:
    world = settled(lag)
    (claim, *_) = world.claims()
    world.ec2.stop(instance_id(claim.provider_id), after_seconds=0)
    assert world.run(6 * MINUTES, until=lambda: world.cluster.nodeclaim(claim.name) is None)


def nothing_waits(objects: ClusterObjects) -> ClusterObjects:
    return msgspec.structs.replace(objects, nodeclaims=(), pods=tuple(pod for pod in objects.pods if pod.node_name))


def everything_is_ready(objects: ClusterObjects) -> ClusterObjects:
    nodes = tuple(msgspec.structs.replace(node, conditions=(builders.READY,)) for node in objects.nodes)
    return msgspec.structs.replace(objects, nodes=nodes)


@pytest.mark.parametrize("lie", [nothing_waits, everything_is_ready])
def test_a_state_that_hides_what_is_left_to_do_delays_it_by_ten_minutes(
    lie: Callable[[ClusterObjects], ClusterObjects],
) -> None:
    world = settled(0)
    world.cluster_state.lie = lie
    (claim, *_) = world.claims()
    world.ec2.stop(instance_id(claim.provider_id), after_seconds=0)
    world.forget_changes()
    assert world.run(16 * MINUTES, until=lambda: world.cluster.nodeclaim(claim.name) is None)
