"""The cluster state that the forwarder ships: its head in the table, its bodies in the bucket (ClusterStatePort)."""

from datetime import UTC, datetime
from threading import Lock
from typing import TYPE_CHECKING

import msgspec

from spotwright.adapters.aws.dynamodb.items import number_attribute, text_attribute
from spotwright.adapters.aws.dynamodb.table import Table
from spotwright.adapters.aws.s3.blobs import S3Blobs
from spotwright.adapters.cluster_state.bodies import MAXIMUM_BYTES, decode
from spotwright.adapters.cluster_state.head import CLOCK_SKEW, decode_head
from spotwright.model.cluster_state import ClusterState, ClusterStateError, ClusterStateHead
from spotwright.workflows.ports.cluster_state import ShippedHead

if TYPE_CHECKING:
    from mypy_boto3_dynamodb.client import DynamoDBClient


class ShippedClusterState:
    """See ClusterStatePort. The state that was read last stays decoded, as long as its bodies are the newest."""

    def __init__(self, client: "DynamoDBClient", blobs: S3Blobs, *, table: str, cluster: str) -> None:
        self._table, self._blobs, self._cluster = Table(client, table), blobs, cluster
        self._last: tuple[tuple[str, str], ClusterState] | None = None
        self._loading = Lock()

    def head(self, *, now: datetime) -> ShippedHead | None:
        rows = self._table.get_rows(f"forwarder#{self._cluster}", "state", "heartbeat")
        if "state" not in rows:
            return None
        head = decode_head(text_attribute(rows["state"], "body"), cluster=self._cluster, now=now)
        heartbeat = rows.get("heartbeat", {})
        named = (number_attribute(heartbeat, "epoch"), number_attribute(heartbeat, "sequence"))
        if named[0] == head.epoch and named[1] > head.sequence:
            raise ClusterStateError(
                f"the forwarder has a newer state of {self._cluster} than it could write: sequence {named[1]}, after"
                f" {head.sequence}",
                code="Outdated",
            )
        if named != (head.epoch, head.sequence):
            return ShippedHead(head, head.taken)
        beat_ms, latest = number_attribute(heartbeat, "at"), now + CLOCK_SKEW
        if beat_ms > latest.timestamp() * 1000:
            raise ClusterStateError(
                f"the forwarder of {self._cluster} says that it was in sync at {beat_ms}, after the present,"
                f" {int(now.timestamp() * 1000)}",
                code="InTheFuture",
            )
        beat = datetime.fromtimestamp(max(0, beat_ms) / 1000, UTC)
        return ShippedHead(head, max(head.taken, beat))

    def load(self, head: ClusterStateHead) -> ClusterState:
        bodies = (head.full, head.changes)
        with self._loading:
            if self._last is None or self._last[0] != bodies:
                # The last state is freed before the next is decoded: there is no room for two.
                self._last = None
                full = self._body(head.full)
                self._last = bodies, decode(head, full, self._body(head.changes) if head.changes else b"")
            state = self._last[1]
        return msgspec.structs.replace(
            state, epoch=head.epoch, sequence=head.sequence, taken=head.taken, kinds=head.kinds
        )

    def _body(self, key: str) -> bytes:
        """A body as it is stored: compressed, it has fewer bytes than it may unpack to."""
        content = self._blobs.get_at_most(key, MAXIMUM_BYTES)
        if content is None:
            raise ClusterStateError(f"{key} has more than {MAXIMUM_BYTES} bytes", code="TooLarge")
        return content
