"""How long requests may take: an invocation of a function is not cut off while it waits for answers.

An invocation that Lambda ends at its timeout takes its process along, and its messages return minutes later. A process
serves one invocation at a time, in several threads.
"""

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Timer
from typing import Final, Protocol

# So long before the end the API server is not asked any more: for rows, doorbells that go out and log lines.
CLOSING_SECONDS: Final = 3
_NONE: Final = math.inf
# Of the monotonic clock: when Lambda ends the invocation.
_ends: float = _NONE


class Response(Protocol):
    """Of urllib3."""

    def shutdown(self) -> None: ...


# Whose bodies are being read.
_read: Final = set[Response]()


@contextmanager
def invocation_ends_in(seconds: float) -> Iterator[None]:
    """For the invocation within: requests are sent, and waited for, until shortly before."""
    global _ends
    _ends = time.monotonic() + seconds
    timer = Timer(seconds_left(), _end_reading)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        _ends = _NONE


@contextmanager
def reading(response: Response) -> Iterator[None]:
    """The body of an answer of the API server is read within. It ends early when no time is left: a timeout counts
    from one part to the next, and a body may come byte by byte."""
    _read.add(response)
    try:
        if seconds_left() <= 0:
            # The head came at the last moment: nobody may end the body any more.
            _end(response)
        yield
    finally:
        _read.discard(response)


def seconds_left(before_seconds: float = CLOSING_SECONDS) -> float:
    """Until so long before the end, of which the default is for the API server; 0 or less when no request is to be sent
    any more, infinite outside of an invocation."""
    return _ends - time.monotonic() - before_seconds


def _end_reading() -> None:
    for response in tuple(_read):
        _end(response)


def _end(response: Response) -> None:
    with suppress(OSError, RuntimeError, ValueError):  # read to its end meanwhile
        response.shutdown()
