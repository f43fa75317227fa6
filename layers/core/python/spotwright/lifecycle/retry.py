"""How long to wait before a retry, and before the next look at a NodeClaim, in seconds."""

from datetime import timedelta
from typing import Final

# How often lifecycle looks at a launched claim until it is initialized, and at one that is being deleted.
TICK_SECONDS: Final = 3
# The same while the node or its pods have to do something, for which the forwarder rings: only a lost doorbell waits so
# long. Shorter than nominated pods are waited for: those whose nomination was cleared are nominated again before.
NODE_TICK_SECONDS: Final = 20
# How many ticks come at that rate before they grow longer, and after how many only the sweep looks at the claim.
TICKS_AT_FULL_RATE: Final = 100
MAXIMUM_TICKS: Final = 400
LONGEST_TICK_SECONDS: Final = 60
# From the first tick on they come at that rate for so long.
FULL_RATE: Final = timedelta(seconds=TICKS_AT_FULL_RATE * TICK_SECONDS)
# The ticks of a claim that is being deleted have numbers after this one: those from before end, and one chain goes on.
TERMINATION_TICKS: Final = 1000

# The number of a look that is taken once more, since the first one failed or met another change: no tick follows on it.
ONCE_MORE: Final = MAXIMUM_TICKS
# A tick that gets no answer counts for so many: while an API is away for long, ticks become slow within a minute, and
# within ten their messages come back instead.
FAILED_TICKS: Final = 50

FIRST_RETRY_SECONDS: Final = 2
LONGEST_RETRY_SECONDS: Final = 60


def retry_seconds(attempt: int) -> int:
    """2, 4, 8 … 60 for attempts 1, 2, 3 …"""
    return min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS << min(max(attempt - 1, 0), 10))


def next_tick(tick: int, *, deleting: bool, starts: bool) -> int:
    """The number of the tick that follows on tick number ``tick``, 0 = none does. ``starts``: a deletion does now."""
    if not deleting:
        return tick + 1 if tick else 0
    if tick > TERMINATION_TICKS:
        return tick + 1
    return TERMINATION_TICKS + 1 if starts else 0


def number_after_failure(number: int) -> int:
    """The number of the look that is taken in place of one that got no answer, 0 = its message is to come back."""
    if not number:
        return ONCE_MORE
    return 0 if is_past_last(number + FAILED_TICKS) else number + FAILED_TICKS


def is_past_last(tick: int) -> bool:
    """Whether a tick of that number is not sent any more."""
    return _count(tick) > MAXIMUM_TICKS


def _count(tick: int) -> int:
    return tick - TERMINATION_TICKS if tick > TERMINATION_TICKS else tick


def tick_seconds(tick: int) -> int:
    """3 for the first hundred ticks (five minutes), then longer by a tenth each, at most a minute."""
    count = _count(tick)
    if count <= TICKS_AT_FULL_RATE:
        return TICK_SECONDS
    return min(LONGEST_TICK_SECONDS, int(TICK_SECONDS * 1.1 ** min(count - TICKS_AT_FULL_RATE, 60)))
