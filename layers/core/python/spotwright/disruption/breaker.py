"""Stops disruption that goes faster than it should, whatever the reason: the last guard against our own mistakes.

Counted are nodes that we take away by choice; budgets say how many at once, this says how many in a while. Interrupted
and expired nodes are neither counted nor held back. See docs/adr/0007.
"""

from typing import Final

import msgspec

WINDOW_MS: Final = 10 * 60 * 1000
# How long it stays open the first time; each further time within RECOVERY_MS of its closing twice as long.
OPEN_MS: Final = 15 * 60 * 1000
MAX_DOUBLINGS: Final = 4
RECOVERY_MS: Final = 60 * 60 * 1000
# Small clusters are emptied whole in ordinary life.
MIN_NODES: Final = 20


class Batch(msgspec.Struct, frozen=True):
    """Nodes of one proposal that were let go.

    ``admitted_at_ms``: epoch milliseconds; ``total_nodes``: nodes of ours there were then.
    """

    id: str
    admitted_at_ms: int = msgspec.field(name="at")
    nodes: int
    total_nodes: int = msgspec.field(name="total")


class Breaker(msgspec.Struct, frozen=True):
    """``batches``: of the window, oldest first. ``open_until_ms``: epoch milliseconds, 0 = never was open.

    ``trips``: how often it opened in a row. ``reason``: what it last opened for. ``version``: optimistic lock, 0 = no
    row.
    """

    batches: tuple[Batch, ...] = ()
    open_until_ms: int = msgspec.field(default=0, name="open_until")
    trips: int = 0
    reason: str = msgspec.field(default="", name="why")
    version: int = 0
    schema: int = 1


class Admission(msgspec.Struct, frozen=True):
    """How many nodes may go now, and the breaker to store before they do."""

    nodes: int
    breaker: Breaker


def is_open(breaker: Breaker, now: int) -> bool:
    """``now``: epoch milliseconds."""
    return now < breaker.open_until_ms


def admit(breaker: Breaker, id: str, wanted: int, *, total: int, percent: int, now: int) -> Admission:
    """Let ``wanted`` nodes of the proposal ``id`` go, or as many as the window has left; then it opens.

    A proposal that is admitted again counts once. ``percent`` of the nodes there were may go within the window.
    """
    if is_open(breaker, now):
        return Admission(0, breaker)
    recent = tuple(batch for batch in breaker.batches if now - batch.admitted_at_ms < WINDOW_MS and batch.id != id)
    most = max_nodes(max((total, *(batch.total_nodes for batch in recent))), percent)
    left = max(0, most - sum(batch.nodes for batch in recent))
    nodes = min(wanted, left)
    after = msgspec.structs.replace(breaker, batches=(*recent, Batch(id, now, nodes, total)) if nodes else recent)
    return Admission(nodes, after if nodes == wanted else _opened(after, most, now))


def max_nodes(total: int, percent: int) -> int:
    """Nodes that may go within the window; a share is rounded up."""
    return max(MIN_NODES, -(-total * percent // 100))


def _opened(breaker: Breaker, most: int, now: int) -> Breaker:
    trips = breaker.trips if now - breaker.open_until_ms < RECOVERY_MS else 0
    why = f"more than {most} nodes would have been disrupted within {WINDOW_MS // 60_000} minutes"
    until = now + OPEN_MS * 2 ** min(trips, MAX_DOUBLINGS)
    return msgspec.structs.replace(breaker, open_until_ms=until, trips=trips + 1, reason=why)
