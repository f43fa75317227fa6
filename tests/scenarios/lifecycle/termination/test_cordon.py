"""A Node that is drained has the taint that keeps further pods away."""

import pytest

from spotwright.errors import Conflict
from spotwright.model import labels
from spotwright.model.kubernetes.eviction import DISRUPTED_TAINT
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.actions import cordon, uncordon


def test_a_node_that_lost_its_taint_meanwhile_is_not_drained(world: World) -> None:
    """Another step took it for one without a command: nothing but the label would be written, which is no conflict."""
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(90, until=lambda: bool(world.running_pods()))
    (listed,) = world.cluster.nodes()
    node = world.cluster.node_with_volumes(listed.name)
    assert node is not None
    tainted = cordon(world, node)
    uncordon(world, tainted)
    excluded = {"labels": {labels.EXCLUDE_FROM_LOAD_BALANCERS: "karpenter"}}
    with pytest.raises(Conflict, match="has lost the taint"):
        cordon(world, tainted, metadata=excluded)
    current = world.cluster.node_with_volumes(listed.name)
    assert current is not None
    assert DISRUPTED_TAINT in cordon(world, current, metadata=excluded).taints
