"""How many nodes may go in a while."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.disruption.breaker import OPEN_MS, RECOVERY_MS, WINDOW_MS, Breaker, admit, is_open, max_nodes, remaining

NOW = 1_800_000_000_000
BATCHES = st.lists(st.tuples(st.integers(0, 120), st.integers(0, WINDOW_MS)), max_size=30)


@pytest.mark.parametrize(("total", "percent", "most"), [(0, 50, 20), (40, 50, 20), (41, 50, 21), (500, 10, 50)])
def test_the_limit_is_a_share_rounded_up_and_never_below_twenty(total: int, percent: int, most: int) -> None:
    assert max_nodes(total, percent) == most


@given(BATCHES, st.integers(0, 200))
def test_no_window_lets_more_go_than_the_limit(batches: list[tuple[int, int]], total: int) -> None:
    breaker, now, admitted = Breaker(), NOW, []
    for number, (wanted, later) in enumerate(batches):
        now += later
        admission = admit(breaker, str(number), wanted, total=total, percent=50, now=now)
        breaker = admission.breaker
        admitted.append((now, admission.nodes))
        assert sum(nodes for at, nodes in admitted if now - at < WINDOW_MS) <= max_nodes(total, 50)
        assert admission.nodes <= wanted


@given(BATCHES, st.integers(0, 200))
def test_who_keeps_to_what_remains_never_opens_it(batches: list[tuple[int, int]], total: int) -> None:
    breaker, now = Breaker(), NOW
    for number, (wanted, later) in enumerate(batches):
        now += later
        left = remaining(breaker, total=total, percent=50, now=now)
        admission = admit(breaker, str(number), min(wanted, left), total=total, percent=50, now=now)
        assert admission.nodes == min(wanted, left)
        assert not is_open(admission.breaker, now)
        breaker = admission.breaker


def test_a_proposal_that_is_admitted_again_counts_once() -> None:
    breaker = Breaker()
    for _ in range(5):
        admission = admit(breaker, "one", 15, total=10, percent=50, now=NOW)
        assert admission.nodes == 15
        breaker = admission.breaker
    assert sum(batch.nodes for batch in breaker.batches) == 15


def test_it_opens_at_the_limit_and_stays_open_twice_as_long_the_next_time() -> None:
    first = admit(Breaker(), "a", 30, total=30, percent=50, now=NOW)
    assert (first.nodes, first.breaker.open_until_ms) == (20, NOW + OPEN_MS)
    assert admit(first.breaker, "b", 1, total=30, percent=50, now=NOW + OPEN_MS - 1).nodes == 0
    closed = NOW + OPEN_MS
    assert not is_open(first.breaker, closed)
    second = admit(first.breaker, "c", 30, total=30, percent=50, now=closed)
    assert second.breaker.open_until_ms == closed + 2 * OPEN_MS
    much_later = second.breaker.open_until_ms + RECOVERY_MS
    third = admit(second.breaker, "d", 30, total=30, percent=50, now=much_later)
    assert third.breaker.open_until_ms == much_later + OPEN_MS


def test_the_share_is_of_the_most_nodes_there_were() -> None:
    """A fleet that shrinks because of us does not shrink its own limit."""
    before = admit(Breaker(), "a", 30, total=100, percent=50, now=NOW)
    assert admit(before.breaker, "b", 20, total=50, percent=50, now=NOW + 1000).nodes == 20
