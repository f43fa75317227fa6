"""The breaker stops disruption that is too fast, whatever the reason: a guard against mistakes of Spotwright itself.

It counts nodes that are disrupted by choice. Budgets limit how many nodes are disrupted at once, the breaker how many
within ten minutes. Interrupted and expired nodes are neither counted nor stopped. See docs/adr/0007.
"""

from typing import Final

import msgspec

WINDOW_MS: Final = 10 * 60 * 1000
# How long the breaker stays open; twice as long each time it opens again within RECOVERY_MS of its closing.
OPEN_MS: Final = 15 * 60 * 1000
MAX_DOUBLINGS: Final = 4
RECOVERY_MS: Final = 60 * 60 * 1000
# So many nodes may always go: a small cluster is often emptied as a whole.
MIN_NODES: Final = 20
# Why a node waits that could go otherwise.
NOT_ADMITTED: Final = "the breaker admits no more nodes now (setting BREAKER_PERCENT)"


class Batch(msgspec.Struct, frozen=True):
    """Nodes of a proposal that the breaker admitted.

    ``admitted_at_ms``: epoch milliseconds; ``total_nodes``: number of managed nodes at that time.
    """

    id: str
    admitted_at_ms: int = msgspec.field(name="at")
    nodes: int
    total_nodes: int = msgspec.field(name="total")


class Breaker(msgspec.Struct, frozen=True):
    """``batches``: of the last ten minutes, oldest first. ``open_until_ms``: epoch milliseconds, 0 = never open.

    ``trips``: how often it opened in a row. ``reason``: why it opened last. ``version``: optimistic lock, 0 = no row.
    """

    batches: tuple[Batch, ...] = ()
    open_until_ms: int = msgspec.field(default=0, name="open_until")
    trips: int = 0
    reason: str = msgspec.field(default="", name="why")
    version: int = 0
    schema: int = 1


class Admission(msgspec.Struct, frozen=True):
    """How many nodes may be disrupted now, and the breaker to store before that."""

    nodes: int
    breaker: Breaker


def is_open(breaker: Breaker, now: int) -> bool:
    """``now``: epoch milliseconds."""
    return now < breaker.open_until_ms


def admit(breaker: Breaker, id: str, wanted: int, *, total: int, percent: int, now: int) -> Admission:
    """Admit ``wanted`` nodes of the proposal ``id``, or as many as the window has left, and open then.

    A proposal that is admitted again counts once. Within the window ``percent`` of the nodes may be disrupted.
    """
    if is_open(breaker, now):
        return Admission(0, breaker)
    recent = tuple(batch for batch in _recent(breaker, now) if batch.id != id)
    limit = _limit(recent, total, percent)
    nodes = min(wanted, max(0, limit - sum(batch.nodes for batch in recent)))
    after = msgspec.structs.replace(breaker, batches=(*recent, Batch(id, now, nodes, total)) if nodes else recent)
    return Admission(nodes, after if nodes == wanted else _open(after, limit, now))


def remaining(breaker: Breaker, *, total: int, percent: int, now: int) -> int:
    """How many nodes may be disrupted now without opening the breaker."""
    if is_open(breaker, now):
        return 0
    recent = _recent(breaker, now)
    return max(0, _limit(recent, total, percent) - sum(batch.nodes for batch in recent))


def _recent(breaker: Breaker, now: int) -> tuple[Batch, ...]:
    return tuple(batch for batch in breaker.batches if now - batch.admitted_at_ms < WINDOW_MS)


def _limit(recent: tuple[Batch, ...], total: int, percent: int) -> int:
    return max_nodes(max((total, *(batch.total_nodes for batch in recent))), percent)


def max_nodes(total: int, percent: int) -> int:
    """How many nodes may be disrupted within the window; a percentage is rounded up."""
    return max(MIN_NODES, -(-total * percent // 100))


def _open(breaker: Breaker, limit: int, now: int) -> Breaker:
    trips = breaker.trips if now - breaker.open_until_ms < RECOVERY_MS else 0
    why = f"more than {limit} nodes would have been disrupted within {WINDOW_MS // 60_000} minutes"
    until = now + OPEN_MS * 2 ** min(trips, MAX_DOUBLINGS)
    return msgspec.structs.replace(breaker, open_until_ms=until, trips=trips + 1, reason=why)
