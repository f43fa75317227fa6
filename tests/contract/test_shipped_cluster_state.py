"""ClusterStatePort on the table and the bucket of the local AWS, as the forwarder writes them."""

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from spotwright.adapters.aws import shipped_cluster_state
from spotwright.adapters.aws.s3.blobs import S3Blobs
from spotwright.adapters.aws.shipped_cluster_state import ShippedClusterState
from spotwright.adapters.cluster_state.bodies import encode_full, state_key
from spotwright.adapters.cluster_state.head import encode_head
from spotwright.errors import NotFound
from spotwright.model.cluster_state import (
    KIND_FIELDS,
    NAMESPACE,
    ClusterObjects,
    ClusterState,
    ClusterStateError,
    ClusterStateHead,
    KindState,
)
from spotwright.simulation import builders
from spotwright.workflows.planning.cluster_state import NoClusterState, read_cluster_state
from tests.contract import tables
from tests.contract.conftest import LocalAws

NOW = datetime(2026, 1, 1, tzinfo=UTC)
BUCKET = "states"
NUMBERS = itertools.count()


class Forwarder:
    """Writes what a forwarder writes, for a cluster of its own."""

    def __init__(self, aws: LocalAws, table: str) -> None:
        clients: Any = aws
        self.cluster = f"shipped-{next(NUMBERS)}"
        self.dynamodb = clients.client("dynamodb")
        self.s3 = clients.client("s3")
        self._table = table
        blobs = S3Blobs(self.s3, bucket=BUCKET, cluster=self.cluster)
        self.port = ShippedClusterState(self.dynamodb, blobs, table=table, cluster=self.cluster)

    def ship(
        self,
        *,
        sequence: int = 1,
        taken: datetime = NOW,
        silence: timedelta = timedelta(0),
        without_body: bool = False,
        without_kind: str = "",
    ) -> ClusterState:
        """``silence``: since the last contact of every kind."""
        kinds = {kind: KindState("7", taken - silence) for kind in {*KIND_FIELDS, NAMESPACE} - {without_kind}}
        state = ClusterState(
            cluster=self.cluster, epoch=5, sequence=sequence, taken=taken, kinds=kinds,
            objects=ClusterObjects(nodepools=(builders.nodepool(f"pool-{sequence}"),)),
        )  # fmt: skip
        body = encode_full(state)
        if not without_body:
            self.s3.put_object(Bucket=BUCKET, Key=state_key(self.cluster, body), Body=body)
        head = ClusterStateHead(
            cluster=self.cluster, epoch=5, sequence=sequence, taken=taken, kinds=kinds,
            full=state_key(self.cluster, body),
        )  # fmt: skip
        self._put("state", {"body": {"S": encode_head(head)}})
        return state

    def beat(self, at: datetime, *, sequence: int) -> None:
        at_ms = int(at.timestamp() * 1000)
        self._put("heartbeat", {"at": {"N": str(at_ms)}, "epoch": {"N": "5"}, "sequence": {"N": str(sequence)}})

    def _put(self, sort: str, attributes: dict[str, Any]) -> None:
        key = {"pk": {"S": f"forwarder#{self.cluster}"}, "sk": {"S": sort}}
        self.dynamodb.put_item(TableName=self._table, Item=key | attributes)


@pytest.fixture(scope="module")
def table(local_aws: LocalAws) -> str:
    client: Any = local_aws.client("s3")
    client.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": "ap-northeast-2"})
    return tables.create_table(local_aws.client("dynamodb"), "shipped")


@pytest.fixture
def forwarder(local_aws: LocalAws, table: str) -> Forwarder:
    return Forwarder(local_aws, table)


def test_nothing_was_shipped(forwarder: Forwarder) -> None:
    assert forwarder.port.head(now=NOW) is None


def test_what_is_shipped_is_read(forwarder: Forwarder) -> None:
    for sequence in (1, 2):
        state = forwarder.ship(sequence=sequence)
        assert read_cluster_state(forwarder.port, now=NOW) == state


def test_a_heartbeat_that_names_the_state_says_that_it_is_current(forwarder: Forwarder) -> None:
    forwarder.ship(sequence=3)
    later = NOW + timedelta(minutes=1)
    forwarder.beat(later, sequence=3)
    shipped = forwarder.port.head(now=later)
    assert shipped is not None
    assert shipped.in_sync == later
    forwarder.beat(later, sequence=2)
    shipped = forwarder.port.head(now=later)
    assert shipped is not None
    assert shipped.in_sync == NOW


def test_a_heartbeat_that_names_a_later_state_says_that_this_one_is_outdated(forwarder: Forwarder) -> None:
    forwarder.ship(sequence=3)
    forwarder.beat(NOW, sequence=4)
    found = read_cluster_state(forwarder.port, now=NOW)
    assert isinstance(found, NoClusterState)
    assert found.code == "Outdated"
    assert "sequence 4, after 3" in found.details


def test_a_state_of_another_cluster_is_refused(forwarder: Forwarder, local_aws: LocalAws, table: str) -> None:
    other = Forwarder(local_aws, table)
    other.ship()
    item = other.dynamodb.get_item(
        TableName=table, Key={"pk": {"S": f"forwarder#{other.cluster}"}, "sk": {"S": "state"}}
    )["Item"]
    forwarder._put("state", {"body": item["body"]})
    with pytest.raises(ClusterStateError, match=other.cluster):
        forwarder.port.head(now=NOW)


def test_a_body_that_is_not_there_is_no_state(forwarder: Forwarder) -> None:
    forwarder.ship(without_body=True)
    shipped = forwarder.port.head(now=NOW)
    assert shipped is not None
    with pytest.raises(NotFound):
        forwarder.port.load(shipped.head)
    found = read_cluster_state(forwarder.port, now=NOW)
    assert isinstance(found, NoClusterState)
    assert found.code == "NoAnswer"


def test_a_body_that_is_too_large_to_be_one_is_not_read(forwarder: Forwarder, monkeypatch: pytest.MonkeyPatch) -> None:
    """An object of S3 may have terabytes: a function that reads it is killed, with the work of other clusters."""
    forwarder.ship()
    shipped = forwarder.port.head(now=NOW)
    assert shipped is not None
    monkeypatch.setattr(shipped_cluster_state, "MAXIMUM_BYTES", 100)
    assert read_cluster_state(forwarder.port, now=NOW) == NoClusterState(
        "TooLarge", f"{shipped.head.full} has more than 100 bytes"
    )


def test_a_silent_watch_is_no_contact(forwarder: Forwarder) -> None:
    forwarder.ship(silence=timedelta(seconds=151))
    found = read_cluster_state(forwarder.port, now=NOW)
    assert isinstance(found, NoClusterState)
    assert found.code == "OutOfContact"
    assert "silent for 151 s" in found.details


def test_a_cluster_in_which_nothing_happens_is_known_all_the_same(forwarder: Forwarder) -> None:
    """Nothing new is written for hours; the heartbeat says that every kind is in contact."""
    state = forwarder.ship(sequence=1, silence=timedelta(seconds=60))
    later = NOW + timedelta(hours=3)
    forwarder.beat(later, sequence=1)
    assert read_cluster_state(forwarder.port, now=later + timedelta(seconds=10)) == state


@pytest.mark.parametrize(("kind", "used"), [("Node", False), ("Pod", False), ("NodeOverlay", True)])
def test_a_state_without_a_kind_is_none_unless_a_cluster_may_lack_its_definition(
    forwarder: Forwarder, kind: str, used: bool
) -> None:
    forwarder.ship(without_kind=kind)
    found = read_cluster_state(forwarder.port, now=NOW)
    assert isinstance(found, ClusterState) == used
    assert used or "OutOfContact" in repr(found)


@pytest.mark.parametrize("at", ["1e30", "-1e30", "1.5", str(int(NOW.timestamp() * 1000) + 60_000)])
def test_whatever_a_heartbeat_says_the_planner_goes_on(forwarder: Forwarder, at: str) -> None:
    forwarder.ship()
    forwarder._put("heartbeat", {"at": {"N": at}, "epoch": {"N": "5"}, "sequence": {"N": "1"}})
    found = read_cluster_state(forwarder.port, now=NOW)
    assert isinstance(found, ClusterState) or found.code == "InTheFuture"
    assert isinstance(found, NoClusterState) == (at not in ("-1e30", "1.5"))
