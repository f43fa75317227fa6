"""What may be some seconds old is not read for each invocation."""

import time
from typing import Any, cast

import pytest

from spotwright.adapters.aws.dynamodb.state import DynamoState
from spotwright.adapters.recent_reads import RecentRead
from spotwright.errors import Unavailable
from spotwright.workflows.ports.state import RECENT_SECONDS


class Source:
    """Something that is read, and a clock, which a read takes a moment of."""

    def __init__(self) -> None:
        self.now, self.reads = 1000.0, 0
        self.failure: Exception | None = None

    def clock(self) -> float:
        return self.now

    def read(self) -> int:
        self.reads += 1
        self.now += 1
        if self.failure is not None:
            raise self.failure
        return self.reads


@pytest.fixture
def source() -> Source:
    return Source()


def test_an_answer_counts_for_so_many_seconds_since_it_was_asked_for(source: Source) -> None:
    recent = RecentRead(source.read, 5, source.clock)
    assert recent() == 1
    source.now = 1004.9
    assert recent() == 1
    source.now = 1005.0
    assert recent() == 2


def test_it_is_read_each_time_where_nothing_may_be_old(source: Source) -> None:
    recent = RecentRead(source.read, 0, source.clock)
    assert [recent(), recent()] == [1, 2]


def test_it_is_read_again_where_the_clock_was_set_back(source: Source) -> None:
    recent = RecentRead(source.read, 5, source.clock)
    recent()
    source.now = 900.0
    assert recent() == 2


def test_a_failure_is_raised_and_not_kept(source: Source) -> None:
    recent = RecentRead(source.read, 5, source.clock)
    source.failure = Unavailable("no table")
    with pytest.raises(Unavailable):
        recent()
    source.failure = None
    assert recent() == 2


def test_the_clock_goes_on_while_lambda_has_stopped_the_process(
    source: Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the time of day does, and the monotonic clock need not."""
    recent = RecentRead(source.read, 5)
    recent()
    now = time.time()
    monkeypatch.setattr(recent, "_answer", (now - 60, 1))
    assert recent() == 2
    assert recent._clock is time.time


def test_seconds_are_few() -> None:
    """Ticks that a stopped forwarder leaves far apart, and a zonal shift, are noticed so much later."""
    assert RECENT_SECONDS <= 5


class Table:
    """DynamoDB, which has no row."""

    def __init__(self) -> None:
        self.keys: list[str] = []

    def get_item(self, *, Key: dict[str, dict[str, str]], **_: object) -> dict[str, Any]:
        self.keys.append(Key["pk"]["S"])
        return {}


def test_of_a_cluster_heartbeats_and_the_key_of_zonal_shifts_may_be_old_and_what_is_bought_by_may_not() -> None:
    table = Table()
    state = DynamoState(cast("Any", table), table="t", cluster="blue", recent_seconds=5)
    for _ in range(3):
        assert (state.heartbeat(), state.recent_catalog_key()) == (0, "")
    assert table.keys == ["forwarder#blue", "catalog"]
    assert [state.catalog_key() for _ in range(2)] == ["", ""]
    assert table.keys[2:] == ["catalog"] * 2
