"""Budgets: how many, for which reason, and when."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given as generated
from hypothesis import strategies as st

from spotwright.disruption import cron
from spotwright.disruption.budgets import UNLIMITED, allowed_disruptions, budget_error, is_active, remaining_disruptions
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.simulation import builders
from tests.unit.disruption.builders import NOBODY, claim, node

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SUNDAY = datetime(2026, 1, 4, tzinfo=UTC)


@pytest.mark.parametrize(
    ("nodes", "total", "size"),
    [("30%", 10, 3), ("100%", 10, 10), ("0%", 10, 0), ("0", 10, 0), ("5", 10, 5), ("10%", 3, 1), ("20%", 19, 4)],
)
def test_percentages_round_up(nodes: str, total: int, size: int) -> None:
    assert allowed_disruptions(builders.nodepool(budgets=(Budget(nodes),)), "Empty", total, NOON) == size


def test_the_smallest_active_budget_for_the_reason_counts() -> None:
    never = Budget("0", schedule="@weekly", duration="1m")
    budgets = (
        Budget("10"), Budget("100"), Budget("100%"), Budget("15", reasons=("Drifted", "Underutilized")),
        Budget("5", reasons=("Drifted",)), Budget("4", reasons=("Empty",)), never,
    )  # fmt: skip
    pool = builders.nodepool(budgets=budgets)
    assert [allowed_disruptions(pool, reason, 100, NOON) for reason in ("Empty", "Drifted", "Underutilized")] == [
        4,
        5,
        10,
    ]
    assert allowed_disruptions(pool, "Empty", 100, SUNDAY) == 0


@pytest.mark.parametrize(
    ("budget", "allowed"),
    [
        (Budget("2", schedule="@yearly", duration="99999999h"), 2),
        (Budget("2", schedule="@yearly", duration=f"{9 * 10**20}h"), 2),
        (Budget("2", schedule="0 0 29 2 *", duration=f"{'9' * 5000}m"), 2),
        (Budget("9" * 5000), UNLIMITED),
    ],
    ids=["beyond dates", "beyond timedelta", "beyond an integer's text", "nodes"],
)
def test_a_budget_of_extreme_numbers_is_a_budget(budget: Budget, allowed: int) -> None:
    assert allowed_disruptions(builders.nodepool(budgets=(budget,)), "Empty", 10, NOON) == allowed


@pytest.mark.parametrize("budgets", [(), (Budget("1", schedule="@weekly", duration="1m"),)])
def test_without_an_active_budget_there_is_no_limit(budgets: tuple[Budget, ...]) -> None:
    assert allowed_disruptions(builders.nodepool(budgets=budgets), "Empty", 10, NOON) == UNLIMITED


@pytest.mark.parametrize(
    "bad",
    [
        Budget("1000a%"),
        Budget("101%"),
        Budget("5", schedule="* * * * tue-mon", duration="1h"),
        Budget("5", schedule="TZ=Asia/Seoul 0 0 * * *", duration="1h"),
        Budget("5", schedule="@weekly"),
        Budget("5", schedule="@weekly", duration="30s"),
        Budget("5", schedule="* * * *", duration="1h"),
        Budget("5", schedule="60 * * * *", duration="1h"),
        Budget("5", schedule="*/0 * * * *", duration="1h"),
    ],
)
def test_a_budget_that_cannot_be_read_allows_nothing_for_any_reason(bad: Budget) -> None:
    assert budget_error(bad)
    assert allowed_disruptions(builders.nodepool(budgets=(Budget("100%"), bad)), "Drifted", 10, NOON) == 0


@pytest.mark.parametrize(
    ("schedule", "duration", "at", "open_"),
    [
        ("@yearly", "24h", NOON, True),
        ("@yearly", "12h", NOON, False),
        ("30 6 * * SUN", "6h", SUNDAY, False),
        ("30 6 * * SUN", "6h", SUNDAY + timedelta(hours=6, minutes=30), True),
        ("30 6 * * SUN", "6h", SUNDAY + timedelta(hours=12, minutes=29, seconds=59), True),
        ("30 6 * * SUN", "6h", SUNDAY + timedelta(hours=12, minutes=30), False),
        ("0 9 * * mon-fri", "8h", datetime(2026, 1, 5, 16, 59, tzinfo=UTC), True),
        ("0 9 * * mon-fri", "8h", datetime(2026, 1, 4, 16, 59, tzinfo=UTC), False),
        ("0 0 13 * 5", "1h", datetime(2026, 2, 13, tzinfo=UTC), True),
        ("0 0 13 * 5", "1h", datetime(2026, 2, 6, tzinfo=UTC), True),
        ("0 0 */2 * 5", "1h", datetime(2026, 2, 7, tzinfo=UTC), True),
        ("0 0 29 2 *", "1h30m", datetime(2028, 2, 29, 1, 29, tzinfo=UTC), True),
    ],
)
def test_windows_are_open_at_their_start_and_closed_at_their_end(
    schedule: str, duration: str, at: datetime, open_: bool
) -> None:
    assert is_active(Budget("1", schedule=schedule, duration=duration), at) is open_


FIELD = st.one_of(st.just("*"), st.integers(1, 6).map(str), st.sampled_from(["1-3", "*/2", "2,5", "1-6/2", "4/1"]))


@generated(
    st.tuples(FIELD, FIELD, FIELD, FIELD, FIELD).map(" ".join),
    st.integers(0, 60 * 24 * 40),
    st.integers(1, 60 * 24 * 3),
)
def test_the_last_hit_is_what_going_through_every_minute_finds(text: str, offset: int, window: int) -> None:
    schedule, until = cron.parse(text), NOON + timedelta(minutes=offset)
    after = until - timedelta(minutes=window)
    assert schedule.last_activation(after=after, until=until) == _slowly(schedule, after, until)


def _slowly(schedule: cron.Schedule, after: datetime, until: datetime) -> datetime | None:
    at = until
    while at > after:
        days = (at.day in schedule.day_of_month.values, at.isoweekday() % 7 in schedule.day_of_week.values)
        both = schedule.day_of_month.unrestricted or schedule.day_of_week.unrestricted
        if (
            at.minute in schedule.minute.values
            and at.hour in schedule.hour.values
            and at.month in schedule.month.values
            and (all(days) if both else any(days))
        ):
            return at
        at -= timedelta(minutes=1)
    return None


@pytest.mark.parametrize("name", ["a-second", "z-second"])
def test_of_nodes_that_share_an_instance_the_one_of_the_claim_says_whether_it_is_disrupted(name: str) -> None:
    own, other = node("a"), node("a", metadata=ObjectMeta(name), conditions=(Condition("Ready", "False"),))
    pool = builders.nodepool(budgets=(Budget("1"),))
    for nodes in ((own, other), (other, own)):
        assert remaining_disruptions(pool, "Empty", [claim("a")], nodes, locked=NOBODY, now=NOON) == 1
