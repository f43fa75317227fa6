"""A greedy packing: every pod that has an offering gets a node."""

from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.requirements import Requirement
from spotwright.scheduling.inputs.nodepools import build_templates
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.offerings.undetermined_labels import UndeterminedLabels
from spotwright.scheduling.packing.bins import Items
from spotwright.scheduling.packing.greedy import GreedyPacker
from spotwright.scheduling.packing.host_constraints import HostConstraint
from spotwright.scheduling.packing.problem import PackingProblem, RemainingLimits
from spotwright.scheduling.packing.search import find_cheapest_packing
from tests.unit.scheduling.builders import GIB, TYPES, ZONES, pool, snapshot

ONE_PER_HOST = HostConstraint(selecting_terms=[0], term_caps=[(0, 1)], avoided_terms=[], host_ports=[])
DIMENSIONS = (resources.CPU, resources.MEMORY, resources.PODS)


def small_pods_per_zone() -> PackingProblem:
    """Small pods of one class for each zone, of which a host holds one."""
    templates, _ = build_templates(snapshot(pools=(pool(),)), Catalog({"": TYPES}))
    index = OfferingIndex(templates, (), DIMENSIONS)
    masks = [index.by_label.meeting(Requirement(labels.ZONE, False, frozenset((zone,)))) for zone in ZONES]
    items = Items([(50, GIB // 4, 1) for _ in ZONES])
    keys = UndeterminedLabels(index, ())
    return PackingProblem(index, items, masks, [-1] * len(masks), keys, [ONE_PER_HOST] * len(masks))


def no_limits() -> RemainingLimits:
    return RemainingLimits([{}], {})


def test_where_hosts_alone_are_scarce_pods_of_the_last_zone_get_nodes_too() -> None:
    """Resources are worth nothing then: the zone of a node is the zone in which most pods wait."""
    problem = small_pods_per_zone()
    packing = GreedyPacker(problem, [0, 0, 5], no_limits(), range(len(problem.offering_index.offerings))).pack()
    assert packing.unpacked == [0, 0, 0]


def test_a_bound_on_node_size_is_not_tried_where_it_cannot_be_cheaper() -> None:
    problem = small_pods_per_zone()
    counts = [0, 0, 2000]
    once = GreedyPacker(problem, counts, no_limits(), range(len(problem.offering_index.offerings))).pack()
    assert find_cheapest_packing(problem, counts, no_limits(), 10**9).work_units <= once.work_units
