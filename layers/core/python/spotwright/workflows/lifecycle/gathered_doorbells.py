"""The doorbells that the steps of one invocation ring, sent together when they are done.

Ten nodes that join are ten steps with two or three doorbells each, many of them the same ones: sent alone, each would
be a call. What somebody waits for is not held back: launches, decisions, notices and requests for planning.
"""

from collections.abc import Sequence
from threading import Lock
from typing import Final

from spotwright.errors import ApiError
from spotwright.workflows.ports.doorbells import Doorbell, DoorbellPort

URGENT_QUEUES: Final = frozenset({"notices", "provision"})
URGENT_KINDS: Final = frozenset({"launch", "decision"})


class GatheredDoorbells:
    """See DoorbellPort. Doorbells that are not urgent wait for ``send``; equal ones are sent once. Threads share it."""

    def __init__(self, doorbells: DoorbellPort) -> None:
        self._doorbells = doorbells
        self._gathering = Lock()
        # By queue and delay, in the order in which they were rung.
        self._waiting: dict[tuple[str, int], dict[Doorbell, None]] = {}

    def ring(self, queue: str, bells: Sequence[Doorbell], *, delay_seconds: int = 0) -> None:
        if queue in URGENT_QUEUES or any(bell.kind in URGENT_KINDS for bell in bells):
            self._doorbells.ring(queue, bells, delay_seconds=delay_seconds)
        elif bells:
            with self._gathering:
                self._waiting.setdefault((queue, delay_seconds), {}).update(dict.fromkeys(bells))

    def send(self) -> None:
        """Ring for what waits. A queue that fails does not keep the others; the first failure is raised at the end."""
        failures = []
        for (queue, delay_seconds), bells in self._waiting.items():
            try:
                self._doorbells.ring(queue, tuple(bells), delay_seconds=delay_seconds)
            except ApiError as failure:
                failures.append(failure)
        self._waiting.clear()
        if failures:
            raise failures[0]
