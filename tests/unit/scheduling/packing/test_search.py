"""Of several searches for new nodes, the cheapest packing counts."""

from collections.abc import Sequence
from itertools import chain

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.requirements import Requirement
from spotwright.scheduling.inputs.nodepools import build_templates
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.offerings.pool_types import Vector
from spotwright.scheduling.offerings.undetermined_labels import UndeterminedLabels
from spotwright.scheduling.packing import search
from spotwright.scheduling.packing.bins import Items
from spotwright.scheduling.packing.problem import Exchange, Packing, PackingProblem, RemainingLimits
from spotwright.scheduling.packing.search import find_cheapest_packing
from tests.unit.scheduling.builders import GIB, ZONES, instance, pool, snapshot

TYPES = (
    instance("three", 3, 6, 0.29),
    instance("four", 4, 8, 0.40),
    instance("seven", 7, 14, 0.66),
    instance("nine", 9, 40, 0.97),
)
BUDGET = 2_000
NO_LIMITS = RemainingLimits([{}], {})
SIZES = ((1_000, GIB, 1), (2_300, 3 * GIB, 1), (700, 5 * GIB, 1))

counts_by_class = st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=len(SIZES), max_size=len(SIZES)).filter(
    lambda counts: any(map(any, counts))
)


def offering_index() -> OfferingIndex:
    templates, _ = build_templates(snapshot(pools=(pool(),)), Catalog({"": TYPES}))
    return OfferingIndex(templates, (), (resources.CPU, resources.MEMORY, resources.PODS))


def zones_of(index: OfferingIndex) -> list[int]:
    return [index.by_label.meeting(Requirement(labels.ZONE, False, frozenset((zone,)))) for zone in ZONES]


def packed(
    index: OfferingIndex, sizes: Sequence[Vector], offerings: list[int], counts: list[int], *exchanges: Exchange
) -> Packing:
    """``sizes``, ``offerings`` and ``counts`` by class."""
    labels_of_nodes, per_class = UndeterminedLabels(index, ()), len(sizes)
    problem = PackingProblem(
        index, Items(sizes), offerings, [-1] * per_class, labels_of_nodes, [None] * per_class, exchanges
    )
    return find_cheapest_packing(problem, counts, NO_LIMITS, BUDGET)


@settings(max_examples=10)
@given(counts_by_class)
@example([(2, 0, 0), (2, 1, 3), (3, 0, 3)])
def test_pods_that_may_change_their_zone_cost_no_more_than_zones_packed_exactly(
    counts: list[tuple[int, int, int]],
) -> None:
    """``counts``: pods of each size in each of three zones, of which each may pass a pod on and take a pod."""
    index = offering_index()
    zones = zones_of(index)
    sizes = [*(size for size in SIZES for _ in zones), *SIZES]
    offerings = [*zones * len(SIZES), *[index.all_offerings] * len(SIZES)]
    exchanges = [
        Exchange(len(SIZES) * 3 + n, {3 * n + zone: (max(count - 1, 0), count + 1) for zone, count in enumerate(row)})
        for n, row in enumerate(counts)
    ]
    exchanging = packed(index, sizes, offerings, [*chain(*counts), *[0] * len(SIZES)], *exchanges)
    assert not any(exchanging.unpacked)
    apart = [
        packed(index, SIZES, [zone] * len(SIZES), [row[n] for row in counts]).cost(index)
        for n, zone in enumerate(zones)
    ]
    assert exchanging.cost(index) <= sum(apart)


def test_a_pod_without_offerings_is_left_beside_pods_that_get_a_node() -> None:
    """It could get a node only in another zone, which it may not change to."""
    index = offering_index()
    zone = zones_of(index)[0]
    exchange = Exchange(2, {0: (1, 1), 1: (1, 1)})
    packing = packed(index, [SIZES[0]] * 3, [zone, 0, zone], [1, 1, 0], exchange)
    assert packing.unpacked == [0, 1, 0]
    assert [packed_nodes.pod_counts for packed_nodes in packing.nodes] == [{0: 1}]


def test_making_a_packing_and_replacing_its_nodes_share_one_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    index = offering_index()
    sizes = [(430 + 370 * number, (1 + number * 5 % 7) * GIB // 2, 1) for number in range(9)]
    everywhere, counts = [index.all_offerings] * len(sizes), [7] * len(sizes)
    problem = PackingProblem(
        index, Items(sizes), everywhere, [-1] * len(sizes), UndeterminedLabels(index, ()), [None] * len(sizes)
    )

    def work_units(most: int) -> int:
        monkeypatch.setattr(search, "_UNITS", most)
        return find_cheapest_packing(problem, counts, NO_LIMITS, 10**9).work_units

    for most in (3_000, 10_000, 40_000):
        # The last nodes that are filled may exceed it.
        assert most / 2 < work_units(most) < most * 1.2


@pytest.mark.parametrize(("each", "expected"), [(7, 100), (70, 63)])
def test_replacing_gets_a_quarter_of_the_budget_at_least_and_of_many_pods_less(
    monkeypatch: pytest.MonkeyPatch, each: int, expected: int
) -> None:
    """Making the packing takes more than all of the budget."""
    index = offering_index()
    sizes = [(430 + 370 * number, (1 + number * 5 % 7) * GIB // 2, 1) for number in range(9)]
    budgets: list[int] = []
    monkeypatch.setattr(search, "_UNITS", 400)
    monkeypatch.setattr(search, "pack_by_patterns", lambda *_: None)
    monkeypatch.setattr(search, "replace_nodes", lambda *asked: budgets.append(asked[3]))
    problem = PackingProblem(
        index,
        Items(sizes),
        [index.all_offerings] * len(sizes),
        [-1] * len(sizes),
        UndeterminedLabels(index, ()),
        [None] * len(sizes),
    )
    packing = find_cheapest_packing(problem, [each] * len(sizes), NO_LIMITS, 10**9)
    assert packing.work_units > 400
    assert budgets == [expected]
