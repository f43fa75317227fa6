"""What the steps of one invocation read once for all of them.

Ten nodes that join or go are ten steps that ask for the same heartbeat and the same catalog. An invocation takes
seconds, and ``now`` is one for all its steps.
"""

from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from threading import Lock
from typing import Any, Final, cast

from spotwright.lifecycle.refused_evictions import RefusedEvictions
from spotwright.lifecycle.registration_health import RegistrationHealth
from spotwright.workflows.ports.state import StatePort


class _ReadOnce[Value]:
    """The answer of ``read``, asked for once. A failure is that of all who waited for it; whoever asks later asks
    again. Threads share it.
    """

    def __init__(self, read: Callable[[], Value]) -> None:
        self._read: Final = read
        self._answer: Future[Value] | None = None
        self._choosing: Final = Lock()

    def __call__(self) -> Value:
        with self._choosing:
            answer, reads = self._answer, self._answer is None
            if answer is None:
                answer = self._answer = Future()
        if reads:
            try:
                answer.set_result(self._read())
            except BaseException as failure:  # noqa: BLE001 - raised to all who wait, this one included
                self._answer = None
                answer.set_exception(failure)
        return answer.result()


class _State:
    """See StatePort."""

    def __init__(self, state: StatePort) -> None:
        self._state = state
        self.heartbeat = _ReadOnce(state.heartbeat)
        self.catalog_key = _ReadOnce(state.catalog_key)
        self.recent_catalog_key = _ReadOnce(state.recent_catalog_key)
        self.pods_alike = _ReadOnce(state.pods_alike)
        self._refused = _ReadOnce(state.refused_evictions)
        self._health: dict[str, _ReadOnce[RegistrationHealth | None]] = {}
        self._throttles: dict[tuple[str, int, int], _ReadOnce[int]] = {}

    def throttle(self, work: str, *, now: int, until: int) -> int:
        """One answer for all steps that ask alike: they ring the same doorbell, which is sent once."""
        ask = partial(self._state.throttle, work, now=now, until=until)
        return self._throttles.setdefault((work, now, until), _ReadOnce(ask))()

    def registration_health(self, nodepool_uid: str) -> RegistrationHealth | None:
        """Read anew once it was written, or could not be: a hundred nodes that join are mostly none of its news."""
        read = partial(self._state.registration_health, nodepool_uid)
        return self._health.setdefault(nodepool_uid, _ReadOnce(read))()

    def save_registration_health(self, health: RegistrationHealth) -> None:
        try:
            self._state.save_registration_health(health)
        finally:
            self._health.pop(health.nodepool_uid, None)

    def refused_evictions(self) -> tuple[RefusedEvictions, ...]:
        """Read anew once one was written, or could not be: mostly nothing is refused, while many nodes drain."""
        return self._refused()

    def save_refused_evictions(self, refused: RefusedEvictions) -> None:
        try:
            self._state.save_refused_evictions(refused)
        finally:
            self._refused = _ReadOnce(self._state.refused_evictions)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)


def reading_once(state: StatePort) -> StatePort:
    """The same for one invocation, in which the heartbeat, keys of the catalog, whether pods are alike, a NodePool's
    registration health and refused evictions are read once, and a throttle is asked once.
    """
    return cast("StatePort", _State(state))
