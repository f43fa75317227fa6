"""The doorbell for pods: gathered for a moment, held until the cluster state shows them, repeated while pods wait."""

import msgspec

from forwarder.batching import EMPTY, NEVER, Batch, BatchWindow, add_to_batch, due_at
from forwarder.doorbells import PODS
from forwarder.object_cache import ObjectCache
from forwarder.state_shipping import WAIT_SECONDS, StateShipping

# Unschedulable pods ring again after this long.
REPEAT_SECONDS = 10.0


class _Hold(msgspec.Struct, frozen=True):
    """Since when a doorbell waits for a state that includes the first ``change_number`` changes, and until when."""

    since: float
    until: float
    change_number: int


class PodsDoorbell:
    """When to ring for pods. ``late``: how often that was without a state that shows them."""

    def __init__(self, cache: ObjectCache, shipping: StateShipping, window: BatchWindow) -> None:
        self.late = 0
        self._cache, self._shipping, self._window = cache, shipping, window
        self._batch: Batch = EMPTY
        self._again_at = NEVER
        self._hold: _Hold | None = None
        self._unseen_change: int | None = None

    def add(self, rings: bool, now: float) -> None:
        self._batch = add_to_batch(self._batch, frozenset({PODS} if rings else ()), now)

    def next_at(self) -> float:
        return min(due_at(self._batch, self._window), self._again_at, self._hold.until if self._hold else NEVER)

    def stop_waiting(self) -> None:
        """The state could not be written."""
        if self._hold:
            self._hold = msgspec.structs.replace(self._hold, until=-NEVER)

    def take(self, now: float) -> float | None:
        """None = nothing is due. Otherwise ring, since the state shows the pods (0) or was waited for in vain: seconds.

        Pods that rang without the state ring again when it is written: planners may have read an earlier one.
        """
        if self._hold is None and self._is_due(now):
            self._batch = EMPTY
            until = now + WAIT_SECONDS if self._shipping.ask(now) else now
            self._hold = _Hold(now, until, self._cache.changes.number)
        hold = self._hold
        if hold is None:
            return None
        shown = self._shipping.shows(hold.change_number)
        if not shown and now < hold.until:
            return None
        self._hold = None
        self._unseen_change = None if shown else hold.change_number
        self.late += not shown
        self._again_at = now + REPEAT_SECONDS if self._cache.has_pending_pods() else NEVER
        return 0.0 if shown else max(now - hold.since, 0.001)

    def _is_due(self, now: float) -> bool:
        if not self._cache.has_pending_pods():
            self._again_at = NEVER
        elif self._again_at == NEVER:
            self._again_at = now + REPEAT_SECONDS
        if self._unseen_change is not None and self._shipping.shows(self._unseen_change):
            self._unseen_change = None
            return True
        return due_at(self._batch, self._window) <= now or now >= self._again_at
