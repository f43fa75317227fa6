"""Writes bodies and heads of the cluster state in threads of their own, so that no doorbell waits for S3."""

import logging
from collections.abc import Callable
from datetime import datetime

import msgspec

from forwarder.epoch import Epoch
from forwarder.workers import start_worker
from spotwright.adapters.aws.cluster_states import ClusterStateWriter, LaterHead
from spotwright.adapters.cluster_state.bodies import encode_changes, encode_full, key_digest
from spotwright.errors import ApiError
from spotwright.model.cluster_state import (
    ClusterObjects,
    ClusterState,
    ClusterStateChanges,
    ClusterStateHead,
    KindState,
)
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line

logger = logging.getLogger("forwarder")


class FullBody(msgspec.Struct, frozen=True):
    """A body with all objects, stored under ``key``."""

    key: str
    size_bytes: int

    @property
    def digest(self) -> str:
        return key_digest(self.key)


class StateToWrite(msgspec.Struct, frozen=True):
    """A state to write: ``changes`` since ``full``. ``change_number``: how many changes of objects it includes."""

    sequence: int
    taken: datetime
    kinds: dict[str, KindState]
    full: FullBody
    changes: ClusterStateChanges
    change_number: int


class FullBodyResult(msgspec.Struct, frozen=True):
    """``body`` None = it could not be stored."""

    body: FullBody | None


class StateResult(msgspec.Struct, frozen=True):
    """``changes_bytes`` None = the state could not be written."""

    state: StateToWrite
    changes_bytes: int | None


class StateJobs:
    """Two threads: a full body takes seconds at 50,000 pods, and changes of the earlier one are written meanwhile."""

    def __init__(
        self,
        writer: ClusterStateWriter,
        *,
        cluster: str,
        epoch: Epoch,
        report: Callable[[FullBodyResult | StateResult], None],
    ) -> None:
        self._writer, self._cluster, self._epoch, self._report = writer, cluster, epoch, report
        self._full = start_worker("cluster-state-full-body")
        self._state = start_worker("cluster-state")

    def write_full(self, state: ClusterState) -> None:
        """Store a body with all objects; reports a FullBodyResult."""
        self._full.put(lambda: self._report(FullBodyResult(_attempt(lambda: self._store(state)))))

    def write_state(self, state: StateToWrite) -> None:
        """Store changes and head; reports a StateResult."""
        self._state.put(lambda: self._report(StateResult(state, _attempt(lambda: self._write(state)))))

    def _store(self, state: ClusterState) -> FullBody:
        body = encode_full(state)
        return FullBody(self._writer.put_body(body), len(body))

    def _write(self, state: StateToWrite) -> int:
        """Returns the size of the changes."""
        changes = state.changes
        body = encode_changes(changes) if changes.gone or changes.changed != ClusterObjects() else b""
        head = ClusterStateHead(
            cluster=self._cluster,
            epoch=self._epoch.number,
            sequence=state.sequence,
            taken=state.taken,
            kinds=state.kinds,
            full=state.full.key,
            changes=self._writer.put_body(body) if body else "",
            full_bytes=state.full.size_bytes,
            changes_bytes=len(body),
        )
        self._put_head(head)
        sizes = {"full_bytes": head.full_bytes, "changes_bytes": head.changes_bytes}
        log_line(logger, log_lines.CLUSTER_STATE_WRITTEN, sequence=head.sequence, **sizes)
        return len(body)

    def _put_head(self, head: ClusterStateHead) -> None:
        """Store the head; in the place of that of another forwarder, where this one has been alone for a while."""
        try:
            self._writer.put_head(head)
        except LaterHead as other:
            if other.epoch <= head.epoch:
                raise
            self._epoch.head_refused((other.epoch, other.sequence))
            if not self._epoch.is_alone():
                raise
            next_epoch = other.epoch + 1
            self._writer.put_head(msgspec.structs.replace(head, epoch=next_epoch), replaces=other)
            self._epoch.number = next_epoch
            log_line(logger, log_lines.CLUSTER_STATE_TAKEN_OVER, epoch=next_epoch, before=other.epoch)


def _attempt[Result](job: Callable[[], Result]) -> Result | None:
    """None = it failed, and a log line says why: doorbells go on without the state."""
    try:
        return job()
    except ApiError as error:
        log_line(logger, log_lines.CLUSTER_STATE_NOT_WRITTEN, error=str(error))
    except Exception:  # noqa: BLE001 whatever it is, the next attempt may succeed
        log_line(logger, log_lines.CLUSTER_STATE_FAILED)
    return None
