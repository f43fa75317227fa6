"""How long to wait before a retry, and before the next look at a NodeClaim, in seconds."""

from typing import Final

# How often lifecycle looks at a launched claim until it is initialized, and at a terminating instance.
TICK_SECONDS: Final = 3
# The same while the node has to do something, for which the forwarder rings: only a lost doorbell waits so long.
NODE_TICK_SECONDS: Final = 15
# How many ticks come at that rate before they grow longer, and after how many only the sweep looks at the claim.
TICKS_AT_FULL_RATE: Final = 100
MAXIMUM_TICKS: Final = 400
LONGEST_TICK_SECONDS: Final = 60

FIRST_RETRY_SECONDS: Final = 2
LONGEST_RETRY_SECONDS: Final = 60


def retry_seconds(attempt: int) -> int:
    """2, 4, 8 … 60 for attempts 1, 2, 3 …"""
    return min(LONGEST_RETRY_SECONDS, FIRST_RETRY_SECONDS << min(max(attempt - 1, 0), 10))


def tick_seconds(tick: int) -> int:
    """3 for the first hundred ticks (five minutes), then longer by a tenth each, at most a minute."""
    if tick <= TICKS_AT_FULL_RATE:
        return TICK_SECONDS
    return min(LONGEST_TICK_SECONDS, int(TICK_SECONDS * 1.1 ** min(tick - TICKS_AT_FULL_RATE, 60)))
