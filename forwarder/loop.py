"""The forwarder's one thread of thought: news in, doorbells out, a heartbeat while both work."""

import logging
import queue
import threading
import time
from collections.abc import Callable

import msgspec

from forwarder.batching import EMPTY, NEVER, Batch, Pace, Window, due_at, next_at, paced, rung, taken
from forwarder.bells import PODS, Bell
from forwarder.following import News
from forwarder.memory import Memory
from spotwright.failures import Failure

# Bells other than for pods: long enough to fold a burst, short enough not to be felt.
SHORT = Window(idle_seconds=0.1, max_seconds=0.5)
POD_EVENT_SECONDS = 10.0
# Pods that still wait ring again after this long.
AGAIN_SECONDS = 10.0
HEARTBEAT_SECONDS = 10.0
# Doorbells that no queue took are tried again after this long.
RESEND_SECONDS = 5.0
LONGEST_WAIT_SECONDS = 1.0
NEWS_AT_ONCE = 1000

logger = logging.getLogger("forwarder")


class Counters(msgspec.Struct):
    """Since the start. ``turned``: when the loop last went round."""

    sent: dict[str, int] = {}
    failed: int = 0
    heartbeats: int = 0
    turned: float = 0.0


class Loop:
    """``clock``: monotonic seconds. ``send`` returns what could not be sent; ``beat`` is told
    whether this is the last sign, and may raise Failure."""

    def __init__(
        self,
        *,
        memory: Memory,
        window: Window,
        send: Callable[[frozenset[Bell]], frozenset[Bell]],
        beat: Callable[[bool], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.memory = memory
        self.news: queue.SimpleQueue[News] = queue.SimpleQueue()
        self.counters = Counters()
        self._window, self._send, self._beat, self._clock = window, send, beat, clock
        self._pods: Batch = EMPTY
        self._others: Batch = EMPTY
        self._pod_events = Pace(POD_EVENT_SECONDS)
        self._again_at = NEVER
        self._resend: frozenset[Bell] = frozenset()
        self._resend_at = NEVER
        self._beat_at = -NEVER

    def run(self, stopping: threading.Event) -> None:
        """Until ``stopping``; what waits by then is sent before this returns."""
        while not stopping.is_set():
            self.turn()
        self._drain(NEVER)
        # The functions look for themselves from now on, without waiting for signs to stay out.
        self._give_sign(leaving=True)

    def turn(self) -> None:
        """Wait for news at most until something is due, take it in, and send what is due."""
        self._listen()
        now = self._clock()
        self._drain(now)
        # Whoever cannot see or cannot send is no forwarder: the functions then look for themselves.
        if now >= self._beat_at and self.memory.fresh(now) and not self._resend:
            self._beat_at = now + HEARTBEAT_SECONDS
            self._give_sign(leaving=False)
        self.counters.turned = now

    def _listen(self) -> None:
        wait = min(LONGEST_WAIT_SECONDS, max(0.0, self._next() - self._clock()))
        try:
            self._hear(self.news.get(timeout=wait) if wait else self.news.get_nowait())
            for _ in range(NEWS_AT_ONCE):
                self._hear(self.news.get_nowait())
        except queue.Empty:
            return

    def _hear(self, news: News) -> None:
        now = self._clock()
        heard = self.memory.hear(news, now)
        self._pods = rung(self._pods, heard.bells & {PODS}, now)
        self._others = rung(self._others, heard.bells - {PODS}, now)
        for node in heard.pod_nodes:
            self._pod_events = paced(self._pod_events, node, now)

    def _next(self) -> float:
        return min(
            due_at(self._pods, self._window),
            due_at(self._others, SHORT),
            next_at(self._pod_events),
            self._again_at,
            self._resend_at,
        )

    def _drain(self, now: float) -> None:
        """Send what is due by ``now``."""
        due: frozenset[Bell] = frozenset()
        if due_at(self._pods, self._window) <= now or (now >= self._again_at and self.memory.waiting()):
            due, self._pods = due | {PODS}, EMPTY
        if due_at(self._others, SHORT) <= now:
            due, self._others = due | self._others.bells, EMPTY
        if now >= self._resend_at:
            due, self._resend, self._resend_at = due | self._resend, frozenset(), NEVER
        nodes, self._pod_events = taken(self._pod_events, now)
        self._ring(due | {Bell("lifecycle", "node", node) for node in nodes})
        self._plan_again(PODS in due)

    def _plan_again(self, rang: bool) -> None:
        """Pods that wait ring again 10 s after they last did; when none waits, nothing is planned."""
        if not self.memory.waiting():
            self._again_at = NEVER
        elif rang or self._again_at == NEVER:
            self._again_at = self._clock() + AGAIN_SECONDS

    def _ring(self, bells: frozenset[Bell]) -> None:
        if not bells:
            return
        failed = self._send(bells)
        for bell in bells - failed:
            self.counters.sent[bell.queue] = self.counters.sent.get(bell.queue, 0) + 1
        if failed:
            self.counters.failed += len(failed)
            self._resend |= failed
            self._resend_at = self._clock() + RESEND_SECONDS
        logger.info("rang", extra={"bells": [f"{one.kind} {one.key}".strip() for one in sorted(bells - failed)]})

    def _give_sign(self, *, leaving: bool) -> None:
        try:
            self._beat(leaving)
            self.counters.heartbeats += 1
        except Failure as failure:
            logger.warning("no heartbeat", extra={"reason": str(failure)})
