"""A packing that is known is the packing that would be found."""

from spotwright.model import resources
from spotwright.model.ec2.instance_type import Catalog
from spotwright.scheduling.inputs.nodepools import build_templates
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.offerings.undetermined_labels import UndeterminedLabels
from spotwright.scheduling.packing.bins import Items
from spotwright.scheduling.packing.host_constraints import HostConstraint
from spotwright.scheduling.packing.known_packings import KnownPackings
from spotwright.scheduling.packing.problem import Packing, PackingProblem, RemainingLimits
from spotwright.scheduling.packing.search import find_cheapest_packing
from tests.unit.scheduling.builders import GIB, TYPES, pool, snapshot

BUDGET = 5_000


def offering_index() -> OfferingIndex:
    templates, _ = build_templates(snapshot(pools=(pool(),)), Catalog({"": tuple(TYPES)}))
    return OfferingIndex(templates, (), (resources.CPU, resources.MEMORY, resources.PODS))


def problem(index: OfferingIndex, per_host: int = 0) -> PackingProblem:
    """Pods of 1 and of 2 cpu. ``per_host``: of the larger a host may hold so many, 0 = any number."""
    rule = HostConstraint(selecting_terms=[0], term_caps=[(0, per_host)], avoided_terms=[], host_ports=[])
    return PackingProblem(
        index,
        Items([(1000, GIB, 1), (2000, 5 * GIB, 1)]),
        [index.all_offerings] * 2,
        [-1] * 2,
        UndeterminedLabels(index, ()),
        [None, rule if per_host else None],
    )


def limits(cpu: int) -> RemainingLimits:
    return RemainingLimits([{resources.CPU: cpu * 1000}], {})


def described(packing: Packing) -> object:
    nodes = [(nodes.offering, nodes.node_count, nodes.pod_counts) for nodes in packing.nodes]
    return nodes, packing.unpacked, packing.limits.by_template, packing.work_units, packing.is_cheapest


def test_what_differs_in_anything_is_found_anew() -> None:
    index, known = offering_index(), KnownPackings()
    for counts in ([9, 7], [9, 8]):
        for per_host in (0, 1, 2):
            for cpu in (12, 20, 90):
                for budget in (0, BUDGET):
                    wanted = find_cheapest_packing(problem(index, per_host), counts, limits(cpu), budget)
                    for _ in range(2):
                        found = known.find_cheapest(problem(index, per_host), counts, limits(cpu), budget)
                        assert described(found) == described(wanted)


def test_what_is_taken_from_the_limits_of_a_packing_is_not_taken_from_those_of_the_next() -> None:
    index, known = offering_index(), KnownPackings()
    first = known.find_cheapest(problem(index), [9, 7], limits(20), BUDGET)
    before = described(known.find_cheapest(problem(index), [9, 7], limits(20), BUDGET))
    first.limits.spend(index, first.nodes[0].offering, 1)
    first.nodes.clear()
    assert described(known.find_cheapest(problem(index), [9, 7], limits(20), BUDGET)) == before
