"""When the cluster state is written, and what it consists of. Times are seconds of a monotonic clock."""

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final, Protocol

from forwarder.batching import NEVER
from forwarder.object_cache import ObjectCache
from forwarder.state_bodies import STATE_KINDS, all_objects, changes_since
from forwarder.state_jobs import FullBody, FullBodyResult, StateResult, StateToWrite
from spotwright.model.cluster_state import ClusterState, KindState

# Without a doorbell that waits for it, the state is written this often at most.
PERIOD_SECONDS: Final = 10.0
# A doorbell for pods waits this long for a state that shows them.
WAIT_SECONDS: Final = 1.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 1.0, 30.0
# Another body with all objects is written when the changes are larger than this part of it, and than a small object of
# S3: one more request costs more than reading that much.
LARGEST_CHANGES: Final = 0.25
SMALL_CHANGES_BYTES: Final = 64 * 1024
# Bodies expire after a day.
OLDEST_FULL_SECONDS: Final = 12 * 3600.0


class Writes(Protocol):
    """What writes; each job is reported as a result later."""

    def write_full(self, state: ClusterState) -> None: ...

    def write_state(self, state: StateToWrite) -> None: ...


class StateShipping:
    """The state of one cluster. ``writes``: None = no state is ever due. ``wall``: the time, aware UTC."""

    def __init__(
        self,
        cache: ObjectCache,
        writes: Writes | None,
        *,
        cluster: str,
        epoch: int,
        wall: Callable[[], datetime],
        jitter: Callable[[float, float], float] = random.uniform,
    ) -> None:
        #: Of the last state that was begun. A heartbeat says it: a state of another number is not the newest.
        self.sequence = 0
        self.written: StateResult | None = None
        self.failures = 0
        self._shown_changes = -1
        self._cache, self._writes, self._wall, self._jitter = cache, writes, wall, jitter
        self._cluster, self._epoch = cluster, epoch
        self._full: FullBody | None = None
        self._full_at = -NEVER
        self._full_pending = False
        self._full_due = -NEVER
        self._state_pending_since = NEVER
        self._due = -NEVER
        self._wanted = False
        self._pause = FIRST_PAUSE_SECONDS

    def shows(self, change_number: int) -> bool:
        """Whether the written state includes the first so many changes of objects."""
        return self._shown_changes >= change_number

    def write_what_is_due(self, now: float) -> None:
        """Begin what is due; the loop does this in every turn."""
        writes = self._writes
        if writes is None or not self._cache.is_synced(now):
            return
        if not self._full_pending and now >= self._full_due and self._needs_full(now):
            self._begin_full(writes, now)
        pending = self._state_pending_since != NEVER or self.shows(self._cache.changes.number)
        if self._full is not None and not pending and (now >= self._due or self._wanted):
            self._begin_state(writes, self._full, now)

    def ask(self, now: float) -> bool:
        """A doorbell for pods is about to be sent: write now. False = it is not worth waiting for."""
        if self._full is None or not self._cache.is_synced(now) or now - self._state_pending_since > WAIT_SECONDS:
            return False
        self._wanted = True
        self.write_what_is_due(now)
        return True

    def next_at(self) -> float:
        """When something is due if nothing happens before."""
        if self._state_pending_since != NEVER or self._full is None or self.shows(self._cache.changes.number):
            return NEVER
        return self._due

    def take_full(self, result: FullBodyResult, now: float) -> None:
        """A body with all objects was stored, or could not be."""
        self._full_pending = False
        if result.body is None:
            self.failures += 1
            self._cache.changes.abandon()
            self._full_due = now + self._next_pause()
            return
        self._cache.changes.commit()
        self._full, self._full_at, self._pause = result.body, now, FIRST_PAUSE_SECONDS
        # The head names the earlier body, which expires.
        self._shown_changes = -1

    def take_state(self, result: StateResult, now: float) -> None:
        """A state was written, or could not be."""
        self._state_pending_since = NEVER
        if result.changes_bytes is None:
            self.failures += 1
            self._wanted = False
            self._due = now + self._next_pause()
            return
        self._pause, self.written = FIRST_PAUSE_SECONDS, result
        if result.state.full is self._full:
            self._shown_changes = result.state.change_number

    def _needs_full(self, now: float) -> bool:
        if self._full is None or now - self._full_at > OLDEST_FULL_SECONDS:
            return True
        if self.written is None or self.written.state.full is not self._full:
            return False
        return (self.written.changes_bytes or 0) > max(SMALL_CHANGES_BYTES, LARGEST_CHANGES * self._full.size_bytes)

    def _begin_full(self, writes: Writes, now: float) -> None:
        self._full_pending = True
        self._cache.changes.begin()
        writes.write_full(
            ClusterState(
                cluster=self._cluster,
                epoch=self._epoch,
                sequence=self.sequence,
                taken=self._wall(),
                kinds=self._kinds(now),
                objects=all_objects(self._cache),
            )
        )

    def _begin_state(self, writes: Writes, full: FullBody, now: float) -> None:
        self.sequence += 1
        self._state_pending_since, self._due, self._wanted = now, now + PERIOD_SECONDS, False
        changed = self._cache.changes
        writes.write_state(
            StateToWrite(
                sequence=self.sequence,
                taken=self._wall(),
                kinds=self._kinds(now),
                full=full,
                changes=changes_since(self._cache, changed.since_base(), cluster=self._cluster, full=full.digest),
                change_number=changed.number,
            )
        )

    def _kinds(self, now: float) -> dict[str, KindState]:
        wall = self._wall()
        return {
            kind: KindState(contact.resource_version, wall - timedelta(seconds=now - contact.at))
            for kind, contact in self._cache.contacts().items()
            if kind in STATE_KINDS
        }

    def _next_pause(self) -> float:
        """Full jitter, doubling."""
        pause = self._jitter(self._pause / 2, self._pause)
        self._pause = min(LONGEST_PAUSE_SECONDS, self._pause * 2)
        return pause
