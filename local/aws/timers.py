"""Things that happen later, by the clock that a test can stop: one thread, a heap of deadlines."""

import heapq
import itertools
import sys
import threading
import traceback
from collections.abc import Callable

from local.aws.emulator import Emulator


class Timers:
    """`start(seconds, act)` runs `act` once, that much later, in this part's own thread."""

    def __init__(self, emulator: Emulator) -> None:
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()
        self._changed = threading.Condition()
        self._now = emulator.strictness.now
        emulator.run_in_background("timers", self._run)

    def start(self, seconds: float, act: Callable[[], None]) -> None:
        with self._changed:
            heapq.heappush(self._heap, (self._now() + seconds, next(self._order), act))
            self._changed.notify()

    def _run(self, stop: threading.Event) -> None:
        while not stop.is_set():
            act = self._next()
            if act is not None:
                _attempt(act)

    def _next(self) -> Callable[[], None] | None:
        """The next act that is due, or None after at most 0.2 s."""
        with self._changed:
            wait = self._heap[0][0] - self._now() if self._heap else 0.2
            if wait > 0:
                self._changed.wait(min(wait, 0.2))
                return None
            return heapq.heappop(self._heap)[2]


def _attempt(act: Callable[[], None]) -> None:
    try:
        act()
    except Exception:  # noqa: BLE001 - one failed timer must not stop the others
        traceback.print_exc(file=sys.stderr)
