"""What limits leave in the end is spent on cheaper types, once, and not where minValues list these anyway."""

from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.scheduling.capacity.limit_slack import plan_cheaper_types
from spotwright.scheduling.capacity.planned_nodes import OfferingOptions, PlannedNode
from spotwright.scheduling.capacity.weight_groups import ENFORCED, WeightGroup
from spotwright.scheduling.inputs.nodepools import build_templates
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.packing.known_packings import KnownPackings
from tests.unit.scheduling.builders import GIB, instance, pool, snapshot

DENSE = instance("dense", 8, 8, 0.80)
WIDE = instance("wide", 8, 16, 0.40)


def weight_group(*requirements: NodeSelectorRequirement, memory: str) -> WeightGroup:
    """A NodePool with a limit on memory."""
    pools = (pool("default", *requirements, limits={"memory": memory}),)
    templates, _ = build_templates(snapshot(pools=pools), Catalog({"": (DENSE, WIDE)}))
    index = OfferingIndex(templates, (), (resources.CPU, resources.MEMORY, resources.PODS))
    return WeightGroup(index, (), {}, (), {}, ENFORCED, KnownPackings())


def dense_node(group: WeightGroup, node_count: int = 1) -> PlannedNode:
    """Equal nodes planned for the dense type that may become any type; the limit counts them."""
    index = group.offering_index
    node = PlannedNode(group, 0, OfferingOptions(index.all_offerings), "node")
    node.offering = next(n for n, each in enumerate(index.pool_type_of) if each.instance_type.name == "dense")
    node.pods_by_node = [(f"default/p-{number}",) for number in range(node_count)]
    group.limits.spend(index, node.offering, node_count)
    return node


def types_after(group: WeightGroup, *nodes: PlannedNode) -> list[str]:
    return sorted(
        group.offering_index.pool_type_of[node.offering].instance_type.name
        for node in plan_cheaper_types(group, nodes)
        for _ in node.pods_by_node
    )


def test_what_is_left_is_spent_once() -> None:
    group = weight_group(memory="24Gi")
    assert types_after(group, dense_node(group), dense_node(group)) == ["dense", "wide"]
    assert group.limits.by_template == [{resources.MEMORY: 0}]


def test_a_node_gives_back_what_its_old_type_counted() -> None:
    group = weight_group(memory="32Gi")
    assert types_after(group, dense_node(group), dense_node(group)) == ["wide", "wide"]
    assert group.limits.by_template == [{resources.MEMORY: 0}]


def test_of_equal_nodes_as_many_become_cheaper_as_the_limit_has_room_for() -> None:
    group = weight_group(memory=f"{3 * 8 + 2 * 8 + 1}Gi")
    assert types_after(group, dense_node(group, 3)) == ["dense", "wide", "wide"]
    assert group.limits.by_template == [{resources.MEMORY: GIB}]


def test_nodes_of_a_nodepool_with_minvalues_stay_as_they_are() -> None:
    """Their launches may choose the cheaper types already."""
    group = weight_group(NodeSelectorRequirement(labels.INSTANCE_TYPE, "Exists", min_values=2), memory="24Gi")
    assert types_after(group, dense_node(group)) == ["dense"]
    assert group.limits.by_template == [{resources.MEMORY: 16 * GIB}]
