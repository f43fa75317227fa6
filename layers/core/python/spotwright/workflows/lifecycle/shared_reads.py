"""What the steps of one invocation read once for all of them.

Ten nodes that join or go are ten steps that ask for the same heartbeat and the same catalog. An invocation takes
seconds, and ``now`` is one for all its steps.
"""

from collections.abc import Callable
from concurrent.futures import Future
from threading import Lock
from typing import Any, Final, cast

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

    def __getattr__(self, name: str) -> Any:
        return getattr(self._state, name)


def reading_once(state: StatePort) -> StatePort:
    """The same for one invocation, in which the heartbeat and the catalog's key are read once."""
    return cast("StatePort", _State(state))
