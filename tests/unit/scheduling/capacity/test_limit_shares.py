"""What limits have to spare becomes alternatives, above all for nodes with few."""

from spotwright.model import labels
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.scheduling.capacity.limit_shares import MIN_SPOT_INSTANCE_TYPES
from tests.unit.scheduling.builders import ZONES, instance, planned, pod, pool, zone_is

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
