"""Sends doorbells and heartbeats in threads of their own, so that no update of a watch waits for SQS or DynamoDB."""

import contextlib
import logging
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

import msgspec

from forwarder.batching import NEVER
from forwarder.doorbells import PODS, QueuedDoorbell, pods_first
from forwarder.workers import start_worker
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line

# Doorbells that could not be sent are tried again after this long.
RESEND_SECONDS = 5.0
# Doorbells wait this long for a heartbeat that is to be written before them, which takes some milliseconds. While the
# table does not answer, planners read no state either.
HEARTBEAT_WAIT_SECONDS = 1.0
# Doorbells that are sent together: those that come meanwhile wait for them.
DOORBELLS_AT_ONCE = 200
# Doorbells that are kept while no queue takes them, some 10 MB; beyond that, once the queues are back, objects ring as
# at the start. A cluster of 5,000 nodes has a fifth as many objects that ring.
MAXIMUM_KEPT = 50_000

logger = logging.getLogger("forwarder")

type Doorbells = frozenset[QueuedDoorbell]


class SendResult(msgspec.Struct, frozen=True):
    """Doorbells that an attempt to send was about, and those of them that no queue took.

    ``heartbeat_written``: a heartbeat that they waited for was written before them.
    """

    doorbells: Doorbells
    failed: Doorbells
    heartbeat_written: bool = False


class HeartbeatResult(msgspec.Struct, frozen=True):
    """Whether a heartbeat was written."""

    written: bool


class SendJobs:
    """``send`` returns what could not be sent; ``beat`` writes a heartbeat (True = the last) with ``sequence``, the
    number of the newest cluster state, and may raise ApiError. Each has a thread; ``report`` takes the results.
    """

    def __init__(
        self,
        *,
        send: Callable[[Doorbells], Doorbells],
        beat: Callable[[bool, int], None],
        sequence: Callable[[], int],
        report: Callable[[SendResult | HeartbeatResult], None],
    ) -> None:
        self._send, self._beat, self._sequence, self._report = send, beat, sequence, report
        self._asking = threading.Lock()
        self._asked: Future[bool] | None = None
        self._doorbells = start_worker("doorbells")
        self._heartbeats = start_worker("heartbeats")

    def send(self, doorbells: Doorbells, *, heartbeat_first: bool) -> None:
        """Send doorbells; reports a SendResult. ``heartbeat_first``: planners must know the state's number before."""
        heartbeat = self._ask_for_heartbeat() if heartbeat_first else None
        self._doorbells.put(lambda: self._report(self._try_to_send(doorbells, heartbeat)))

    def beat(self, *, leaving: bool) -> None:
        """Write a heartbeat; reports a HeartbeatResult. One at a time, so that the state's number never goes back."""
        self._heartbeats.put(lambda: self._report(HeartbeatResult(self._try_to_beat(leaving))))

    def _ask_for_heartbeat(self) -> "Future[bool]":
        """A heartbeat that has not begun yet: however many ask while the table does not answer, one comes of it."""
        with self._asking:
            if self._asked is None:
                self._asked = Future()
                self._heartbeats.put(self._beat_for_those_who_asked)
            return self._asked

    def _beat_for_those_who_asked(self) -> None:
        with self._asking:
            asked, self._asked = self._asked, None
        if asked is not None:
            asked.set_result(self._try_to_beat(False))

    def _try_to_send(self, doorbells: Doorbells, heartbeat: "Future[bool] | None") -> SendResult:
        written = False
        with contextlib.suppress(TimeoutError):
            written = heartbeat is not None and heartbeat.result(HEARTBEAT_WAIT_SECONDS)
        try:
            return SendResult(doorbells, self._send(doorbells), written)
        except Exception as error:  # noqa: BLE001 whatever it is, the next attempt may succeed
            queues = ", ".join(sorted({doorbell.queue for doorbell in doorbells}))
            log_line(logger, log_lines.DOORBELLS_NOT_SENT, queue=queues, error=str(error))
            return SendResult(doorbells, doorbells, written)

    def _try_to_beat(self, leaving: bool) -> bool:
        try:
            self._beat(leaving, self._sequence())
        except Exception as error:  # noqa: BLE001 whatever it is, the next heartbeat may succeed
            log_line(logger, log_lines.HEARTBEAT_FAILED, error=str(error))
            return False
        return True


class DoorbellJobs(Protocol):
    """What Outgoing uses of SendJobs."""

    def send(self, doorbells: Doorbells, *, heartbeat_first: bool) -> None: ...


class Outgoing:
    """Doorbells on their way: each once, those for pods first, and a single attempt at a time.

    ``sending_since``: when the attempt under way began, None = there is none; ``resend_at``: when refused doorbells are
    sent again.
    """

    def __init__(self, jobs: DoorbellJobs) -> None:
        self.sending_since: float | None = None
        self.resend_at = NEVER
        self._jobs = jobs
        self._waiting: Doorbells = frozenset()
        self._refused: Doorbells = frozenset()
        self._heartbeat_first = False
        self._has_failed, self._is_overfull = False, False

    @property
    def is_failing(self) -> bool:
        """Whether there are doorbells that no queue took in the last attempt."""
        return self._has_failed or bool(self._refused)

    @property
    def kept(self) -> int:
        return len(self._waiting | self._refused)

    @property
    def is_empty(self) -> bool:
        return not self._waiting and self.sending_since is None

    def add(self, doorbells: Doorbells, now: float, *, heartbeat_first: bool = False) -> None:
        """Send these, after those that are being sent. ``heartbeat_first``: see SendJobs."""
        self._waiting |= doorbells
        self._heartbeat_first |= heartbeat_first
        self._limit()
        self._begin(now)

    def retry(self, now: float) -> None:
        """Refused doorbells are sent again when it is time."""
        if now >= self.resend_at:
            self._waiting, self._refused, self.resend_at = self._waiting | self._refused, frozenset(), NEVER
            self._begin(now)

    def take(self, result: SendResult, now: float) -> bool:
        """An attempt has ended. True = the queues take doorbells again after some were given up: all objects ring."""
        self.sending_since = None
        self._has_failed = bool(result.failed)
        if result.failed:
            self._refused |= result.failed
            self.resend_at = now + RESEND_SECONDS
            self._limit()
        is_back = self._is_overfull and result.failed != result.doorbells
        self._is_overfull = self._is_overfull and not is_back
        self._begin(now)
        return is_back

    def _begin(self, now: float) -> None:
        if self.sending_since is not None or not self._waiting:
            return
        ordered = sorted(self._waiting, key=pods_first)
        next_ones = frozenset(ordered[:DOORBELLS_AT_ONCE])
        heartbeat_first, self._heartbeat_first = self._heartbeat_first, False
        self._waiting -= next_ones
        self.sending_since = now
        self._jobs.send(next_ones, heartbeat_first=heartbeat_first)

    def _limit(self) -> None:
        """Memory does not grow while no queue answers: beyond the limit, doorbells are given up for one that stays."""
        if self.kept > MAXIMUM_KEPT:
            self._waiting, self._refused, self._is_overfull = frozenset({PODS}), frozenset(), True
