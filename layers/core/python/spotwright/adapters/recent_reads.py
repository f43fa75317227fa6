"""Values that may be some seconds old: read once for the invocations that one process handles in that time."""

import time
from collections.abc import Callable
from typing import Final


class RecentRead[Value]:
    """The answer of ``read``, which is asked for again when it is ``seconds`` old; 0 = each time. A failure is raised
    and not kept. Threads share it, and two that come together may both read.

    By the clock that goes on while Lambda has stopped the process; where that clock is set back, it is read again.
    """

    def __init__(self, read: Callable[[], Value], seconds: float, clock: Callable[[], float] = time.time) -> None:
        self._read: Final = read
        self._seconds: Final = seconds
        self._clock: Final = clock
        self._answer: tuple[float, Value] | None = None

    def __call__(self) -> Value:
        answer, now = self._answer, self._clock()
        if answer is None or not 0 <= now - answer[0] < self._seconds:
            # The value is as old as the question.
            answer = self._answer = now, self._read()
        return answer[1]
