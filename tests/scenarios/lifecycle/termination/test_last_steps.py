"""The last steps of many NodeClaims at once: few requests each, and what others write meanwhile keeps nothing."""

from typing import Any

import msgspec
import pytest

from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell
from tests.scenarios.lifecycle.termination.running_nodes import delete, gone, running_node


def ended(world: World, *, is_node_deleted: bool = False) -> NodeClaim:
    """A NodeClaim whose node is drained and whose instance is terminated; nobody has looked since. The control plane
    may have deleted the Node.
    """
    claim = running_node(world)
    delete(world, claim)
    assert world.run(40, until=lambda: bool(world.effects.select("ec2", "terminate")))
    world.settle()
    for _ in range(60):
        world.pass_second()
    assert world.ec2.all_instances()[0].state == "terminated"
    node = world.cluster.node(claim.node_name)
    assert node is not None
    deleted = world.clock.now() if is_node_deleted else None
    about = msgspec.structs.replace(node.metadata, deletion_timestamp=deleted)
    world.cluster.put("nodes", msgspec.structs.replace(node, metadata=about))
    return claim


def step(world: World, claim: NodeClaim) -> None:
    lifecycle(world.ports, [Doorbell(world.cluster.name, "claim", claim.name)], now=world.clock.now())


@pytest.mark.parametrize("is_deleted", [False, True], ids=["stays", "deleted"])
def test_controllers_that_write_a_node_as_it_goes_do_not_keep_it(
    world: World, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    """The control plane's write taints and annotations of a Node whose kubelet stops; each cost it two seconds."""
    claim = ended(world, is_node_deleted=is_deleted)
    usual, versions = world.cluster.node, iter(range(10))

    def written_meanwhile(name: str) -> Any:
        found = usual(name)
        if found is not None:
            world.cluster.patch_metadata("nodes", found.metadata, {"annotations": {"ttl": str(next(versions))}})
        return found

    monkeypatch.setattr(world.cluster, "node", written_meanwhile)
    step(world, claim)
    assert gone(world, claim)
    assert not world.cluster.all("nodes")


def test_a_finalizer_that_came_as_the_node_went_keeps_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = ended(world)
    usual, added = world.cluster.delete, list[str]()

    def finalizer_added(kind: str, metadata: ObjectMeta, **options: Any) -> None:
        if kind == "nodes" and not added:
            added.append("example.com/keep")
            change = {"finalizers": [*metadata.finalizers, *added]}
            world.cluster.patch_metadata("nodes", ObjectMeta(metadata.name, uid=metadata.uid), change)
        usual(kind, metadata, **options)

    monkeypatch.setattr(world.cluster, "delete", finalizer_added)
    step(world, claim)
    assert not gone(world, claim)
    step(world, claim)
    node = world.cluster.node(claim.node_name)
    assert node is not None
    assert node.metadata.finalizers == ("example.com/keep",)
    assert not gone(world, claim)
    world.cluster.patch_metadata("nodes", node.metadata, {"finalizers": []})
    step(world, claim)
    assert gone(world, claim)


def test_a_node_is_let_go_by_two_requests(world: World) -> None:
    claim = ended(world)
    began, reads = len(world.effects.log), world.effects.reads["cluster", "node"]
    step(world, claim)
    assert gone(world, claim)
    of_node = [effect.action for effect in world.effects.log[began:] if claim.node_name in effect.subject]
    assert of_node == ["delete", "set_taints"]
    # The step of the claim reads it.
    assert world.effects.reads["cluster", "node"] - reads == 1
