"""When to send what has rung: pure, over seconds that the caller reads from its clock."""

import msgspec

from forwarder.bells import Bell

NEVER = float("inf")


class Window(msgspec.Struct, frozen=True):
    """A batch ends ``idle_seconds`` after its last bell, at the latest ``max_seconds`` after its first."""

    idle_seconds: float
    max_seconds: float


class Batch(msgspec.Struct, frozen=True):
    """Bells that wait, each once. ``first`` and ``last``: when the first and the last of them rang."""

    bells: frozenset[Bell] = frozenset()
    first: float = NEVER
    last: float = NEVER


EMPTY = Batch()


def rung(batch: Batch, bells: frozenset[Bell], now: float) -> Batch:
    """The batch with more bells; ringing again what waits already keeps the window open."""
    if not bells:
        return batch
    return Batch(batch.bells | bells, min(batch.first, now), now)


def due_at(batch: Batch, window: Window) -> float:
    """When the batch is to be sent; NEVER while it is empty."""
    if not batch.bells:
        return NEVER
    return min(batch.last + window.idle_seconds, batch.first + window.max_seconds)


class Pace(msgspec.Struct, frozen=True):
    """One bell per key and period: ``rang`` when each key last did, ``waiting`` when each that was held back will."""

    period_seconds: float
    rang: dict[str, float] = {}
    waiting: dict[str, float] = {}


def paced(pace: Pace, key: str, now: float) -> Pace:
    """Ask for a bell of ``key``: at once if its period is over, else when it is; never lost, never doubled."""
    at = max(now, pace.rang.get(key, -NEVER) + pace.period_seconds)
    return msgspec.structs.replace(pace, waiting=pace.waiting | {key: min(at, pace.waiting.get(key, NEVER))})


def taken(pace: Pace, now: float) -> tuple[frozenset[str], Pace]:
    """The keys whose time has come, and the pace without them; what is older than a period is forgotten."""
    due = frozenset(key for key, at in pace.waiting.items() if at <= now)
    waiting = {key: at for key, at in pace.waiting.items() if key not in due}
    recent = {key: at for key, at in pace.rang.items() if now - at < pace.period_seconds}
    return due, Pace(pace.period_seconds, recent | dict.fromkeys(due, now), waiting)


def next_at(pace: Pace) -> float:
    return min(pace.waiting.values(), default=NEVER)
