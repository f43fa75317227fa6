"""Beside a planner at work no second one begins: a note with an end in the cluster's row, and no lock.

The note spares a second reading of the whole cluster. Its commit alone settles whether a decision becomes true, so that
nothing depends on the note but time: who dies leaves it behind until its end, which is that of the invocation.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from typing import Final

from spotwright.errors import ApiError
from spotwright.workflows.planning.time_budget import SecondsLeft
from spotwright.workflows.ports.rows import ClusterRow, epoch_ms
from spotwright.workflows.ports.state import WRONG_CLOCK_MS, StatePort

# The timeout of the functions that plan, for a caller that knows of no end.
MAXIMUM_SECONDS: Final = 60


def begin(
    state: StatePort, work: str, *, now: datetime, seconds_left: SecondsLeft, maximum_seconds: float = MAXIMUM_SECONDS
) -> int:
    """The end of the own note, epoch milliseconds, which ``state.end_planning`` takes back; 0 while another plans.

    ``work``: see ``StatePort.begin_planning``.
    """
    seconds = min(maximum_seconds, seconds_left()) if seconds_left is not None else maximum_seconds
    now_ms = epoch_ms(now)
    until = now_ms + max(1, int(seconds * 1000))
    return until if state.begin_planning(work, now=now_ms, until=until) else 0


def is_noted(row: ClusterRow, *, now: datetime) -> bool:
    """Whether pods are planned for just now. A note of a clock that is wrong says nothing."""
    return 0 < row.planner_until - epoch_ms(now) <= MAXIMUM_SECONDS * 1000 + WRONG_CLOCK_MS


@contextmanager
def noted(
    state: StatePort, work: str, *, now: datetime, seconds_left: SecondsLeft, maximum_seconds: float = MAXIMUM_SECONDS
) -> Iterator[bool]:
    """Around planning: True with an own note, False while another planner is at work."""
    until = begin(state, work, now=now, seconds_left=seconds_left, maximum_seconds=maximum_seconds)
    try:
        yield bool(until)
    except ApiError:
        if until:
            with suppress(ApiError):
                state.end_planning(work, until=until)
        raise
    if until:
        state.end_planning(work, until=until)
