"""Times that anybody may have written: read, or None."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.model.kubernetes.meta import parse_time

ZONES = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))


@given(st.text())
def test_no_text_is_an_error(text: str) -> None:
    at = parse_time(text)
    assert at is None or at.tzinfo is UTC


@given(st.datetimes(datetime(1, 1, 3), datetime(9999, 12, 29), timezones=ZONES))  # noqa: DTZ001 bounds have no zone
def test_a_time_with_its_zone_is_read_as_utc(at: datetime) -> None:
    assert parse_time(at.isoformat()) == at


@pytest.mark.parametrize("text", ["", "soon", "2026-01-01", "2026-01-01T00:00:00", "0001-01-01T00:00:00+14:00"])
def test_what_names_no_moment_is_none(text: str) -> None:
    assert parse_time(text) is None
