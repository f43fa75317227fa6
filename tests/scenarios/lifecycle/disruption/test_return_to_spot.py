"""Nodes that became on-demand for lack of spot capacity: they return to spot when it has been healthy for a while."""

from spotwright.disruption import spot_return
from spotwright.model import labels
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.requirements import NodeSelectorRequirement, Operator
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.planning.replay import replay
from tests.scenarios.lifecycle.conftest import fresh_world

HEALTHY_SECONDS = spot_return.HEALTHY_MS // 1000
POD = builders.pod("web", cpu_millicores=1800)


def capacity_types(world: World) -> list[str]:
    return sorted(claim.metadata.labels.get(labels.CAPACITY_TYPE, "") for claim in world.claims())


def fallen_back() -> World:
    """A node that runs on-demand, since EC2 had no spot capacity; it has it again from now on."""
    world = fresh_world()
    world.cluster.update("nodepools", "default", budgets=(Budget("100%"),))
    world.ec2.capacity["spot", "*", "*"] = 0
    world.deploy(POD, 1)
    assert world.run(180, until=lambda: len(world.running_pods()) == 1)
    assert capacity_types(world) == ["on-demand"]
    del world.ec2.capacity["spot", "*", "*"]
    return world


def messages(world: World, reason: str) -> list[str]:
    return [event.message for event in world.cluster.events if event.reason == reason]


def test_a_node_returns_to_spot_when_there_was_no_trouble_for_half_an_hour() -> None:
    world = fallen_back()
    world.run(HEALTHY_SECONDS - 300)
    assert capacity_types(world) == ["on-demand"]
    (why,) = {message.partition(":")[0] for message in messages(world, "Unconsolidatable")}
    assert why == "Can't replace with a cheaper node"
    assert "nodes return to spot after 30 minutes without that" in messages(world, "Unconsolidatable")[-1]
    assert world.run(600, until=lambda: capacity_types(world) == ["spot"])
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)
    (key,) = [key for key, body in world.blobs.bodies.items() if b'"Underutilized"' in body and "decisions" in key]
    assert replay(key, blobs=world.blobs, catalogs=world.ports.catalogs).agrees


def test_an_attempt_that_fails_begins_the_time_anew() -> None:
    world = fallen_back()
    world.ec2.capacity["spot", "*", "*"] = 0
    assert world.run(HEALTHY_SECONDS + 300, until=lambda: bool(world.state.commands(created_after=0)))
    world.run(60)
    launches = len(world.ec2.requests)
    world.run(HEALTHY_SECONDS - 300)
    assert capacity_types(world) == ["on-demand"]
    assert len(world.ec2.requests) == launches


def test_only_pools_without_trouble_are_returned_to() -> None:
    world = fallen_back()
    world.state.health = {key: row for key, row in world.state.health.items() if ":c5.large:" in key}
    assert world.run(300, until=lambda: capacity_types(world) == ["spot"])
    (claim,) = world.claims()
    assert claim.metadata.labels[labels.INSTANCE_TYPE] == "m5.large"


def test_a_smaller_on_demand_node_does_not_wait_for_spot() -> None:
    world = fallen_back()
    large = NodeSelectorRequirement(labels.INSTANCE_TYPE, Operator.IN, ("c5.2xlarge",))
    world.ec2.capacity["spot", "*", "*"] = 0
    world.cluster.update("nodepools", "default", requirements=(large,), budgets=(Budget("0"),))
    world.deploy(builders.pod("other", cpu_millicores=1800), 1)
    assert world.run(180, until=lambda: len(world.running_pods()) == 2)
    world.cluster.update("nodepools", "default", requirements=(), budgets=(Budget("100%"),))
    assert world.run(
        600,
        until=lambda: "c5.2xlarge" not in {claim.metadata.labels[labels.INSTANCE_TYPE] for claim in world.claims()},
    )
    assert set(capacity_types(world)) == {"on-demand"}
