"""Laws of what resources are worth: the cheapest mixture of shapes and its prices prove each other right."""

from operator import mul

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.scheduling.packing.fractional_lp import FractionalPacking, compute_shadow_prices

type Amounts = list[int]

KINDS = 3
amounts = st.lists(st.integers(0, 500), min_size=KINDS, max_size=KINDS)
shapes = st.lists(
    st.tuples(st.lists(st.integers(1, 64), min_size=KINDS, max_size=KINDS), st.integers(1, 90)), min_size=1, max_size=9
)
CLOSE = 1e-6


def mixture(demand: Amounts, offered: list[tuple[Amounts, int]]) -> FractionalPacking:
    return FractionalPacking(demand, [room for room, _ in offered], [float(price) for _, price in offered])


@given(amounts, shapes)
def test_no_shape_earns_more_than_its_price(demand: Amounts, offered: list[tuple[Amounts, int]]) -> None:
    worth = mixture(demand, offered).shadow_prices
    assert all(sum(map(mul, worth, room)) <= price * (1 + CLOSE) for room, price in offered)


@given(amounts, shapes)
def test_the_mixture_holds_the_demand_and_costs_what_it_is_worth(
    demand: Amounts, offered: list[tuple[Amounts, int]]
) -> None:
    fractional_packing = mixture(demand, offered)
    for d, amount in enumerate(demand):
        assert sum(number * offered[k][0][d] for k, number in fractional_packing.node_counts.items()) >= amount * (
            1 - CLOSE
        )
    cost = sum(number * offered[k][1] for k, number in fractional_packing.node_counts.items())
    assert cost == pytest.approx(sum(map(mul, fractional_packing.shadow_prices, demand)), rel=CLOSE, abs=CLOSE)
    assert cost == pytest.approx(fractional_packing.cost(demand), rel=CLOSE, abs=CLOSE)


@given(amounts, amounts, shapes)
def test_another_demand_costs_the_same_whichever_it_is_worked_out_from(
    demand: Amounts, other_amounts: Amounts, offered: list[tuple[Amounts, int]]
) -> None:
    asked = [amount + 1 for amount in demand]
    expected = mixture(other_amounts, offered).cost(other_amounts)
    assert mixture(asked, offered).cost(other_amounts) == pytest.approx(expected, rel=CLOSE, abs=CLOSE)


@given(amounts, shapes, st.integers(1, 90))
def test_the_same_shape_at_higher_prices_changes_nothing(
    demand: Amounts, offered: list[tuple[Amounts, int]], more: int
) -> None:
    dearer = [(room, price + more) for room, price in offered]
    rooms, prices = zip(*offered, *dearer, strict=True)
    worth = compute_shadow_prices(demand, rooms, [float(price) for price in prices])
    cost = mixture(demand, offered).cost(demand)
    assert sum(map(mul, worth, demand)) == pytest.approx(cost, rel=CLOSE, abs=CLOSE)
