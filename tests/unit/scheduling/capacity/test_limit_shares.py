"""What limits have to spare becomes alternatives, above all for nodes with few."""

from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import Catalog, InstanceType
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.scheduling.capacity.limit_shares import MAX_INSTANCE_TYPES, MIN_SPOT_INSTANCE_TYPES, share_limits
from spotwright.scheduling.capacity.planned_nodes import OfferingOptions, PlannedNode
from spotwright.scheduling.capacity.weight_groups import ENFORCED, WeightGroup
from spotwright.scheduling.inputs.nodepools import build_templates
from spotwright.scheduling.offerings.bit_sets import iterate_bits, to_bits
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.packing.known_packings import KnownPackings
from tests.unit.scheduling.builders import ZONES, instance, planned, pod, pool, snapshot, zone_is

SIZES = (2, 4, 8, 16)
# Types of every size, the small ones cheapest.
TYPES = tuple(
    instance(f"{name}.{cpu}", cpu, 2 * cpu, 0.1 * cpu + 0.001 * place, spot=0.04 * cpu + 0.001 * place)
    for cpu in SIZES
    for place, name in enumerate("abcdef")
)
THREE_NODES = [pod(f"p-{zone}", 1.5, node_affinity=((zone_is(zone),),)) for zone in ZONES]
ON_DEMAND = NodeSelectorRequirement(labels.CAPACITY_TYPE, "In", (labels.ON_DEMAND,))


def listed(limit: int, *requirements: NodeSelectorRequirement) -> list[int]:
    """How many types each of three nodes lists."""
    plan = planned(*THREE_NODES, pools=(pool("default", *requirements, limits={"cpu": str(limit)}),), types=TYPES)
    assert len(plan.new_nodes) == 3
    return [len(new_node.instance_types) for new_node in plan.new_nodes]


def test_at_the_limit_only_types_of_the_planned_size_are_listed() -> None:
    assert listed(6) == [6, 6, 6]


def test_nodes_share_what_the_limit_has_to_spare() -> None:
    assert listed(12) == [12, 12, 12]
    assert sorted(listed(17)) == [12, 12, 18]


def test_far_from_the_limit_all_types_are_listed() -> None:
    assert listed(3 * 16) == [24, 24, 24]


def test_spot_nodes_with_few_types_come_first() -> None:
    """Two on-demand nodes and a spot node: the spot node gets enough types before the others get more."""
    spot = pod("spot", 1.5, node_selector={labels.CAPACITY_TYPE: labels.SPOT})
    on_demand = [pod(f"od-{zone}", 1.5, node_affinity=((zone_is(zone), ON_DEMAND),)) for zone in ZONES[:2]]
    plan = planned(spot, *on_demand, pools=(pool(limits={"cpu": "12"}),), types=TYPES)
    by_pod = {new_node.pods: len(new_node.instance_types) for new_node in plan.new_nodes}
    assert by_pod[("default/spot",)] >= MIN_SPOT_INSTANCE_TYPES
    assert by_pod[("default/od-z1",)] == 6


def test_any_choice_of_types_keeps_two_limits() -> None:
    limits = {"cpu": "20", "memory": "30Gi"}
    plan = planned(*THREE_NODES, pools=(pool(limits=limits),), types=TYPES)
    capacity = {one.name: one.capacity for one in TYPES}
    for name, most in (("cpu", 20_000), ("memory", 30 * 2**30)):
        worst = sum(max(capacity[one][name] for one in new_node.instance_types) for new_node in plan.new_nodes)
        assert worst <= most


def sized(cpu: int, count: int, letter: str, price: float, spot: float = 0) -> tuple[InstanceType, ...]:
    return tuple(instance(f"{letter}{n}.{cpu}.{spot}", cpu, 2 * cpu, price, spot=spot) for n in range(count))


def weight_group(cpu: int, *types: InstanceType) -> WeightGroup:
    """A NodePool with a limit on cpu."""
    templates, _ = build_templates(snapshot(pools=(pool(limits={"cpu": str(cpu)}),)), Catalog({"": types}))
    index = OfferingIndex(templates, (), (resources.CPU, resources.MEMORY, resources.PODS))
    return WeightGroup(index, (), {}, (), {}, ENFORCED, KnownPackings())


def planned_node(group: WeightGroup, letters: str) -> PlannedNode:
    """A node that may become any of the types whose names start with these letters, planned for the cheapest."""
    index = group.offering_index
    numbers = [n for n, pool_type in enumerate(index.pool_type_of) if pool_type.instance_type.name[0] in letters]
    node = PlannedNode(group, 0, OfferingOptions(to_bits(numbers)), "node")
    node.offering = numbers[0]
    return node


def count_types(group: WeightGroup, *nodes: PlannedNode) -> list[int]:
    """How many types each of the nodes may be launched with."""
    shared = share_limits(group, nodes)
    assert shared is not None
    return [
        len({group.offering_index.pool_type_of[n].instance_type.name for n in iterate_bits(shared[id(node)])})
        for node in nodes
    ]


def test_a_node_with_as_many_types_as_a_nodeclaim_lists_gets_no_more() -> None:
    """The limit has room for types of 8 cpu, but with those of 4 cpu there are enough. The other node wants types of
    64 cpu in vain."""
    types = (*sized(2, 60, "a", 0.1), *sized(4, 60, "a", 0.2), *sized(8, 60, "a", 0.4))
    group = weight_group(24, *types, *sized(8, 1, "b", 0.4), *sized(64, 1, "b", 0.5))
    assert MAX_INSTANCE_TYPES == 100
    assert count_types(group, planned_node(group, "a"), planned_node(group, "b")) == [120, 1]


def test_types_that_are_not_sold_as_spot_do_not_count_for_a_spot_node() -> None:
    """Two spot nodes; the first has many types, but few of them as spot, so it gets what the limit has to spare."""
    few = (*sized(2, 1, "a", 0.1, spot=0.04), *sized(2, 19, "a", 0.1), *sized(4, 1, "a", 0.2, spot=0.08))
    many = (*sized(2, 16, "b", 0.1, spot=0.04), *sized(4, 1, "b", 0.2, spot=0.08))
    group = weight_group(6, *few, *many)
    assert count_types(group, planned_node(group, "a"), planned_node(group, "b")) == [21, 16]
