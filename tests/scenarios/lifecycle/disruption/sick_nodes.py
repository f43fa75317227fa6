"""Nodes that fall ill: what the scenarios about them begin with, and what they look at."""

from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.snapshot import NODE_REPAIR, Settings
from spotwright.simulation import builders
from spotwright.simulation.world import World

MINUTES = 60


def with_nodes(world: World, count: int, *, gates: tuple[str, ...] = (NODE_REPAIR,)) -> World:
    world.settings = Settings(feature_gates=gates)
    world.deploy(builders.pod("inflate", cpu_millicores=1800), count)
    assert world.run(5 * MINUTES, until=lambda: len(world.running_pods()) == count)
    world.run(60)
    return world


def is_deleted(world: World, claim: NodeClaim) -> bool:
    current = world.cluster.find("nodeclaims", claim.name)
    return current is None or current.metadata.deletion_timestamp is not None


def reasons(world: World, name: str) -> set[str]:
    return {event.reason for event in world.cluster.events if event.name == name}
