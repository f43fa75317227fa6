"""How long requests to an API server may take: an invocation of a function is not cut off while it waits for answers.

An invocation that Lambda ends at its timeout takes its process along, and its messages return minutes later. A process
serves one invocation at a time, in several threads.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

_NONE: Final = math.inf
# Of the monotonic clock.
_ends: float = _NONE


@contextmanager
def requests_end_in(seconds: float) -> Iterator[None]:
    """For the invocation within: requests are sent, and waited for, for so long."""
    global _ends
    _ends = time.monotonic() + seconds
    try:
        yield
    finally:
        _ends = _NONE


def seconds_left() -> float:
    """Infinite outside of an invocation; 0 or less when no request is to be sent any more."""
    return _ends - time.monotonic()
