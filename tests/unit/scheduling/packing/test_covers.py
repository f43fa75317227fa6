"""Covers: the cheapest is found, and a search ends however small the shapes are."""

from collections.abc import Sequence
from itertools import combinations_with_replacement

from hypothesis import given
from hypothesis import strategies as st

from spotwright.scheduling.packing.covers import CoverSearch, Shape
from spotwright.scheduling.packing.fractional_lp import compute_shadow_prices

ENOUGH = 1_000_000


def cheapest_cover(shapes: Sequence[Shape], demand: Sequence[tuple[int, ...]], below: int) -> tuple[int, bool]:
    """What the cheapest cover costs that the search finds, ``below`` for none; and whether the search was complete."""

    def pack(offerings: Sequence[int]) -> int:
        chosen = [shapes[offering] for offering in offerings]
        assert covers(chosen, demand)
        return sum(shape.price for shape in chosen)

    prices = [float(shape.price) for shape in shapes]
    shadow_prices = compute_shadow_prices(demand[-1], [shape.room for shape in shapes], prices)
    search = CoverSearch(shapes, shadow_prices, (), below, pack)
    complete = search.search(demand, ENOUGH, ENOUGH)
    return search.below, complete


def covers(shapes: Sequence[Shape], demand: Sequence[tuple[int, ...]]) -> bool:
    return all(
        sum(shape.room[d] for shape in shapes if row in shape.rows) >= amount
        for row, amounts in enumerate(demand)
        for d, amount in enumerate(amounts)
    )


amounts = st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(1, 3))
rooms = st.tuples(st.integers(1, 6), st.integers(1, 6), st.integers(1, 3))


@st.composite
def shapes_of_zones(draw: st.DrawFn) -> list[Shape]:
    """Shapes that count for one of two zones, or for neither, and always for all pods."""
    drawn = draw(
        st.lists(st.tuples(rooms, st.integers(1, 9), st.sampled_from(((0, 2), (1, 2), (2,)))), min_size=1, max_size=4)
    )
    return [Shape(number, price, room, rows) for number, (room, price, rows) in enumerate(drawn)]


@given(shapes_of_zones(), amounts, amounts, amounts)
def test_the_cheapest_cover_is_found(
    shapes: list[Shape], zone: tuple[int, ...], other_zone: tuple[int, ...], others: tuple[int, ...]
) -> None:
    total = tuple(map(sum, zip(zone, other_zone, others, strict=True)))
    demand, below = (zone, other_zone, total), 30
    possible = [
        sum(shape.price for shape in chosen)
        for count in range(1, 7)
        for chosen in combinations_with_replacement(shapes, count)
        if covers(chosen, demand)
    ]
    found, complete = cheapest_cover(shapes, demand, below)
    assert complete
    assert found <= min([*possible, below])


def offered_in_turn(below: int, searches: int) -> list[list[list[int]]]:
    """The covers that each of several searches of few steps offers: of 40 large shapes, and a small one, number 40."""
    large = [Shape(n, 400 + n, (39 + n % 3, 41 - n % 3), (0,)) for n in range(40)]
    offered = list[list[int]]()

    def keep(offerings: Sequence[int]) -> None:
        offered.append([*offerings])

    search = CoverSearch([*large, Shape(40, 100, (10, 10), (0,))], [5.0, 4.9], (), below, keep)
    by_search = list[list[list[int]]]()
    for _ in range(searches):
        search.search([(170, 170)], 300, ENOUGH)
        by_search.append(offered.copy())
        offered.clear()
    return by_search


def test_few_steps_are_shared_among_covers_that_begin_differently() -> None:
    [offered] = offered_in_turn(1_900, 1)
    assert len({cover[0] for cover in offered}) > 1


def test_every_other_search_begins_with_the_shape_that_wastes_least() -> None:
    """The large shapes are so many that no search comes to the small one after them."""
    largest_first, least_waste_first = offered_in_turn(1_800, 2)
    assert [40] * 17 in least_waste_first
    assert [40] * 17 not in largest_first


def test_a_search_ends_where_shapes_are_far_too_small() -> None:
    assert cheapest_cover([Shape(0, 1, (1, 1), (0,))], [(10_000, 1)], 20_000) == (20_000, False)
