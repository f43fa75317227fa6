"""What room and evictions are worth, beside a solver of linear programs."""

import highspy
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from spotwright.disruption.removal_order import Removable, Shape, Worth, find_worth

SHAPES = [Shape(1.0, (4, 16, 10)), Shape(1.9, (8, 32, 20)), Shape(0.8, (4, 8, 10))]


def node(price: float, cpu: int, memory: int, evictions: float = 1.0) -> Removable:
    return Removable(price, (cpu, memory, 10), evictions)


def saving_bound(nodes: list[Removable], spare: list[int], worth: Worth, most: float) -> float:
    """What the dual promises: no removal saves more."""
    paid = sum(price * amount for price, amount in zip(worth.resources, spare, strict=True))
    evicted = worth.eviction * most if most < float("inf") else 0.0
    return paid + evicted + sum(max(0.0, worth.surplus(each) - worth.eviction * each.evictions) for each in nodes)


def solved(nodes: list[Removable], spare: list[int], most: float, eviction_price: float) -> float:
    """The most that can be saved, found by HiGHS; evictions are paid for."""
    solver, infinity = highspy.Highs(), highspy.kHighsInf  # type: ignore[no-untyped-call]
    solver.setOptionValue("output_flag", False)
    for place, each in enumerate(nodes):
        solver.addVar(0, 1)
        solver.changeColCost(place, -(each.price - eviction_price * each.evictions))
    for place, shape in enumerate(SHAPES):
        solver.addVar(0, infinity)
        solver.changeColCost(len(nodes) + place, shape.price)
    columns = np.arange(len(nodes) + len(SHAPES), dtype=np.int32)
    for d, free in enumerate(spare):
        taken = [float(each.room[d]) for each in nodes] + [-float(shape.room[d]) for shape in SHAPES]
        solver.addRow(-infinity, float(free), len(columns), columns, np.array(taken))
    evicted = np.array([each.evictions for each in nodes] + [0.0] * len(SHAPES))
    solver.addRow(-infinity, min(most, 1e9), len(columns), columns, evicted)
    solver.run()
    return -solver.getInfo().objective_function_value


def test_without_scarcity_room_is_worth_nothing() -> None:
    worth = find_worth([node(1.0, 4, 16)], [100, 100, 100], SHAPES, eviction_price=0.0, most=float("inf"))
    assert worth.resources == (0.0, 0.0, 0.0)


def test_where_all_must_be_bought_room_is_worth_what_types_cost_at_most() -> None:
    nodes = [node(3.0, 4, 16) for _ in range(5)]
    worth = find_worth(nodes, [0, 0, 0], SHAPES, eviction_price=0.0, most=float("inf"))
    for shape in SHAPES:
        assert sum(p * a for p, a in zip(worth.resources, shape.room, strict=True)) <= shape.price + 1e-9
    assert worth.surplus(nodes[0]) > 1.9


def test_few_evictions_have_a_price_that_leaves_no_more() -> None:
    nodes = [node(1.0, 4, 16, evictions=count) for count in (1.0, 2.0, 4.0, 8.0)]
    worth = find_worth(nodes, [100, 100, 100], SHAPES, eviction_price=0.0, most=3.0)
    going = [each.evictions for each in nodes if worth.surplus(each) > worth.eviction * each.evictions]
    assert sum(going) <= 3
    assert going == [1.0, 2.0]


AMOUNTS = st.integers(1, 12)
NODES = st.lists(
    st.builds(node, st.floats(0.2, 3), AMOUNTS, AMOUNTS, st.sampled_from((0.0, 0.5, 1.0, 3.0, 9.0))),
    min_size=1,
    max_size=12,
)


@given(NODES, st.lists(st.integers(0, 30), min_size=3, max_size=3), st.floats(0, 40), st.floats(0, 0.1))
@settings(max_examples=150)
def test_no_removal_saves_more_than_these_prices_say(
    nodes: list[Removable], spare: list[int], most: float, eviction_price: float
) -> None:
    """Prices are a solution of the dual: never below the best, and so an order that the best agrees with."""
    worth = find_worth(nodes, spare, SHAPES, eviction_price=eviction_price, most=most)
    assert min(worth.resources) >= 0
    assert worth.eviction >= eviction_price
    assert saving_bound(nodes, spare, worth, most) >= solved(nodes, spare, most, eviction_price) - 1e-6


@pytest.mark.parametrize("spare", [[0, 0, 0], [6, 10, 20], [30, 2, 30]])
def test_the_prices_are_close_to_the_best(spare: list[int]) -> None:
    nodes = [node(0.3 + 0.2 * k, 2 + k % 4, 4 + 3 * (k % 5), evictions=1.0 + k % 3) for k in range(12)]
    worth = find_worth(nodes, spare, SHAPES, eviction_price=0.01, most=9.0)
    # Without the least price of an eviction, which the solver counts as a cost and the dual does not.
    best = solved(nodes, spare, 9.0, 0.01)
    assert saving_bound(nodes, spare, worth, 9.0) <= best * 1.15 + 0.1
