"""What an invocation costs, and how long it takes, by memory size."""

import pytest

from bench.memory_price import MB_PER_PROCESSOR, computed_milliseconds, invocation, month


def test_a_million_invocations_of_a_second_with_a_gigabyte() -> None:
    """Lambda's price list: $0.0000133334 per GB-second on arm64, $0.20 per million requests."""
    assert invocation(1000, 1024) * 10**6 == pytest.approx(13.3334 + 0.20)


def test_a_part_of_a_millisecond_is_paid_as_a_whole_one() -> None:
    assert invocation(0.2, 512) == invocation(1, 512)
    assert invocation(1.2, 512) == invocation(2, 512)


def test_a_month_is_the_sum_of_its_invocations() -> None:
    assert month([(1000, 10**6), (500, 0)], 1024) == pytest.approx(13.3334 + 0.20)


def test_work_is_as_much_slower_as_its_share_is_smaller() -> None:
    assert computed_milliseconds(100, 30, MB_PER_PROCESSOR // 4) == pytest.approx(430, abs=1)


def test_waiting_takes_as_long_with_any_memory() -> None:
    assert computed_milliseconds(0, 30, 256) == computed_milliseconds(0, 30, 3008) == 30


def test_one_thread_uses_one_processor_at_most() -> None:
    assert computed_milliseconds(100, 0, 2 * MB_PER_PROCESSOR) == 100


def test_work_bound_by_the_processor_costs_the_same_with_any_share() -> None:
    prices = [invocation(computed_milliseconds(10_000, 0, mb), mb) for mb in (256, 512, 1024, MB_PER_PROCESSOR)]
    assert max(prices) == pytest.approx(min(prices), rel=0.001)
