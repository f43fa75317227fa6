"""Times and durations that anybody may have written: read, or None; never more than a datetime can be counted with."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.model.kubernetes.eviction import parse_go_duration
from spotwright.model.kubernetes.meta import LONGEST_DURATION_SECONDS, parse_time

ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.text())
def test_no_text_is_an_error(text: str) -> None:
    at = parse_time(text)
    assert at is None or at.tzinfo is UTC


@given(st.datetimes(datetime(1678, 1, 2), datetime(2261, 12, 30), timezones=ZONES))  # noqa: DTZ001 bounds have no zone
def test_a_time_with_its_zone_is_read_as_utc(at: datetime) -> None:
    assert parse_time(at.isoformat()) == at


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "2026-01-01",
        "2026-01-01T00:00:00",
        "0001-01-01T00:00:00+14:00",
        "0001-01-01T00:00:00Z",
        "1677-12-31T00:00:00Z",
        "9999-12-31T23:59:59-14:00",
    ],
)
def test_what_names_no_moment_is_none(text: str) -> None:
    assert parse_time(text) is None


@pytest.mark.parametrize("text", ["99999999999h", "2562048h", "9" * 5000 + "ns", "1h" + "9" * 30 + "m"])
def test_a_duration_that_go_cannot_hold_is_the_longest_that_it_can(text: str) -> None:
    assert parse_go_duration(text) == timedelta(seconds=LONGEST_DURATION_SECONDS)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("1h30m", 5_400_000), ("1.5h", 5_400_000), ("+.5s", 500), ("1.s", 1000), ("876000h", 3153600000000)],
)
def test_a_go_duration_is_read_as_it_is(text: str, milliseconds: int) -> None:
    assert parse_go_duration(text) == timedelta(milliseconds=milliseconds)


@pytest.mark.parametrize("text", ["", "-1h", "0s", "1", "h", "1 h", "1e3s"])
def test_what_is_no_positive_go_duration_is_none(text: str) -> None:
    assert parse_go_duration(text) is None
