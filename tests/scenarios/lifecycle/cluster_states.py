"""Worlds whose planners read a cluster state, and what such a state may say."""

import msgspec

from spotwright.model.cluster_state import ClusterObjects
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.simulation import builders
from spotwright.simulation.world import World
from tests.scenarios.lifecycle.conftest import fresh_world

# One fills a small node.
POD = builders.pod("inflate", cpu_millicores=1800)


def shipping(lag: float, *, stated: float | None = None) -> World:
    """A world whose forwarder ships a state that is ``lag`` seconds behind, and says that it is ``stated`` old."""
    world = fresh_world()
    world.cluster_state.lag_seconds, world.cluster_state.stated_lag_seconds = lag, stated
    return world


def everybody_runs(world: World, pods: int) -> bool:
    waiting = [pod for pod in world.cluster.all("pods") if not pod.node_name]
    return not waiting and len(world.running_pods()) == pods


def settled(world: World, pods: int) -> tuple[NodeClaim, ...]:
    """The claims of a cluster in which nothing has happened for long."""
    world.deploy(POD, pods)
    assert world.run(240, until=lambda: everybody_runs(world, pods))
    world.run(400)
    return world.claims()


def invented(objects: ClusterObjects, pods: int = 10_000) -> ClusterObjects:
    """So many pods that nobody made, and no node or claim that exists."""
    waiting = tuple(
        msgspec.structs.replace(
            POD,
            metadata=ObjectMeta(f"lie-{number:05d}", "default", uid=f"lie-{number}"),
            phase="Pending",
            unschedulable=True,
        )
        for number in range(pods)
    )
    return msgspec.structs.replace(objects, pods=waiting, nodes=(), nodeclaims=())
