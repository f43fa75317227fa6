"""Disruption that is found each minute and refused each minute: how often the cluster is listed for it."""

from collections.abc import Callable
from datetime import timedelta
from functools import partial

import msgspec
import pytest

from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.kubernetes.meta import Condition
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.model.snapshot import LaunchedInMinute
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.disrupt.workflow import disrupt
from spotwright.workflows.ports.doorbells import Doorbell
from tests.scenarios.lifecycle.conftest import fresh_world
from tests.scenarios.lifecycle.disruption import scheduled_events

LIST_SECONDS = 12
HOUR_SECONDS = 3600
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


def reach_ceiling(world: World) -> None:
    """As many nodes were launched within the hour as may be, and are again and again."""
    world.settings = msgspec.structs.replace(world.settings, max_nodes_per_hour=1)
    minute = int(world.clock.now().timestamp()) // 60
    launched = tuple(LaunchedInMinute(minute + number, 1, 1) for number in range(90))
    world.state.cluster_row = msgspec.structs.replace(world.state.cluster_row, launched=launched)


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
            tuple(disrupt(world.ports, bells, clock=world.clock.now))
        world.clock.advance(1)


@pytest.mark.parametrize("found", FOUND)
def test_what_a_ceiling_of_launches_holds_back_is_not_read_live(found: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commit alone knew of the ceiling: the cluster was listed each minute as long as it was reached."""
    world = FOUND[found]()
    reach_ceiling(world)
    lists = count_lists(world, monkeypatch)
    evaluate_each_minute(world)
    assert not lists
    assert any("MAX_NODES_PER_HOUR" in event.message for event in world.cluster.events)
