"""The Events that the steps of one invocation record of what is done, written when all else is done.

Nothing waits for them, and each is a request: between two evictions it would keep the next pod, and between a drain and
TerminateInstances an instance that nobody needs.
"""

from datetime import datetime
from threading import Lock
from typing import Final

from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.telemetry.rows import Event
from spotwright.workflows.parallel import in_parallel
from spotwright.workflows.planning.time_budget import LAST_SECONDS, SecondsLeft
from spotwright.workflows.ports.cluster import EventPort

# With less time left they are recorded at once: a step that begins late may take all of it, and shortly before its end
# nothing is sent any more.
LATE_SECONDS: Final = 2 * LAST_SECONDS


class GatheredEvents:
    """See EventPort. Events wait for ``write``, unless the invocation ends soon. Threads share it."""

    def __init__(self, events: EventPort, seconds_left: SecondsLeft = None) -> None:
        self._events, self._seconds_left = events, seconds_left
        self._gathering = Lock()
        self._waiting: list[tuple[str, ObjectMeta, Event, datetime]] = []

    def record_event(self, kind: str, metadata: ObjectMeta, event: Event, *, now: datetime) -> None:
        with self._gathering:
            self._waiting.append((kind, metadata, event, now))
        if self._seconds_left is not None and self._seconds_left() < LATE_SECONDS:
            self.write()

    def write(self) -> None:
        """Record what waits, side by side. Never raises, as ``record_event``."""
        with self._gathering:
            waiting, self._waiting = self._waiting, []
        in_parallel(lambda one: self._events.record_event(one[0], one[1], one[2], now=one[3]), waiting)
