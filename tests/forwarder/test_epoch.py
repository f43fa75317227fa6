"""Two forwarders of a cluster: whose state planners read, and who goes on when the other one is silent."""

from collections.abc import Iterator
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Any

import boto3
import msgspec
import pytest
from moto import mock_aws

from forwarder.epoch import Epoch
from forwarder.sender import write_heartbeat
from forwarder.state_jobs import FullBody, StateJobs, StateResult, StateToWrite
from spotwright.adapters.aws.cluster_states import ClusterStateWriter, LaterHead
from spotwright.adapters.aws.dynamodb.table import Table
from spotwright.adapters.aws.s3.blobs import S3Blobs
from spotwright.adapters.aws.shipped_cluster_state import ShippedClusterState
from spotwright.model.cluster_state import ClusterStateChanges, ClusterStateError, ClusterStateHead
from spotwright.telemetry import log_lines
from spotwright.workflows.planning.cluster_state import FRESH
from tests.contract import tables

HOUR = 3600.0


class Forwarders:
    """A table and a bucket, seconds that only the test moves, and the forwarders that write at them."""

    def __init__(self) -> None:
        self.s3 = boto3.client("s3", region_name="us-east-1")
        self.s3.create_bucket(Bucket="states")
        self.dynamodb = boto3.client("dynamodb", region_name="us-east-1")
        tables.create_table(self.dynamodb, "table")
        self.now = 1_800_000_000.0

    def start(self, *, clock_is_ahead: float = 0) -> "Forwarder":
        self.now += 1
        return Forwarder(self, clock_is_ahead)

    def start_two(self) -> tuple["Forwarder", "Forwarder"]:
        """An older one and a younger one, as they are after half a minute."""
        older, younger = self.start(), self.start()
        self.pass_time(30, older, younger)
        return older, younger

    def pass_time(self, seconds: int, *living: "Forwarder") -> None:
        """Every ten seconds each of them sees a change and writes a state and a heartbeat."""
        for _ in range(0, seconds, 10):
            self.now += 10
            for forwarder in living:
                forwarder.ship()
                forwarder.beat()

    def read(self) -> int:
        """The number of the forwarder whose state planners may read; 0 = they list."""
        blobs = S3Blobs(self.s3, bucket="states", cluster="c")
        now = datetime.fromtimestamp(self.now, UTC)
        try:
            head = ShippedClusterState(self.dynamodb, blobs, table="table", cluster="c").head(now=now)
        except ClusterStateError:
            return 0
        return int(head.head.full.rpartition("-")[2]) if head is not None and now - head.in_sync <= FRESH else 0


class Forwarder:
    """What a forwarder writes. ``clock_is_ahead``: of the true time, in seconds."""

    count = 0

    def __init__(self, forwarders: Forwarders, clock_is_ahead: float) -> None:
        Forwarder.count += 1
        self.number, self.sequence, self.ahead = Forwarder.count, 0, clock_is_ahead
        self._forwarders, self._results = forwarders, SimpleQueue[Any]()
        self.epoch = Epoch(int(self.wall() * 1000), clock=lambda: forwarders.now)
        writer = ClusterStateWriter(forwarders.s3, Table(forwarders.dynamodb, "table"), bucket="states", cluster="c")
        self._jobs = StateJobs(writer, cluster="c", epoch=self.epoch, report=self._results.put)

    def wall(self) -> float:
        return self._forwarders.now + self.ahead

    def ship(self) -> bool:
        """Write a state; whether the table took it."""
        self.sequence += 1
        full = FullBody(f"clusters/c/state/full-{self.number}", 9)
        taken = datetime.fromtimestamp(self.wall(), UTC)
        changes = ClusterStateChanges(cluster="c", full=full.digest)
        self._jobs.write_state(StateToWrite(self.sequence, taken, {}, full, changes, 1))
        result = self._results.get(timeout=60)
        assert isinstance(result, StateResult)
        return result.changes_bytes is not None

    def beat(self) -> None:
        write_heartbeat(
            self._forwarders.dynamodb,
            table="table",
            cluster="c",
            now=self.wall(),
            epoch=self.epoch,
            sequence=self.sequence,
        )


@pytest.fixture
def forwarders(monkeypatch: pytest.MonkeyPatch) -> Iterator[Forwarders]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    with mock_aws():
        yield Forwarders()


def test_where_the_younger_forwarder_is_gone_the_state_of_the_other_is_read_again(
    forwarders: Forwarders, caplog: pytest.LogCaptureFixture
) -> None:
    """Its states were refused until it was restarted, and planners listed."""
    older, younger = forwarders.start_two()
    assert forwarders.read() == younger.number
    forwarders.pass_time(70, older)
    assert forwarders.read() == older.number
    taken_over = [record for record in caplog.records if record.message == log_lines.CLUSTER_STATE_TAKEN_OVER.message]
    assert len(taken_over) == 1
    forwarders.pass_time(60, older)
    assert forwarders.read() == older.number


def test_a_forwarder_that_is_back_is_refused_while_the_other_one_writes(forwarders: Forwarders) -> None:
    """They do not take turns."""
    older, younger = forwarders.start_two()
    forwarders.pass_time(100, older)
    for _ in range(30):
        forwarders.pass_time(10, younger, older)
        assert forwarders.read() == older.number
    forwarders.pass_time(100, younger)
    assert forwarders.read() == younger.number


def test_a_forwarder_that_is_started_later_ships_at_once(forwarders: Forwarders) -> None:
    older, _ = forwarders.start_two()
    forwarders.pass_time(100, older)
    youngest = forwarders.start()
    assert youngest.ship()
    assert forwarders.read() == youngest.number


def test_a_forwarder_that_was_alone_leaves_the_state_to_one_that_starts(forwarders: Forwarders) -> None:
    """In a rolling update the old one met a head of the new one before it wrote a heartbeat again."""
    older = forwarders.start()
    forwarders.pass_time(100, older)
    younger = forwarders.start()
    younger.beat()
    assert younger.ship()
    younger.beat()
    assert not older.ship()
    for _ in range(6):
        forwarders.pass_time(10, older, younger)
        assert forwarders.read() == younger.number


def test_a_forwarder_that_writes_states_is_not_silent(forwarders: Forwarders) -> None:
    """One that no queue answers writes states, but no heartbeats."""
    older, younger = forwarders.start_two()
    for _ in range(12):
        forwarders.now += 10
        assert younger.ship()
        assert not older.ship()
        older.beat()
        assert not older.ship()
        assert forwarders.read() == younger.number


def test_a_younger_forwarder_with_nothing_to_ship_keeps_the_state(forwarders: Forwarders) -> None:
    """In a quiet cluster heartbeats alone say that it is there."""
    older, younger = forwarders.start_two()
    for _ in range(20):
        forwarders.now += 10
        younger.beat()
        assert not older.ship()
        older.beat()
        assert forwarders.read() == younger.number


def test_a_younger_forwarder_whose_clock_is_ahead_keeps_the_state(forwarders: Forwarders) -> None:
    """Its heartbeats count as those of a forwarder that is gone, and are replaced."""
    older = forwarders.start()
    younger = forwarders.start(clock_is_ahead=60)
    forwarders.pass_time(30, older, younger)
    for _ in range(20):
        forwarders.now += 10
        younger.beat()
        assert not older.ship()
        older.beat()


def test_a_forwarder_counts_as_gone_after_25_seconds_not_after_one_heartbeat(forwarders: Forwarders) -> None:
    older, _ = forwarders.start_two()
    assert not older.ship()
    forwarders.now += 30
    for _ in range(2):
        older.beat()
        assert not older.ship()
        forwarders.now += 10


@pytest.mark.parametrize("ahead", [60, -60, HOUR, -HOUR])
def test_forwarders_whose_clocks_differ_do_not_take_turns(forwarders: Forwarders, ahead: float) -> None:
    """The one with the wrong clock takes each heartbeat of the other for one of long ago."""
    wrong, right = forwarders.start(clock_is_ahead=ahead), forwarders.start()
    forwarders.pass_time(30, wrong, right)
    epochs = wrong.epoch.number, right.epoch.number
    forwarders.pass_time(300, wrong, right)
    assert (wrong.epoch.number, right.epoch.number) == epochs


def test_a_clock_that_was_an_hour_ahead_costs_the_next_forwarder_a_minute(forwarders: Forwarders) -> None:
    """Its states were refused for an hour, since the head in the table had an epoch of the future."""
    wrong = forwarders.start(clock_is_ahead=HOUR)
    forwarders.pass_time(30, wrong)
    right = forwarders.start()
    forwarders.pass_time(60, right)
    assert forwarders.read() == right.number


def test_of_two_that_take_the_place_of_one_at_once_the_first_one_goes_on(forwarders: Forwarders) -> None:
    """Each replaces the head that it was refused for, and no other."""
    first, second, third = forwarders.start(), forwarders.start(), forwarders.start()
    assert third.ship()
    writer = ClusterStateWriter(forwarders.s3, Table(forwarders.dynamodb, "table"), bucket="states", cluster="c")
    head = ClusterStateHead(
        cluster="c", epoch=first.epoch.number, sequence=9, taken=datetime(2026, 1, 1, tzinfo=UTC), kinds={}, full="f"
    )
    with pytest.raises(LaterHead) as refusal:
        writer.put_head(head)
    assert (refusal.value.epoch, refusal.value.sequence) == (third.epoch.number, 1)
    next_head = msgspec.structs.replace(head, epoch=third.epoch.number + 1)
    writer.put_head(next_head, replaces=refusal.value)
    with pytest.raises(LaterHead):
        writer.put_head(msgspec.structs.replace(next_head, sequence=10), replaces=refusal.value)
    assert not second.ship()


def test_one_that_wrote_no_heartbeat_for_a_while_looks_anew(forwarders: Forwarders) -> None:
    """Meanwhile another one may have come back, of which its last heartbeats know nothing."""
    older, younger = forwarders.start_two()
    assert not older.ship()
    for _ in range(7):
        forwarders.now += 10
        older.beat()
    for _ in range(10):
        forwarders.now += 10
        younger.beat()
    assert not older.ship()
    assert forwarders.read() == younger.number


def test_a_younger_forwarder_that_is_back_in_time_keeps_the_state(forwarders: Forwarders) -> None:
    older, younger = forwarders.start_two()
    assert not older.ship()
    for _ in range(7):
        forwarders.now += 10
        older.beat()
    assert older.epoch.is_alone()
    younger.beat()
    older.beat()
    assert not older.ship()
    assert forwarders.read() == younger.number


def test_of_a_lost_answer_nobody_takes_over(forwarders: Forwarders) -> None:
    """The SDK sends a request again whose answer was lost; the table refuses it for the head that it took."""
    alone = forwarders.start()
    forwarders.pass_time(60, alone)
    epoch = alone.epoch.number
    alone.sequence -= 1
    assert not alone.ship()
    for _ in range(6):
        forwarders.now += 10
        alone.beat()
    alone.sequence -= 1
    assert not alone.ship()
    assert alone.ship()
    assert alone.epoch.number == epoch
