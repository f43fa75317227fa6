"""A NodeClaim whose node runs pods, and its end."""

from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.pod import Pod
from spotwright.simulation import builders
from spotwright.simulation.world import World


def running_node(world: World, pods: int = 1, template: Pod | None = None) -> NodeClaim:
    """A claim whose node runs ``pods``; nothing comes after them when they go."""
    world.deploy(template or builders.pod("inflate", cpu_millicores=500), pods)
    assert world.run(60, until=lambda: len(world.running_pods()) == pods)
    (claim,) = world.claims()
    world.forget_deployments()
    return claim


def delete(world: World, claim: NodeClaim) -> None:
    current = world.cluster.nodeclaim(claim.name)
    assert current is not None
    world.cluster.delete("nodeclaims", current.metadata)


def gone(world: World, claim: NodeClaim) -> bool:
    return world.cluster.nodeclaim(claim.name) is None
