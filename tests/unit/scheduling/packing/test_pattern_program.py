"""The program of patterns: solved step by step it costs what it costs solved at once."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.scheduling.packing.fractional_lp import FractionalPacking
from spotwright.scheduling.packing.pattern_program import PatternProgram

CLASSES = 3
patterns = st.tuples(
    st.dictionaries(st.integers(0, CLASSES - 1), st.integers(1, 4), min_size=1), st.integers(1, 50).map(float)
)
counts = st.lists(st.integers(0, 9), min_size=CLASSES, max_size=CLASSES)


def solved(first: list[tuple[dict[int, int], float]], *later: tuple[dict[int, int], float]) -> PatternProgram:
    """With every class in a pattern of its own."""
    program = PatternProgram(CLASSES)
    for j in range(CLASSES):
        program.add({j: 1}, 60.0)
    for pattern, price in first:
        program.add(pattern, price)
    program.solve([1] * CLASSES)
    for pattern, price in later:
        program.add(pattern, price)
        program.improve()
    return program


@given(st.lists(patterns, max_size=6), st.lists(patterns, max_size=6), counts)
def test_patterns_added_later_count_as_if_they_had_been_there(
    first: list[tuple[dict[int, int], float]], later: list[tuple[dict[int, int], float]], pods: list[int]
) -> None:
    program = solved(first, *later)
    program.solve(pods)
    everything = [*[({j: 1}, 60.0) for j in range(CLASSES)], *first, *later]
    capacities = [[pattern.get(j, 0) for j in range(CLASSES)] for pattern, _ in everything]
    at_once = FractionalPacking(pods, capacities, [price for _, price in everything])
    assert program.cost == pytest.approx(at_once.cost(pods), abs=1e-6)
    for j, count in enumerate(pods):
        held = sum(nodes * program.patterns[k].get(j, 0) for k, nodes in program.node_counts().items())
        assert held >= count - 1e-6
    pod_prices = program.pod_prices()
    for pattern, price in everything:
        assert sum(pod_prices[j] * count for j, count in pattern.items()) <= price + 1e-6


def test_a_program_keeps_what_its_solution_needs_when_patterns_are_left_out() -> None:
    program = solved([], *(({0: 1, 1: 1 + number % 2}, 59.0 + number) for number in range(200)))
    program.solve([4, 4, 4])
    assert program.cost == pytest.approx(4 * 59.0 + 4 * 60.0)
    assert program.work_units > 0
