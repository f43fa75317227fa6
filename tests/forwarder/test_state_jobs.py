"""Bodies and heads are written so that the functions read the same objects, and a failure is said and survived."""

import logging
from collections.abc import Iterator
from datetime import UTC, datetime
from queue import SimpleQueue
from typing import Any

import boto3
import msgspec
import pytest
from moto import mock_aws

from forwarder.epoch import Epoch
from forwarder.state_jobs import FullBody, FullBodyResult, StateJobs, StateResult, StateToWrite
from spotwright.adapters.aws.cluster_states import ClusterStateWriter
from spotwright.adapters.aws.dynamodb.table import Table
from spotwright.adapters.cluster_state.bodies import decode
from spotwright.adapters.cluster_state.head import decode_head
from spotwright.errors import Conflict
from spotwright.model.cluster_state import ClusterObjects, ClusterState, ClusterStateChanges, KindState
from spotwright.model.kubernetes.pod import Pod
from spotwright.telemetry import log_lines
from tests.contract import tables
from tests.forwarder import objects
from tests.forwarder.objects import decoded

NOW = datetime(2026, 1, 1, tzinfo=UTC)
KINDS = {"Pod": KindState("9", NOW)}


class Store:
    """A bucket and a table, the forwarder's jobs over them, and what the functions read."""

    def __init__(self, bucket: str = "states") -> None:
        self.s3 = boto3.client("s3", region_name="us-east-1")
        dynamodb = boto3.client("dynamodb", region_name="us-east-1")
        if bucket == "states":
            self.s3.create_bucket(Bucket=bucket)
            tables.create_table(dynamodb, "table")
        self.table = Table(dynamodb, "table")
        self.writer = ClusterStateWriter(self.s3, self.table, bucket=bucket, cluster="c")
        self.results: SimpleQueue[FullBodyResult | StateResult] = SimpleQueue()
        self.jobs = StateJobs(self.writer, cluster="c", epoch=Epoch(7), report=self.results.put)

    def write_full(self, *pods: Pod) -> FullBody | None:
        state = ClusterState(
            cluster="c", epoch=7, sequence=0, taken=NOW, kinds=KINDS, objects=ClusterObjects(pods=pods)
        )
        self.jobs.write_full(state)
        result = self.results.get(timeout=60)
        assert isinstance(result, FullBodyResult)
        return result.body

    def write(self, full: FullBody, sequence: int, *changed: Pod) -> int | None:
        changes = ClusterStateChanges(cluster="c", full=full.digest, changed=ClusterObjects(pods=changed))
        self.jobs.write_state(StateToWrite(sequence, NOW, KINDS, full, changes, 1))
        result = self.results.get(timeout=60)
        assert isinstance(result, StateResult)
        return result.changes_bytes

    def read(self) -> ClusterState:
        item: Any = self.table.get("forwarder#c", "state")
        head = decode_head(item["body"]["S"], cluster="c", now=NOW)
        return decode(head, self._body(head.full), self._body(head.changes) if head.changes else b"")

    def _body(self, key: str) -> bytes:
        return bytes(self.s3.get_object(Bucket="states", Key=key)["Body"].read())


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    with mock_aws():
        yield Store()


def pod(name: str) -> Pod:
    found = decoded("Pod", objects.pod(name, node="n"))
    assert isinstance(found, Pod)
    return found


def messages(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "forwarder"]


def test_what_was_written_is_read(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG, logger="forwarder"):
        full = store.write_full(pod("a"))
        assert full is not None
        assert store.write(full, 1) == 0
        assert store.read().objects.pods == (pod("a"),)
        assert store.write(full, 2, pod("b"))
        assert store.read().objects.pods == (pod("a"), pod("b"))
    assert messages(caplog) == [log_lines.CLUSTER_STATE_WRITTEN.message] * 2


def test_a_forwarder_that_was_replaced_changes_nothing(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    full = store.write_full(pod("a"))
    assert full is not None
    store.write(full, 2)
    assert store.write(full, 1, pod("b")) is None
    assert store.read().sequence == 2
    assert messages(caplog) == [log_lines.CLUSTER_STATE_NOT_WRITTEN.message]
    item: Any = store.table.get("forwarder#c", "state")
    head = decode_head(item["body"]["S"], cluster="c", now=NOW)
    with pytest.raises(Conflict):
        store.writer.put_head(msgspec.structs.replace(head, epoch=6, sequence=9))
    store.writer.put_head(msgspec.structs.replace(head, epoch=8, sequence=1))


def test_a_bucket_that_is_away_is_a_result(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    assert Store(bucket="away").write_full(pod("a")) is None
    assert messages(caplog) == [log_lines.CLUSTER_STATE_NOT_WRITTEN.message]


def test_an_unforeseen_error_is_a_result_and_the_next_state_is_written(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    full = store.write_full(pod("a"))
    assert full is not None
    assert store.write(full, 1, msgspec.structs.replace(pod("b"), metadata=None)) is None
    assert messages(caplog) == [log_lines.CLUSTER_STATE_FAILED.message]
    assert "Traceback" in caplog.text
    assert store.write(full, 2, pod("b"))
