"""How many pods limits leave at least."""

from collections.abc import Sequence

import pytest

from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import Pod
from spotwright.scheduling.capacity.weight_groups import ENFORCED, OfferingIndexCache, build_weight_groups
from spotwright.scheduling.inputs.cluster_state import build_cluster_state
from spotwright.scheduling.inputs.nodepools import build_templates
from spotwright.scheduling.strategies.fewest_left import count_fewest_left
from tests.unit.scheduling.builders import TYPES, instance, node, pods, pool, snapshot


def fewest_left(waiting: Sequence[Pod], *pools: NodePool, nodes: tuple[Node, ...] = (), types: object = TYPES) -> int:
    catalog = Catalog({"": tuple(types)})  # type: ignore[arg-type]
    cluster = snapshot(*waiting, pools=pools, nodes=nodes)
    state, templates = build_cluster_state(cluster, catalog, ()), build_templates(cluster, catalog)[0]
    dimensions = ("cpu", "memory", "pods")
    groups = build_weight_groups(
        templates, OfferingIndexCache(()), dimensions, state.usage_by_nodepool, (), {}, ENFORCED
    )
    return count_fewest_left(groups, state.nodes, waiting)


def test_the_smallest_pods_have_a_place_as_far_as_the_limit_goes() -> None:
    waiting = (*pods(4, "small", 1), *pods(2, "large", 4))
    assert fewest_left(waiting, pool(limits={"cpu": "8"})) == 1
    assert fewest_left(waiting, pool(limits={"cpu": "7"})) == 2


def test_the_scarcest_resource_counts() -> None:
    waiting = pods(4, cpu=1, memory="4Gi")
    assert fewest_left(waiting, pool(limits={"cpu": "3", "memory": "8Gi"})) == 2


def test_what_all_types_reserve_holds_no_pods() -> None:
    half = instance("half", 2, 8, 0.1, capacity={"cpu": 4000})
    half = type(half)(half.name, half.requirements, half.capacity, half.allocatable | {"cpu": 2000}, half.offerings)
    assert fewest_left(pods(4, cpu=1), pool(limits={"cpu": "4"}), types=(half,)) == 2


def test_existing_nodes_have_room_besides() -> None:
    nodes = (node("n", 2),)
    assert fewest_left(pods(4, cpu=1), pool(limits={"cpu": "3"}), nodes=nodes) == 1


@pytest.mark.parametrize("limits", [{}, {"nodes": "1"}, {"ephemeral-storage": "1Gi"}])
def test_what_some_nodepool_does_not_limit_leaves_nobody(limits: dict[str, str]) -> None:
    assert not fewest_left(pods(9, cpu=1), pool(limits={"cpu": "1"}), pool("other", limits=limits))
