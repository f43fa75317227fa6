"""The epoch of a forwarder, and whether another forwarder of its cluster writes heartbeats."""

import time
from collections.abc import Callable
from typing import Final

# A forwarder that has written no heartbeat for this long counts as gone (planning.heartbeat), and so does one whose
# heartbeat is as far in the future.
SILENT_SECONDS: Final = 25

#: The epoch of a heartbeat, and its time in epoch milliseconds.
type HeartbeatKey = tuple[int, int]
#: The epoch of a head, and its sequence.
type HeadKey = tuple[int, int]


class Epoch:
    """What the heads and heartbeats of this process name. Of two forwarders the one with the later epoch writes the
    cluster state.

    It is the time when the process started, until another forwarder with a later one is silent: one that is gone, that
    crashes again and again, or whose clock was wrong. Then this process takes the next epoch, and the other one, should
    it come back, is refused as long as this one writes. No clock of another machine is asked, since two whose clocks
    differ would take it from each other for ever: each heartbeat takes the place of the one before, so that a process
    that finds only its own is alone. It is counted from the other one's last head on: one that has just started, as in
    a rolling update, writes a head between two heartbeats of this one. Threads share it.
    """

    def __init__(self, number: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.number = number
        self._clock = clock
        self._last: HeartbeatKey | None = None
        self._refused_for: HeadKey | None = None
        self._alone_since = self._last_at = -float("inf")
        self._is_alone = False

    def heartbeat_written(self, written: HeartbeatKey, before: HeartbeatKey | None) -> None:
        """``before``: the heartbeat whose place it took, None = there was none."""
        now = self._clock()
        if not self._is_alone or before != self._last:
            self._alone_since = now
        self._is_alone, self._last, self._last_at = True, written, now

    def heartbeat_refused(self) -> None:
        """Another forwarder, of a later epoch, has written one."""
        self._is_alone = False

    def head_refused(self, other: HeadKey) -> None:
        """``other``: the head of a later epoch that is in the table. Of one not met before, its forwarder is there."""
        if other != self._refused_for:
            self._refused_for, self._is_alone = other, False

    def is_alone(self) -> bool:
        """Whether no other forwarder has written for SILENT_SECONDS, in which this one has."""
        is_known = self._is_alone and self._clock() - self._last_at <= SILENT_SECONDS
        return is_known and self._last_at - self._alone_since >= SILENT_SECONDS
