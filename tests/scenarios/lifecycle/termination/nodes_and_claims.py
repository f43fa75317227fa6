"""Claims with their Nodes, as the scenarios of termination need them."""

import msgspec

from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.node import Node
from spotwright.simulation import builders
from spotwright.simulation.world import World

MINUTES = 60


def running_claim(world: World) -> NodeClaim:
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 1)
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)
    world.run(90)
    (claim,) = world.claims()
    return claim


def current(world: World, claim: NodeClaim) -> NodeClaim:
    found = world.cluster.nodeclaim(claim.name)
    assert found is not None
    return found


def node_of(world: World, claim: NodeClaim) -> Node:
    node = world.cluster.node(claim.node_name)
    assert node is not None
    return node


def unclaimed_node(world: World) -> NodeClaim:
    """Somebody removed the claim with its finalizer; its Node and its instance are left."""
    claim = running_claim(world)
    world.cluster.remove("nodeclaims", claim.name)
    return claim


def second_node(world: World, claim: NodeClaim, name: str, *, finalizers: tuple[str, ...] = ()) -> Node:
    """A kubelet that registered under another name left the old Node behind; or somebody states another's instance."""
    first = node_of(world, claim)
    metadata = ObjectMeta(name, labels={"kubernetes.io/hostname": name}, finalizers=finalizers)
    stored: Node = world.cluster.put("nodes", msgspec.structs.replace(first, metadata=metadata))
    return stored


def move_pods(world: World, node: Node) -> None:
    for pod in world.running_pods():
        world.cluster.update("pods", pod.key, node_name=node.name)


def is_deleted(world: World, claim: NodeClaim) -> bool:
    found = world.cluster.nodeclaim(claim.name)
    return found is None or found.metadata.deletion_timestamp is not None
