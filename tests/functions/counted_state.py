"""How often a function asks DynamoDB."""

from typing import Any


class CountedState:
    """The state of a cluster; each call of it is one of DynamoDB."""

    def __init__(self, state: Any) -> None:
        self._state = state
        self.calls: list[str] = []

    def __getattr__(self, action: str) -> Any:
        self.calls.append(action)
        return getattr(self._state, action)
