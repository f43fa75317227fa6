"""What the steps of one invocation read once for all of them.

Ten nodes that join or go are ten steps that ask for the same heartbeat and the same catalog. An invocation takes
seconds, and ``now`` is one for all its steps.
"""

from collections.abc import Callable
from threading import Lock
from typing import Any, Final, cast

from spotwright.workflows.ports.state import StatePort


class _ReadOnce[Value]:
    """The answer of ``read``, asked for once; where that fails, it is asked for again. Threads share it."""

    def __init__(self, read: Callable[[], Value]) -> None:
        self._read: Final = read
        self._answers: Final[list[Value]] = []
        self._reading: Final = Lock()

    def __call__(self) -> Value:
        with self._reading:
            if not self._answers:
                self._answers.append(self._read())
            return self._answers[0]


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
