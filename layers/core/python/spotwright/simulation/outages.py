"""Outages: ports that fail for the functions, while users and machines go on."""

from collections.abc import Mapping
from typing import Any, Final

from spotwright.errors import ApiError

# Calls that do nothing instead of raising.
_NEVER_RAISES: Final = frozenset({"record_event"})
# Ports that are a part of another one.
_SAME_AS: Final = {"events": "cluster"}


class FailingPort:
    """A port whose calls all fail with the same error."""

    def __init__(self, port: Any, failure: ApiError) -> None:
        self._port, self._failure = port, failure

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._port, name)
        return self._refuse(name) if callable(attribute) else attribute

    def _refuse(self, name: str) -> Any:
        def fail(*_: Any, **__: Any) -> None:
            if name not in _NEVER_RAISES:
                # Raised again and again, it would keep every frame that it ever went through.
                raise self._failure.with_traceback(None)

        return fail


class PortsWithOutages:
    """Ports as attributes; a port fails while ``outages`` has its name."""

    def __init__(self, ports: Any, outages: Mapping[str, ApiError]) -> None:
        self._ports, self._outages = ports, outages

    def __getattr__(self, name: str) -> Any:
        port, failure = getattr(self._ports, name), self._outages.get(_SAME_AS.get(name, name))
        return port if failure is None else FailingPort(port, failure)
