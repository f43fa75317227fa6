"""What some pods can use of a node: no less than any of them that fit on it together use."""

from collections.abc import Sequence
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.scheduling.packing.usable_room import UsableRoom

Size = tuple[int, int, int]


def usable(sizes: Sequence[Size], most: Sequence[int], capacity: Size) -> tuple[int, ...]:
    return UsableRoom([(size, frozenset([0]), count) for size, count in zip(sizes, most, strict=True)]).of(0, capacity)


sizes = st.tuples(st.integers(0, 9), st.integers(0, 9), st.just(1))
capacities = st.tuples(st.integers(0, 40), st.integers(0, 40), st.integers(1, 9))


@given(st.lists(st.tuples(sizes, st.integers(0, 3)), min_size=1, max_size=4), capacities)
def test_no_pods_that_fit_on_a_node_use_more_of_it(classes: list[tuple[Size, int]], capacity: Size) -> None:
    room = usable([size for size, _ in classes], [count for _, count in classes], capacity)
    assert room[2:] == capacity[2:]
    for chosen in product(*(range(count + 1) for _, count in classes)):
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


def test_a_node_that_may_hold_few_pods_of_a_kind_uses_no_more() -> None:
    assert usable([(1, 1, 1)], [2], (8, 8, 99)) == (2, 2, 99)


def test_pods_that_may_not_use_the_offering_count_for_nothing() -> None:
    room = UsableRoom([((1, 4, 1), frozenset([0]), 9), ((1, 1, 1), frozenset([1]), 9)])
    assert room.of(0, (8, 16, 99)) == (4, 16, 99)
    assert room.of(1, (8, 16, 99)) == (8, 8, 99)
    assert room.work_units == 0
