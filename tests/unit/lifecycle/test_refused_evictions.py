"""What PodDisruptionBudgets refuse: whose evictions wait for it, and when it is asked for again."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.lifecycle import refused_evictions
from spotwright.lifecycle.refused_evictions import BUDGETS_HOLD, FIRST_RETRY, LONGEST_RETRY, RefusedEvictions
from spotwright.simulation import builders

NOW = datetime(2026, 1, 1, tzinfo=UTC)
API = builders.pod("api-1", labels={"app": "api"}, node_name="n", is_ready=True, phase="Running")
BUDGETS = (builders.pod_disruption_budget("api", "api"), builders.pod_disruption_budget("web", "web"))


def refused() -> RefusedEvictions:
    refusal = refused_evictions.refuse(API, BUDGETS, NOW)
    assert refusal is not None
    return refusal


@pytest.mark.parametrize(
    ("changes", "waits"),
    [
        ({"metadata": msgspec.structs.replace(API.metadata, name="api-2")}, True),
        ({"metadata": msgspec.structs.replace(API.metadata, labels={"app": "api", "index": "2"})}, True),
        ({"metadata": msgspec.structs.replace(API.metadata, labels={"app": "web"})}, False),
        ({"metadata": msgspec.structs.replace(API.metadata, namespace="other")}, False),
        ({"is_ready": False}, False),
        ({"is_ready": False, "phase": "Pending"}, False),
    ],
    ids=["replica", "pod-of-a-statefulset", "other-app", "other-namespace", "not-ready", "pending"],
)
def test_pods_that_the_budget_selects_wait_and_no_others(changes: dict[str, object], waits: bool) -> None:
    assert refused().concerns(msgspec.structs.replace(API, **changes)) == waits


def test_a_pod_that_does_not_run_yet_waits_for_no_budget() -> None:
    """Nor for the refusal of one that runs and is not Ready; the API server asks no budget for it."""
    unready = msgspec.structs.replace(API, is_ready=False)
    refusal = refused_evictions.refuse(unready, BUDGETS, NOW)
    assert refusal is not None
    pending = msgspec.structs.replace(unready, phase="Pending")
    assert refusal.concerns(unready)
    assert not refusal.concerns(pending)
    assert refused_evictions.refuse(pending, BUDGETS, NOW) is None


def test_pods_with_two_budgets_wait_for_each_other_and_keep_no_pod_with_one() -> None:
    both = msgspec.structs.replace(API, metadata=msgspec.structs.replace(API.metadata, labels={"app": "api", "b": "b"}))
    second = msgspec.structs.replace(
        builders.pod_disruption_budget("b", "b"),
        selector=(msgspec.structs.replace(BUDGETS[0].selector[0], key="b", values=("b",)),),  # type: ignore[index]
    )
    refusal = refused_evictions.refuse(both, (*BUDGETS, second), NOW)
    assert refusal is not None
    assert refusal.budgets == ("api", "b")
    assert refusal.concerns(both)
    assert not refusal.concerns(API)


def test_a_pod_with_two_budgets_is_asked_for_in_their_name_and_not_in_that_of_one_of_them() -> None:
    one = refused()
    second = msgspec.structs.replace(one, budgets=("api", "zone"), selectors=(*one.selectors, *one.selectors))
    for known in ([one, second], [second, one]):
        assert refused_evictions.find_refusal(API, known) == second
    assert refused_evictions.find_refusal(API, [one, refused_evictions.end_refusal(second)]) == one
    assert refused_evictions.find_refusal(API, [refused_evictions.end_refusal(one)]) is None


@pytest.mark.parametrize(
    ("since", "are_old"),
    [
        (timedelta(0), False),
        (BUDGETS_HOLD - timedelta(milliseconds=1), False),
        (BUDGETS_HOLD, True),
        (-timedelta(minutes=5), True),
    ],
    ids=["now", "before", "then", "wrong-clock"],
)
def test_budgets_are_read_again_after_a_while(since: timedelta, are_old: bool) -> None:
    assert refused().are_budgets_old(NOW + since) == are_old
    assert msgspec.structs.replace(refused(), read_at_ms=0).are_budgets_old(NOW), "as an earlier version noted it"


def test_budgets_that_were_read_again_hold_as_long_as_before() -> None:
    later = NOW + BUDGETS_HOLD
    selecting_others = msgspec.structs.replace(BUDGETS[0], selector=())
    current = refused_evictions.refuse(API, [selecting_others], later)
    assert current is not None
    again = refused_evictions.with_budgets_of(refused(), current)
    assert not again.are_budgets_old(later)
    assert again == msgspec.structs.replace(refused(), selectors=((),), read_at_ms=again.read_at_ms)


def test_a_refusal_without_a_budget_is_not_told_to_other_nodes() -> None:
    """The API server answers 429 also where it has too much to do."""
    assert refused_evictions.refuse(API, BUDGETS[1:], NOW) is None


def test_after_a_successful_eviction_nobody_waits() -> None:
    assert not refused_evictions.end_refusal(refused()).concerns(API)


@given(looks=st.lists(st.integers(min_value=1, max_value=4000), max_size=200))
def test_however_many_look_few_ask_and_a_wait_is_never_longer_than_the_longest(looks: list[int]) -> None:
    """``looks``: milliseconds between the looks of all nodes."""
    refusal, now, asked = refused(), NOW, [NOW]
    for wait in looks:
        now += timedelta(milliseconds=wait)
        assert refusal.retry_at - now <= LONGEST_RETRY
        if refusal.is_due(now):
            refusal = refused_evictions.ask_again(refusal, now)
            asked.append(now)
    assert all(later - earlier >= FIRST_RETRY for earlier, later in pairwise(asked))
    assert len(asked) <= 4 + (now - NOW) / LONGEST_RETRY


def test_a_refusal_that_nobody_asked_about_for_long_begins_anew() -> None:
    later = NOW + timedelta(hours=1)
    again = refused_evictions.ask_again(refused(), later)
    assert again.retry_at - later == FIRST_RETRY


@pytest.mark.parametrize("ahead", [timedelta(minutes=5), timedelta(days=1)])
def test_a_note_of_a_wrong_clock_keeps_nobody(ahead: timedelta) -> None:
    wrong = refused_evictions.refuse(API, BUDGETS, NOW + ahead)
    assert wrong is not None
    assert wrong.is_due(NOW)
    again = refused_evictions.ask_again(wrong, NOW)
    assert again.retry_at - NOW == FIRST_RETRY
    later = NOW + timedelta(seconds=30)
    assert refused_evictions.ask_again(again, later).retry_at - later == LONGEST_RETRY, "waits grow as always"
