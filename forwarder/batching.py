"""When collected doorbells are sent. Times are seconds of the caller's clock."""

from collections.abc import Collection

import msgspec

from forwarder.doorbells import QueuedDoorbell

NEVER = float("inf")


class BatchWindow(msgspec.Struct, frozen=True):
    """A batch ends ``idle_seconds`` after its last doorbell, at the latest ``max_seconds`` after its first."""

    idle_seconds: float
    max_seconds: float


class Batch(msgspec.Struct, frozen=True):
    """Doorbells to send, each once. ``first_at`` and ``last_at``: when the first and the last of them rang."""

    doorbells: frozenset[QueuedDoorbell] = frozenset()
    first_at: float = NEVER
    last_at: float = NEVER


EMPTY = Batch()


def add_to_batch(batch: Batch, doorbells: frozenset[QueuedDoorbell], now: float) -> Batch:
    """The batch with further doorbells; a repeated doorbell keeps the window open, too."""
    if not doorbells:
        return batch
    return Batch(batch.doorbells | doorbells, min(batch.first_at, now), now)


def leave_out(batch: Batch, doorbells: frozenset[QueuedDoorbell]) -> Batch:
    """The batch without these doorbells, which ring by themselves."""
    left = batch.doorbells - doorbells
    return msgspec.structs.replace(batch, doorbells=left) if left else EMPTY


def due_at(batch: Batch, window: BatchWindow) -> float:
    """When the batch is to be sent; NEVER while it is empty."""
    if not batch.doorbells:
        return NEVER
    return min(batch.last_at + window.idle_seconds, batch.first_at + window.max_seconds)


class KeyedThrottle(msgspec.Struct, frozen=True):
    """One doorbell per key and period. ``last_at``: when each key last rang; ``due_by_key``: when it rings next."""

    period_seconds: float
    last_at: dict[str, float] = {}
    due_by_key: dict[str, float] = {}


def request_keys(throttle: KeyedThrottle, keys: Collection[str], now: float) -> KeyedThrottle:
    """Request a doorbell for each key: at once if its period is over, else when it is; several requests ring once."""
    if not keys:
        return throttle
    ready = {key: max(now, throttle.last_at.get(key, -NEVER) + throttle.period_seconds) for key in keys}
    due = {key: min(at, throttle.due_by_key.get(key, NEVER)) for key, at in ready.items()}
    return msgspec.structs.replace(throttle, due_by_key=throttle.due_by_key | due)


def hold_keys(throttle: KeyedThrottle, keys: Collection[str], until: float) -> KeyedThrottle:
    """The throttle when each key rings at ``until`` at the earliest."""
    held = dict.fromkeys(keys, until - throttle.period_seconds)
    return msgspec.structs.replace(throttle, last_at=throttle.last_at | held) if held else throttle


def take_due_keys(throttle: KeyedThrottle, now: float) -> tuple[frozenset[str], KeyedThrottle]:
    """The keys that are due, and the throttle without them; keys older than a period are dropped."""
    due = frozenset(key for key, at in throttle.due_by_key.items() if at <= now)
    waiting = {key: at for key, at in throttle.due_by_key.items() if key not in due}
    recent = {key: at for key, at in throttle.last_at.items() if now - at < throttle.period_seconds}
    return due, KeyedThrottle(throttle.period_seconds, recent | dict.fromkeys(due, now), waiting)


def next_due_at(throttle: KeyedThrottle) -> float:
    return min(throttle.due_by_key.values(), default=NEVER)
