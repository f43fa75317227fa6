"""What `kubectl describe nodeclaim` tells of a life: in order, without repeats, and why it ended."""

import pytest

from spotwright.simulation import builders
from spotwright.simulation.world import World
from tests.scenarios.lifecycle.disruption.edits import edit

MINUTES = 60


@pytest.fixture
def lived(world: World) -> World:
    """A node that runs a pod for some minutes."""
    world.deploy(builders.pod("web", cpu_millicores=1800), 1)
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)
    return world


def story(world: World, name: str) -> list[tuple[str, str]]:
    """Reason and message of the events of a NodeClaim, in their order."""
    return [(event.reason, event.message) for event in world.cluster.events if event.name == name]


def reasons(world: World, name: str) -> list[str]:
    return [reason for reason, _ in story(world, name)]


def test_a_quiet_life_is_told_once(lived: World) -> None:
    (claim,) = lived.claims()
    lived.run(10 * MINUTES)
    told = reasons(lived, claim.name)
    assert told[:5] == ["Launched", "Registered", "ConsistentStateFound", "Initialized", "Ready"]
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
