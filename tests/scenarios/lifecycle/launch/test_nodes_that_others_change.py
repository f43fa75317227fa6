"""Nodes that join, or that are about to go, while others write them: what of them stays as it is."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from spotwright.errors import Conflict
from spotwright.model import labels
from spotwright.model.kubernetes.eviction import DISRUPTED_TAINT
from spotwright.model.kubernetes.meta import OwnerReference
from spotwright.model.kubernetes.node import Node, NodeWithVolumes, instance_id
from spotwright.model.kubernetes.taints import Taint
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell

POD = builders.pod("inflate", cpu_millicores=1800)


@pytest.mark.parametrize(
    "change",
    [{"finalizers": ("example.com/theirs",)}, {"owner_references": (OwnerReference("Machine", "theirs"),)}],
    ids=["finalizer", "owner"],
)
def test_what_others_add_to_a_node_while_it_is_registered_stays(world: World, change: dict[str, Any]) -> None:
    usual = world.cluster.set_taints

    def set_taints(node: Node, taints: Sequence[Taint], **more: Any) -> NodeWithVolumes:
        world.cluster.set_taints = usual  # type: ignore[method-assign]
        world.cluster.put(
            "nodes", msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, **change))
        )
        raise Conflict("the Node was changed meanwhile", code="Conflict")

    world.cluster.set_taints = set_taints  # type: ignore[method-assign]
    world.deploy(POD, 1)
    assert world.run(180, until=lambda: len(world.running_pods()) == 1)
    (node,) = world.cluster.nodes()
    assert labels.FINALIZER in node.metadata.finalizers
    for name, values in change.items():
        assert set(values) <= set(getattr(node.metadata, name))


@pytest.mark.parametrize("why", ["", "notice", "decision"])
def test_a_tainted_node_keeps_its_taint_while_a_notice_or_a_decision_may_concern_it(world: World, why: str) -> None:
    world.deploy(POD, 1)
    assert world.run(180, until=lambda: len(world.running_pods()) == 1)
    world.run(60)
    (claim,), (node,) = world.claims(), world.cluster.nodes()
    world.cluster.set_taints(node, (*node.taints, DISRUPTED_TAINT))
    if why == "notice":
        world.interrupt_spot(instance_id(claim.provider_id))
    if why == "decision":
        world.state.cluster_row = msgspec.structs.replace(
            world.state.cluster_row, pending_decisions=("decisions/not-acted-on",)
        )
    lifecycle(world.ports, [Doorbell(world.cluster.name, "claim", claim.name)], now=world.clock.now())
    (node,) = world.cluster.nodes()
    assert (DISRUPTED_TAINT in node.taints) is bool(why)
