"""The forwarder's loop: updates of watches in, doorbells out, a heartbeat while both work."""

import logging
import queue
import threading
import time
from collections.abc import Callable

import msgspec

from forwarder.batching import (
    EMPTY,
    NEVER,
    Batch,
    BatchWindow,
    KeyedThrottle,
    add_to_batch,
    due_at,
    next_due_at,
    request_key,
    take_due_keys,
)
from forwarder.capacity_buffers import CAPACITY_BUFFER
from forwarder.doorbells import PODS, QueuedDoorbell
from forwarder.object_cache import ObjectCache
from forwarder.pods_doorbell import PodsDoorbell
from forwarder.state_jobs import FullBodyResult, StateResult
from forwarder.state_shipping import StateShipping
from forwarder.watcher import WatchUpdate
from spotwright.errors import ApiError
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line

# For doorbells other than for pods: long enough for a burst, short enough not to be noticed.
OTHER_WINDOW = BatchWindow(idle_seconds=0.1, max_seconds=0.5)
POD_EVENT_SECONDS = 10.0
HEARTBEAT_SECONDS = 10.0
# Doorbells that could not be sent are tried again after this long.
RESEND_SECONDS = 5.0
LONGEST_WAIT_SECONDS = 1.0
UPDATES_AT_ONCE = 1000

logger = logging.getLogger("forwarder")

type Update = WatchUpdate | FullBodyResult | StateResult


class Counters(msgspec.Struct):
    """Since the start. ``last_turn_at``: when the loop last went round."""

    sent: dict[str, int] = {}
    failed: int = 0
    heartbeats: int = 0
    last_turn_at: float = 0.0


class Loop:
    """``clock``: monotonic seconds. ``send`` returns what could not be sent. ``beat`` writes a heartbeat, with True the
    last one, which names the newest cluster state, and may raise ApiError. ``watch_scalables`` is told what
    CapacityBuffers refer to: kinds and namespaces.
    """

    def __init__(
        self,
        *,
        updates: "queue.SimpleQueue[Update]",
        cache: ObjectCache,
        shipping: StateShipping,
        window: BatchWindow,
        send: Callable[[frozenset[QueuedDoorbell]], frozenset[QueuedDoorbell]],
        beat: Callable[[bool, int], None],
        watch_scalables: Callable[[frozenset[tuple[str, str]]], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.cache = cache
        self.shipping = shipping
        self.updates = updates
        self.counters = Counters()
        self._send, self._beat, self._clock = send, beat, clock
        self._watch_scalables = watch_scalables
        self.pods = PodsDoorbell(cache, shipping, window)
        self._others: Batch = EMPTY
        self._pod_events = KeyedThrottle(POD_EVENT_SECONDS)
        self._resend: frozenset[QueuedDoorbell] = frozenset()
        self._resend_at = NEVER
        self._beat_at = -NEVER

    def run(self, stopping: threading.Event) -> None:
        """Until ``stopping``; then collected doorbells are sent."""
        while not stopping.is_set():
            self.run_once()
        self._drain(NEVER)
        # From now on the sweep polls, without waiting for heartbeats to be missed.
        self._write_heartbeat(leaving=True)

    def run_once(self) -> None:
        """Wait for updates until something is due at the latest, apply them, and send what is due."""
        self._receive()
        now = self._clock()
        self.shipping.write_what_is_due(now)
        self._drain(now)
        # Without a synced cache, or while sending fails, there is no heartbeat, so that the sweep polls.
        if now >= self._beat_at and self.cache.is_synced(now) and not self._resend:
            self._beat_at = now + HEARTBEAT_SECONDS
            self._write_heartbeat(leaving=False)
        self.counters.last_turn_at = now

    def _receive(self) -> None:
        wait = min(LONGEST_WAIT_SECONDS, max(0.0, self._next() - self._clock()))
        try:
            self._apply(self.updates.get(timeout=wait) if wait else self.updates.get_nowait())
            for _ in range(UPDATES_AT_ONCE):
                self._apply(self.updates.get_nowait())
        except queue.Empty:
            return

    def _apply(self, update: Update) -> None:
        now = self._clock()
        match update:
            case FullBodyResult():
                self.shipping.take_full(update, now)
            case StateResult():
                self.shipping.take_state(update, now)
                if update.changes_bytes is None:
                    self.pods.stop_waiting()
            case _:
                self._apply_objects(update, now)

    def _apply_objects(self, update: WatchUpdate, now: float) -> None:
        cache_update = self.cache.apply(update, now)
        if update.kind == CAPACITY_BUFFER:
            self._watch_scalables(self.cache.buffers.scalable_kinds())
        self.pods.add(PODS in cache_update.doorbells, now)
        self._others = add_to_batch(self._others, cache_update.doorbells - {PODS}, now)
        for node in cache_update.pod_event_nodes:
            self._pod_events = request_key(self._pod_events, node, now)

    def _next(self) -> float:
        return min(
            self.pods.next_at(),
            self.shipping.next_at(),
            due_at(self._others, OTHER_WINDOW),
            next_due_at(self._pod_events),
            self._resend_at,
        )

    def _drain(self, now: float) -> None:
        """Send what is due by ``now``."""
        due: frozenset[QueuedDoorbell] = frozenset()
        waited = self.pods.take(now)
        if waited is not None:
            due |= {PODS}
            self._tell_late(waited, now)
        if due_at(self._others, OTHER_WINDOW) <= now:
            due, self._others = due | self._others.doorbells, EMPTY
        if now >= self._resend_at:
            due, self._resend, self._resend_at = due | self._resend, frozenset(), NEVER
        nodes, self._pod_events = take_due_keys(self._pod_events, now)
        self._ring(due | {QueuedDoorbell("lifecycle", "node", node) for node in nodes})

    def _tell_late(self, seconds: float, now: float) -> None:
        """A heartbeat with the number of a state that is not written yet: planners list for themselves.

        While a kind is not in sync there is none, here as ever: it would say that the last state is the newest.
        """
        if seconds:
            log_line(logger, log_lines.CLUSTER_STATE_LATE, seconds=round(seconds, 3))
            if self.cache.is_synced(now):
                self._write_heartbeat(leaving=False)

    def _ring(self, bells: frozenset[QueuedDoorbell]) -> None:
        if not bells:
            return
        failed = self._send(bells)
        for bell in bells - failed:
            self.counters.sent[bell.queue] = self.counters.sent.get(bell.queue, 0) + 1
        if failed:
            self.counters.failed += len(failed)
            self._resend |= failed
            self._resend_at = self._clock() + RESEND_SECONDS
        sent = [f"{doorbell.kind} {doorbell.key}".strip() for doorbell in sorted(bells - failed)]
        log_line(logger, log_lines.SENT_DOORBELLS, doorbells=sent)

    def _write_heartbeat(self, *, leaving: bool) -> None:
        try:
            self._beat(leaving, self.shipping.sequence)
            self.counters.heartbeats += 1
        except ApiError as failure:
            log_line(logger, log_lines.HEARTBEAT_FAILED, error=str(failure))
