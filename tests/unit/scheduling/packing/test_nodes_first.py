"""Nodes are replaced by cheaper ones that hold their pods, where nothing forbids it."""

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import Catalog, InstanceType, Offering
from spotwright.model.requirements import Requirement, Requirements
from spotwright.scheduling.inputs.nodepools import build_templates
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.offerings.undetermined_labels import UndeterminedLabels
from spotwright.scheduling.packing import nodes_first, search
from spotwright.scheduling.packing.bins import Items
from spotwright.scheduling.packing.host_constraints import HostConstraint
from spotwright.scheduling.packing.nodes_first import replace_nodes
from spotwright.scheduling.packing.problem import Exchange, PackedNodes, Packing, PackingProblem, RemainingLimits
from spotwright.scheduling.pod_planner import plan_pods
from tests.property.plans import LAWS
from tests.unit.scheduling.builders import GIB, TYPES, instance, pod, pool, snapshot

SIZE_BOUND = 48_000
BUDGET = 20_000
ONE_PER_HOST = HostConstraint(selecting_terms=[0], term_caps=[(0, 1)], avoided_terms=[], host_ports=[])


def problem(host_constraint: HostConstraint | None = None, types: Sequence[InstanceType] = TYPES) -> PackingProblem:
    """Pods of 100m and 256Mi, of one class."""
    templates, _ = build_templates(snapshot(pools=(pool(),)), Catalog({"": tuple(types)}))
    index = OfferingIndex(templates, (), (resources.CPU, resources.MEMORY, resources.PODS))
    keys = UndeterminedLabels(index, ())
    return PackingProblem(index, Items([(100, GIB // 4, 1)]), [index.all_offerings], [-1], keys, [host_constraint])


def two_nodes(limits: RemainingLimits | None = None) -> Packing:
    """One pod on each of two nodes of the cheapest offering."""
    nodes = [PackedNodes(0, 1, {0: 1}), PackedNodes(0, 1, {0: 1})]
    return Packing(nodes, [0], limits or RemainingLimits([{}], {}), 0)


def replaced(packing: Packing, host_constraint: HostConstraint | None = None) -> list[tuple[int, dict[int, int]]]:
    replace_nodes(problem(host_constraint), packing, SIZE_BOUND, BUDGET)
    return [(packed_nodes.node_count, packed_nodes.pod_counts) for packed_nodes in packing.nodes]


def test_two_pods_that_fit_on_one_node_get_one() -> None:
    packing = two_nodes()
    assert replaced(packing) == [(1, {0: 2})]
    assert packing.work_units > 0


def test_pods_that_may_not_share_a_host_keep_their_nodes() -> None:
    assert replaced(two_nodes(), ONE_PER_HOST) == [(2, {0: 1})]


def test_no_pod_of_equal_nodes_is_lost() -> None:
    packing = Packing([PackedNodes(0, 3, {0: 1}), PackedNodes(0, 1, {0: 2})], [0], RemainingLimits([{}], {}), 0)
    assert sum(count * pods[0] for count, pods in replaced(packing)) == 5


def test_the_limits_count_the_node_that_stays() -> None:
    cpu = problem().offering_index.pool_type_of[0].instance_type.capacity[resources.CPU]
    packing = two_nodes(RemainingLimits([{resources.CPU: 0, resources.NODES: 0}], {}))
    replaced(packing)
    assert packing.limits.by_template == [{resources.CPU: cpu, resources.NODES: 1}]


@LAWS
@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 15)), min_size=1, max_size=4))
def test_however_many_nodes_no_pod_is_lost_and_nothing_gets_dearer(groups: list[tuple[int, int]]) -> None:
    """Also beyond the nodes that are replaced at once. ``groups``: how many nodes, with so many pods each."""
    packing = Packing([PackedNodes(0, count, {0: pods}) for count, pods in groups], [0], RemainingLimits([{}], {}), 0)
    index = problem().offering_index
    before = packing.cost(index)
    replaced_counts = replaced(packing)
    assert sum(count * pods[0] for count, pods in replaced_counts) == sum(count * pods for count, pods in groups)
    assert packing.cost(index) <= before


def cheapest_offering(cpu: int) -> int:
    pool_types = problem().offering_index.pool_type_of
    return next(n for n, pool_type in enumerate(pool_types) if pool_type.instance_type.capacity[resources.CPU] == cpu)


def nodes_after(*nodes: tuple[int, int], bound: int = SIZE_BOUND, limits: dict[str, int] | None = None) -> list[int]:
    """``nodes``: (cpu, pods). Pods per node afterwards."""
    packed = [PackedNodes(cheapest_offering(cpu), 1, {0: count}) for cpu, count in nodes]
    packing = Packing(packed, [0], RemainingLimits([limits or {}], {}), 0)
    replace_nodes(problem(), packing, bound, BUDGET)
    return sorted(n.pod_counts[0] for n in packing.nodes for _ in range(n.node_count))


def test_a_new_node_may_be_larger_up_to_the_bound() -> None:
    assert nodes_after((2000, 15), (2000, 15), bound=4000) == [30]
    assert nodes_after((2000, 15), (2000, 15), bound=3999) == [15, 15]


def test_a_new_node_may_be_as_large_as_the_larger_of_the_two() -> None:
    assert nodes_after((4000, 20), (2000, 10), bound=0) == [30]


def test_nodes_stay_where_one_would_be_dearer() -> None:
    assert nodes_after((4000, 32), (2000, 16)) == [16, 32]


def test_a_new_node_keeps_the_limits() -> None:
    assert nodes_after((2000, 15), (2000, 15), limits={resources.CPU: 0}) == [30]
    assert nodes_after((2000, 15), (2000, 15), limits={resources.CPU: -1}) == [15, 15]


RESERVATION = Requirements({labels.RESERVATION_ID: Requirement(labels.RESERVATION_ID, False, frozenset(("cr-1",)))})
DENSE = instance("dense", 8, 8, 0.80)
WIDE = instance("wide", 8, 32, 0.40)


def types_after(unpacked: int, limits: dict[str, int]) -> list[str]:
    """The types of two dense nodes of two pods afterwards. ``unpacked``: pods that no node holds."""
    typed = problem(types=(DENSE, WIDE))
    pool_types = typed.offering_index.pool_type_of
    dense = next(n for n, pool_type in enumerate(pool_types) if pool_type.instance_type.name == "dense")
    packing = Packing([PackedNodes(dense, 2, {0: 1})], [unpacked], RemainingLimits([limits], {}), 0)
    replace_nodes(typed, packing, SIZE_BOUND, BUDGET)
    return [pool_types[n.offering].instance_type.name for n in packing.nodes for _ in range(n.node_count)]


def test_cheaper_nodes_do_not_take_from_a_limit_what_unpacked_pods_need() -> None:
    """One wide node costs less than two dense nodes and counts more memory."""
    assert types_after(0, {resources.MEMORY: 100 * GIB}) == ["wide"]
    assert types_after(1, {resources.MEMORY: 100 * GIB}) == ["dense", "dense"]


def test_cheaper_nodes_that_leave_as_much_of_the_limits_are_taken_beside_unpacked_pods() -> None:
    assert types_after(1, {resources.CPU: 100_000, resources.NODES: 5}) == ["wide"]


def test_cheaper_nodes_do_not_take_reserved_instances_that_unpacked_pods_need() -> None:
    """A reserved instance is the cheapest node for all pods; the last is left to the unpacked pod."""
    reserved = Offering("z1", labels.RESERVED, 0, requirements=RESERVATION, reservation_capacity=1)
    reserving = msgspec.structs.replace(DENSE, offerings=(*DENSE.offerings, reserved))
    for unpacked, left in ((0, 0), (1, 1)):
        typed = problem(types=(reserving,))
        bought = next(n for n, id_ in enumerate(typed.offering_index.reservation_ids) if not id_)
        packing = Packing([PackedNodes(bought, 2, {0: 1})], [unpacked], RemainingLimits([{}], {"cr-1": 1}), 0)
        replace_nodes(typed, packing, SIZE_BOUND, BUDGET)
        assert packing.limits.by_reservation == {"cr-1": left}


def test_pods_of_overlapping_zones_share_a_node() -> None:
    """Pods of z1, pods of z1 or z2, and pods of any zone: a node in z1 holds them all."""
    index = problem().offering_index
    z1, z2 = (index.by_label.meeting(Requirement(labels.ZONE, False, frozenset((zone,)))) for zone in ("z1", "z2"))
    items, keys = Items([(100, GIB // 4, 1)] * 3), UndeterminedLabels(index, ())
    zoned = PackingProblem(index, items, [z1, z1 | z2, index.all_offerings], [-1] * 3, keys, [None] * 3)
    cheapest = (z1 & -z1).bit_length() - 1
    nodes = [PackedNodes(cheapest, 1, {0: 1, 2: 1}), PackedNodes(cheapest, 1, {1: 1})]
    packing = Packing(nodes, [0] * 3, RemainingLimits([{}], {}), 0)
    replace_nodes(zoned, packing, SIZE_BOUND, BUDGET)
    assert [packed_nodes.pod_counts for packed_nodes in packing.nodes] == [{0: 1, 1: 1, 2: 1}]


@pytest.mark.parametrize(("host_constraint", "nodes_per_zone"), [(None, 1), (ONE_PER_HOST, 2)])
def test_pods_of_two_zones_need_nodes_of_both_so_the_cheapest_end_the_search(
    host_constraint: HostConstraint | None, nodes_per_zone: int
) -> None:
    """Nothing costs less than the cheapest node for each host that the zones need."""
    index = problem().offering_index
    z1, z2 = (index.by_label.meeting(Requirement(labels.ZONE, False, frozenset((zone,)))) for zone in ("z1", "z2"))
    items, keys = Items([(100, GIB // 4, 1)] * 2), UndeterminedLabels(index, ())
    zoned = PackingProblem(index, items, [z1, z2], [-1] * 2, keys, [host_constraint] * 2)
    nodes = [PackedNodes((zone & -zone).bit_length() - 1, nodes_per_zone, {j: 1}) for j, zone in enumerate((z1, z2))]
    packing = Packing(nodes, [0] * 2, RemainingLimits([{}], {}), 0)
    replace_nodes(zoned, packing, SIZE_BOUND, BUDGET)
    assert packing.work_units == 0
    assert [packed_nodes.node_count for packed_nodes in packing.nodes] == [nodes_per_zone] * 2


def exchanged(*bounds: tuple[int, int]) -> list[tuple[int, dict[int, int]]]:
    """Equal pods of z1 and of z2, one each, that may pass to the other zone within the bounds, and a pod of z2."""
    index = problem().offering_index
    z1, z2 = (index.by_label.meeting(Requirement(labels.ZONE, False, frozenset((zone,)))) for zone in ("z1", "z2"))
    items, keys = Items([(100, GIB // 4, 1)] * 4), UndeterminedLabels(index, ())
    exchange = Exchange(3, dict(enumerate(bounds)))
    zoned = PackingProblem(index, items, [z1, z2, z2, z1 | z2], [-1] * 4, keys, [None] * 4, [exchange])
    nodes = [PackedNodes((z1 & -z1).bit_length() - 1, 1, {0: 1}), PackedNodes((z2 & -z2).bit_length() - 1, 1, {2: 1})]
    packing = Packing(nodes, [0] * 4, RemainingLimits([{}], {}), 0)
    replace_nodes(zoned, packing, SIZE_BOUND, BUDGET)
    return [(packed_nodes.node_count, packed_nodes.pod_counts) for packed_nodes in packing.nodes]


def test_a_pod_changes_its_zone_where_that_saves_a_node() -> None:
    assert exchanged((0, 1), (0, 1)) == [(1, {1: 1, 2: 1})]


def test_no_zone_gets_more_pods_than_it_may_have_nor_keeps_fewer() -> None:
    assert exchanged((0, 1), (0, 0)) == [(1, {0: 1}), (1, {2: 1})]
    assert exchanged((1, 1), (0, 1)) == [(1, {0: 1}), (1, {2: 1})]


def test_pods_of_one_size_get_nodes_of_which_they_use_most() -> None:
    """A core costs less on the small type, but of its cores a pod leaves more than a third."""
    small, large = instance("small", 5, 64, 0.10), instance("large", 7, 64, 0.15)
    typed = problem(types=(small, large))
    typed.items = Items([(3_000, GIB, 1)])
    packing = Packing([PackedNodes(0, 6, {0: 1})], [0], RemainingLimits([{}], {}), 0)
    replace_nodes(typed, packing, SIZE_BOUND, BUDGET)
    assert [(packed_nodes.node_count, packed_nodes.pod_counts) for packed_nodes in packing.nodes] == [(3, {0: 2})]


FAR_FROM_ITS_BOUND = (("1900m", "512Mi", 6), ("3", "1Gi", 3), ("500m", "2Gi", 4), ("3", "9Gi", 6), ("7", "512Mi", 6))


def far_cost() -> int:
    """What a plan for these pods costs, which no order of filling packs well."""
    sizes = ((2, 16, 0.1099), (8, 16, 0.3285), (16, 128, 1.254), (32, 256, 1.3319), (16, 64, 0.9738))
    types = tuple(instance(f"t{number}", cpu, gib, price) for number, (cpu, gib, price) in enumerate(sizes))
    pods = [
        pod(f"p{group}-{number}", cpu, memory)
        for group, (cpu, memory, count) in enumerate(FAR_FROM_ITS_BOUND)
        for number in range(count)
    ]
    plan = plan_pods(snapshot(*pods, pools=[pool("plain")]), Catalog({"": types}))
    assert not plan.unschedulable_pods
    return sum(node.price_picousd_per_hour for node in plan.new_nodes)


@pytest.mark.parametrize(("name", "value"), [("_FAR", 100.0), ("_MOST_EJECTIONS", 0)])
def test_a_packing_far_from_its_bound_gets_cheaper_by_ejections(
    monkeypatch: pytest.MonkeyPatch, name: str, value: float
) -> None:
    cost = far_cost()
    monkeypatch.setattr(nodes_first, name, value)
    assert cost < far_cost()


def test_half_of_the_budget_is_left_for_ejections(monkeypatch: pytest.MonkeyPatch) -> None:
    cost = far_cost()
    monkeypatch.setattr(search, "_UNITS", 12_000)
    assert far_cost() == cost
