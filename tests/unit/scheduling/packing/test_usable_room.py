"""What some pods can use of a node: no less than any of them that fit on it together use."""

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.model import resources
from spotwright.model.ec2.instance_type import Catalog
from spotwright.scheduling.inputs.nodepools import build_templates
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.offerings.undetermined_labels import UndeterminedLabels
from spotwright.scheduling.packing.bins import Items
from spotwright.scheduling.packing.host_constraints import HostConstraint
from spotwright.scheduling.packing.problem import PackingProblem
from spotwright.scheduling.packing.usable_room import UsableRoom
from tests.unit.scheduling.builders import TYPES, pool, snapshot

TWO_PER_HOST = HostConstraint(selecting_terms=[0], term_caps=[(0, 2)], avoided_terms=[], host_ports=[])
Size = tuple[int, int, int]


def problem(sizes: Sequence[Size], offerings: Sequence[int], capped: int = -1) -> PackingProblem:
    templates, _ = build_templates(snapshot(pools=(pool(),)), Catalog({"": TYPES}))
    index = OfferingIndex(templates, (), (resources.CPU, resources.MEMORY, resources.PODS))
    rules = [TWO_PER_HOST if j == capped else None for j in range(len(sizes))]
    return PackingProblem(index, Items(sizes), offerings, [-1] * len(sizes), UndeterminedLabels(index, ()), rules)


def usable(sizes: Sequence[Size], counts: Sequence[int], capacity: Size, capped: int = -1) -> tuple[int, ...]:
    room = UsableRoom(problem(sizes, [1] * len(sizes), capped), dict(enumerate(counts)))
    return room.of(0, capacity)


sizes = st.tuples(st.integers(0, 9), st.integers(0, 9), st.just(1))
capacities = st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 9))


@given(st.lists(st.tuples(sizes, st.integers(0, 3)), min_size=1, max_size=4), capacities, st.integers(-1, 3))
def test_no_pods_that_fit_on_a_node_use_more_of_it(
    classes: list[tuple[Size, int]], capacity: Size, capped: int
) -> None:
    room = usable([size for size, _ in classes], [count for _, count in classes], capacity, capped)
    assert room[2:] == capacity[2:]
    most = [min(count, 2) if j == capped else count for j, (_, count) in enumerate(classes)]
    for chosen in product(*(range(count + 1) for count in most)):
        used = [sum(n * size[d] for n, (size, _) in zip(chosen, classes, strict=True)) for d in range(3)]
        if all(amount <= free for amount, free in zip(used, capacity, strict=True)):
            assert used[0] <= room[0]
            assert used[1] <= room[1]


@pytest.mark.parametrize(
    ("size", "count", "capacity", "expected"),
    [
        pytest.param((1, 4, 1), 9, (8, 16, 99), (4, 16, 99), id="memory runs out first"),
        pytest.param((4, 1, 1), 9, (8, 16, 99), (8, 2, 99), id="cpu runs out first"),
        pytest.param((1, 1, 1), 3, (8, 16, 99), (3, 3, 99), id="no more pods"),
        pytest.param((3, 1, 1), 9, (8, 16, 99), (6, 2, 99), id="a pod is not divided"),
        pytest.param((9, 1, 1), 9, (8, 16, 99), (0, 0, 99), id="no pod fits"),
        pytest.param((0, 4, 1), 9, (8, 16, 99), (0, 16, 99), id="nobody asks for cpu"),
    ],
)
def test_what_one_class_uses(size: Size, count: int, capacity: Size, expected: Size) -> None:
    assert usable([size], [count], capacity) == expected


def test_a_class_uses_no_more_than_a_host_may_hold_of_it() -> None:
    assert usable([(1, 1, 1)], [9], (8, 8, 99), capped=0) == (2, 2, 99)


def test_pods_that_may_not_use_the_offering_count_for_nothing() -> None:
    room = UsableRoom(problem([(1, 4, 1), (1, 1, 1)], [1, 2]), {0: 9, 1: 9})
    assert room.of(0, (8, 16, 99)) == (4, 16, 99)
    assert room.of(1, (8, 16, 99)) == (8, 8, 99)
    assert room.work_units == 0
