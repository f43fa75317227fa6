"""A world of which parts do not answer: what functions see of it, while everything else goes on."""

from collections.abc import Mapping
from typing import Any, Final

from spotwright.errors import ApiError

# Calls that never raise do nothing instead.
_NEVER_RAISES: Final = frozenset({"record_event"})


class FailingPort:
    """A port of which every call fails in the same way."""

    def __init__(self, port: Any, failure: ApiError) -> None:
        self._port, self._failure = port, failure

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._port, name)
        return self._refuse(name) if callable(attribute) else attribute

    def _refuse(self, name: str) -> Any:
        def refuse(*_: Any, **__: Any) -> None:
            if name not in _NEVER_RAISES:
                raise self._failure

        return refuse


class PortsWithOutages:
    """Ports by the names of their attributes; those that ``outages`` names fail, from the moment it names them."""

    def __init__(self, ports: Any, outages: Mapping[str, ApiError]) -> None:
        self._ports, self._outages = ports, outages

    def __getattr__(self, name: str) -> Any:
        port, failure = getattr(self._ports, name), self._outages.get(name)
        return port if failure is None else FailingPort(port, failure)
