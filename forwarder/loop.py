"""The forwarder's loop: updates of watches in, doorbells out, a heartbeat while both work."""

import contextlib
import logging
import queue
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from typing import Protocol

import msgspec

from forwarder.batching import (
    EMPTY,
    NEVER,
    Batch,
    BatchWindow,
    KeyedThrottle,
    add_to_batch,
    due_at,
    hold_keys,
    leave_out,
    next_due_at,
    request_keys,
    take_due_keys,
)
from forwarder.capacity_buffers import CAPACITY_BUFFER
from forwarder.doorbells import PODS, QueuedDoorbell, node_doorbell
from forwarder.object_cache import ObjectCache
from forwarder.outgoing import DoorbellJobs, HeartbeatResult, Outgoing, SendResult
from forwarder.pods_doorbell import PodsDoorbell
from forwarder.state_jobs import FullBodyResult, StateResult
from forwarder.state_shipping import StateShipping
from forwarder.watcher import WatchUpdate
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line

# For doorbells other than for pods: long enough for a burst, short enough not to be noticed.
OTHER_WINDOW = BatchWindow(idle_seconds=0.1, max_seconds=0.5)
# A node that joins is written many times within seconds: its doorbell rings at once, then at most so often.
NODE_SECONDS = 1.0
# A node that is open, and so long after still not registered, or held, rings once more, and again after as long: the
# step that it rang for may have failed, and the next tick of its claim may be far. It comes within 20 seconds.
REGISTRATION_SECONDS = 5.0
REGISTRATION_RINGS = 3
POD_EVENT_SECONDS = 10.0
# Hardly anything waits for what their node's step writes about pods that came to it, while nodes may be joining for
# others that still wait: the steps come when no pod has been bound anywhere for a while. So a new node's step finds all
# that were planned for it, too; and a node that pods may come to is initialized then, in the same step.
BOUND_WINDOW = BatchWindow(idle_seconds=3.0, max_seconds=POD_EVENT_SECONDS)
# A drain takes five seconds, however soon its pods have stopped; then the end of a pod rings, at most so often. They
# are counted from the beginning of the second in which the node was tainted: times of conditions have whole seconds.
SHORTEST_DRAIN_SECONDS = 5.0
# By so much the clock of that step may be behind.
CLOCKS_DIFFER_SECONDS = 0.1
DRAIN_SECONDS = 3.0
# How often nodes and pods that move ring for a plan, which alone shows whether CapacityBuffers have their capacity.
ROOM_SECONDS = 5.0
HEARTBEAT_SECONDS = 10.0
# A queue that has not answered for this long counts as one that does not work.
ANSWER_SECONDS = 10.0
# When the forwarder stops, it waits this long for its last doorbells and its last heartbeat.
LEAVING_SECONDS = 10.0
LONGEST_WAIT_SECONDS = 1.0
UPDATES_AT_ONCE = 1000

# All CapacityBuffers are planned together.
_BUFFERS = "CapacityBuffers"

logger = logging.getLogger("forwarder")

type Update = WatchUpdate | FullBodyResult | StateResult | SendResult | HeartbeatResult


class OutgoingJobs(DoorbellJobs, Protocol):
    """What the loop uses of SendJobs; results come as updates."""

    def beat(self, *, leaving: bool) -> None: ...


class Counters(msgspec.Struct):
    """Since the start. ``last_turn_at``: when the loop last went round."""

    sent: dict[str, int] = {}
    failed: int = 0
    heartbeats: int = 0
    last_turn_at: float = 0.0


class Loop:
    """``clock``: monotonic seconds; ``wall``: those of the epoch. ``watch_scalables`` is told what CapacityBuffers
    refer to: kinds and namespaces.
    """

    def __init__(
        self,
        *,
        updates: "queue.SimpleQueue[Update]",
        cache: ObjectCache,
        shipping: StateShipping,
        window: BatchWindow,
        jobs: OutgoingJobs,
        watch_scalables: Callable[[frozenset[tuple[str, str]]], None],
        clock: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.cache = cache
        self.shipping = shipping
        self.updates = updates
        self.counters = Counters()
        self.outgoing = Outgoing(jobs)
        self._jobs, self._clock, self._wall = jobs, clock, wall
        self._watch_scalables = watch_scalables
        self.pods = PodsDoorbell(cache, shipping, window)
        self._others: Batch = EMPTY
        self._bound: Batch = EMPTY
        self._nodes = KeyedThrottle(NODE_SECONDS)
        self._unready = KeyedThrottle(NODE_SECONDS)
        # How often each of these nodes has rung for that.
        self._unready_rings: Counter[str] = Counter()
        self._pod_events = KeyedThrottle(POD_EVENT_SECONDS)
        self._drains = KeyedThrottle(DRAIN_SECONDS)
        self._room = KeyedThrottle(ROOM_SECONDS)
        self._beat_at = -NEVER
        self._is_beating = False

    def run(self, stopping: threading.Event) -> None:
        """Until ``stopping``; then collected doorbells are sent."""
        while not stopping.is_set():
            self.run_once()
        until = self._clock() + LEAVING_SECONDS
        self._drain(NEVER)
        self._await(lambda: self.outgoing.is_empty and not self._is_beating, until)
        # From now on the sweep polls, without waiting for heartbeats to be missed.
        self._write_heartbeat(leaving=True)
        self._await(lambda: not self._is_beating, until + LEAVING_SECONDS)

    def _await(self, is_done: Callable[[], bool], until: float) -> None:
        """Apply updates until it is so, or the time is over."""
        while not is_done() and self._clock() < until:
            with contextlib.suppress(queue.Empty):
                self.apply(self.updates.get(timeout=LONGEST_WAIT_SECONDS))

    def run_once(self) -> None:
        """Wait for updates until something is due at the latest, apply them, and send what is due."""
        self._receive()
        self.send_what_is_due()

    def send_what_is_due(self) -> None:
        """Doorbells, the cluster state, and the heartbeat."""
        now = self._clock()
        self.shipping.write_what_is_due(now)
        self._drain(now)
        # Without a synced cache, or while sending fails, there is no heartbeat, so that the sweep polls.
        if now >= self._beat_at and self.cache.is_synced(now) and self._is_sending_well(now) and not self._is_beating:
            self._beat_at = now + HEARTBEAT_SECONDS
            self._write_heartbeat(leaving=False)
        self.counters.last_turn_at = now

    def _is_sending_well(self, now: float) -> bool:
        since = self.outgoing.sending_since
        return not self.outgoing.is_failing and (since is None or now - since < ANSWER_SECONDS)

    def _receive(self) -> None:
        wait = min(LONGEST_WAIT_SECONDS, max(0.0, self.next_at() - self._clock()))
        try:
            self.apply(self.updates.get(timeout=wait) if wait else self.updates.get_nowait())
            for _ in range(UPDATES_AT_ONCE):
                self.apply(self.updates.get_nowait())
        except queue.Empty:
            return

    def apply(self, update: Update) -> None:
        """What an update rings is sent by ``send_what_is_due``."""
        now = self._clock()
        match update:
            case FullBodyResult():
                self.shipping.take_full(update, now)
            case StateResult():
                self.shipping.take_state(update, now)
                if update.changes_bytes is None:
                    self.pods.stop_waiting()
            case SendResult():
                self._take_sent(update, now)
            case HeartbeatResult():
                self._is_beating = False
                self.counters.heartbeats += update.written
            case _:
                self._apply_objects(update, now)

    def _apply_objects(self, update: WatchUpdate, now: float) -> None:
        cache_update = self.cache.apply(update, now)
        if update.kind == CAPACITY_BUFFER:
            self._watch_scalables(self.cache.buffers.scalable_kinds())
        self.pods.add(PODS in cache_update.doorbells, now)
        self._request(cache_update.doorbells - set(map(node_doorbell, cache_update.open_nodes)), now)
        self._await_steps(cache_update.unready_nodes, now)
        self._pod_events = request_keys(self._pod_events, cache_update.pod_event_nodes, now)
        bound = cache_update.bound_nodes
        if self.cache.has_pending_pods():
            bound |= cache_update.open_nodes
        else:
            self._nodes = request_keys(self._nodes, cache_update.open_nodes, now)
        self._bound = add_to_batch(self._bound, frozenset(map(node_doorbell, bound)), now)
        drained_at = now - self._wall() % 1 + SHORTEST_DRAIN_SECONDS + CLOCKS_DIFFER_SECONDS
        self._drains = hold_keys(self._drains, cache_update.closed_nodes, drained_at)
        self._drains = request_keys(self._drains, cache_update.drain_event_nodes, now)
        if cache_update.buffers_have_other_room:
            self._room = request_keys(self._room, {_BUFFERS}, now)

    def _await_steps(self, nodes: Collection[str], now: float) -> None:
        """These nodes are open, and still to be registered, or held, from now on: they ring if they stay so."""
        for node in nodes:
            self._unready_rings.pop(node, None)
        self._unready = request_keys(self._unready, nodes, now + REGISTRATION_SECONDS)

    def _request(self, doorbells: frozenset[QueuedDoorbell], now: float) -> None:
        """Those for pods have a window of their own."""
        nodes = {doorbell.key: doorbell for doorbell in doorbells if doorbell.kind == "node"}
        self._nodes = request_keys(self._nodes, nodes.keys(), now)
        self._others = add_to_batch(self._others, doorbells - {PODS, *nodes.values()}, now)

    def next_at(self) -> float:
        """When something is due if no update comes before."""
        return min(
            self.pods.next_at(),
            self.shipping.next_at(),
            due_at(self._others, OTHER_WINDOW),
            due_at(self._bound, BOUND_WINDOW),
            next_due_at(self._nodes),
            next_due_at(self._unready),
            next_due_at(self._pod_events),
            next_due_at(self._drains),
            next_due_at(self._room),
            self.outgoing.resend_at,
        )

    def _drain(self, now: float) -> None:
        """Send what is due by ``now``."""
        due: frozenset[QueuedDoorbell] = frozenset()
        heartbeat_first = False
        room, self._room = take_due_keys(self._room, now)
        self.pods.add(bool(room), now)
        waited = self.pods.take(now)
        if waited is not None:
            due |= {PODS}
            heartbeat_first = self._is_to_tell_late(waited, now)
        if due_at(self._bound, BOUND_WINDOW) <= now:
            self._pod_events = request_keys(self._pod_events, {bell.key for bell in self._bound.doorbells}, now)
            self._bound = EMPTY
        visited, self._pod_events = take_due_keys(self._pod_events, now)
        # Their steps see the pods that came as well.
        self._bound = leave_out(self._bound, frozenset(map(node_doorbell, visited)))
        drained, self._drains = take_due_keys(self._drains, now)
        self._nodes = request_keys(self._nodes, visited | drained | self._take_unready(now), now)
        nodes, self._nodes = take_due_keys(self._nodes, now)
        self._others = add_to_batch(self._others, frozenset(map(node_doorbell, nodes)), now)
        if due_at(self._others, OTHER_WINDOW) <= now:
            due, self._others = due | self._others.doorbells, EMPTY
        self.outgoing.retry(now)
        if due:
            self.outgoing.add(due, self._clock(), heartbeat_first=heartbeat_first)

    def _take_unready(self, now: float) -> frozenset[str]:
        """Nodes that still wait for their step; they ring some times, as long as they do."""
        due, self._unready = take_due_keys(self._unready, now)
        unready = self.cache.unready(due)
        self._unready_rings.update(unready)
        again = {node for node in unready if self._unready_rings[node] < REGISTRATION_RINGS}
        for node in due - again:
            self._unready_rings.pop(node, None)
        self._unready = request_keys(self._unready, again, now + REGISTRATION_SECONDS)
        return unready

    def _is_to_tell_late(self, seconds: float, now: float) -> bool:
        """Whether a heartbeat must say the number of a state that is not written yet: planners list for themselves.

        While a kind is not in sync there is none, here as ever: it would say that the last state is the newest.
        """
        if seconds:
            log_line(logger, log_lines.CLUSTER_STATE_LATE, seconds=round(seconds, 3))
        return bool(seconds) and self.cache.is_synced(now)

    def _take_sent(self, result: SendResult, now: float) -> None:
        sent = sorted(result.doorbells - result.failed)
        for doorbell in sent:
            self.counters.sent[doorbell.queue] = self.counters.sent.get(doorbell.queue, 0) + 1
        self.counters.failed += len(result.failed)
        self.counters.heartbeats += result.heartbeat_written
        log_line(logger, log_lines.SENT_DOORBELLS, doorbells=[f"{bell.kind} {bell.key}".strip() for bell in sent])
        if self.outgoing.take(result, now):
            self._request(self.cache.doorbells_of_all(), now)

    def _write_heartbeat(self, *, leaving: bool) -> None:
        self._is_beating = True
        self._jobs.beat(leaving=leaving)
