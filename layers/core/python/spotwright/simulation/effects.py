"""Everything the fakes were made to change, in one order; and the faults that can be put between the changes."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from threading import RLock

import msgspec

from spotwright.errors import ApiError
from spotwright.simulation.clock import Clock


class Crash(BaseException):
    """The process died here. Not an Exception: nothing may handle it."""


class Effect(msgspec.Struct, frozen=True):
    """One change. ``port``: cluster | ec2 | state | blobs | doorbells; ``subject``: whom it concerned."""

    number: int
    at: datetime
    port: str
    action: str
    subject: str


class Fault(msgspec.Struct):
    """An error to raise at a port's action, ``times`` times; ``after_change``: only after the change was made."""

    port: str
    action: str
    error: ApiError
    times: int = 1
    after_change: bool = False


class Effects:
    """The ledger of changes. Reads are not in it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._crash_after: int | None = None
        self._crash_at: tuple[str, str] | None = None
        self._interjected: tuple[int, Callable[[], None]] | None = None
        self._faults: list[Fault] = []
        #: Changes that are made side by side happen one after the other, as in any store.
        self.changing = RLock()
        self.log: list[Effect] = []
        # (port, action) → how often it was read.
        self.reads: Counter[tuple[str, str]] = Counter()

    def crash_after(self, changes: int | None) -> None:
        """Die right after this many further changes; None = do not."""
        self._crash_after = None if changes is None else len(self.log) + changes

    def crash_at(self, port: str, action: str) -> None:
        """Die right after the next change by that action."""
        self._crash_at = (port, action)

    def interject(self, changes: int, actions: Callable[[], None]) -> None:
        """After this many further changes let others act, in the middle of whoever made the last one."""
        self._interjected = (len(self.log) + changes, actions)

    def inject(self, fault: Fault) -> None:
        self._faults.append(fault)

    def select(self, port: str, action: str) -> tuple[Effect, ...]:
        """The changes made by one action, in order; the action may be ``*``."""
        return tuple(effect for effect in self.log if effect.port == port and action in (effect.action, "*"))

    @contextmanager
    def record(self, port: str, action: str, subject: str = "") -> Iterator[None]:
        """Around a change: faults before it, the record of it, faults and the crash after it."""
        self._raise(port, action, acted=False)
        with self.changing:
            yield
            self.log.append(Effect(len(self.log) + 1, self._clock.now(), port, action, subject))
            crashes, interjected = self._take_crash(port, action), self._take_interjected()
        if crashes:
            raise Crash(f"after {port}.{action} {subject}")
        interjected()
        self._raise(port, action, acted=True)

    def _take_crash(self, port: str, action: str) -> bool:
        """Whether the process dies now; it dies once."""
        reached = self._crash_after is not None and len(self.log) >= self._crash_after
        if not reached and self._crash_at != (port, action):
            return False
        self._crash_after = self._crash_at = None
        return True

    def _take_interjected(self) -> Callable[[], None]:
        """What others do now, once."""
        if self._interjected is None or len(self.log) < self._interjected[0]:
            return lambda: None
        actions, self._interjected = self._interjected[1], None
        return actions

    def before_read(self, port: str, action: str) -> None:
        """Before a read: it is counted, and may fail."""
        with self.changing:
            self.reads[port, action] += 1
        self._raise(port, action, acted=False)

    def _raise(self, port: str, action: str, *, acted: bool) -> None:
        with self.changing:
            for fault in self._faults:
                if (fault.port, fault.action, fault.after_change) == (port, action, acted) and fault.times > 0:
                    fault.times -= 1
                    raise fault.error
