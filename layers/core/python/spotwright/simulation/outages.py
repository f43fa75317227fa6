"""A world of which parts do not answer: what functions see of it while the rest of it goes on."""

from typing import TYPE_CHECKING, Any, Final

from spotwright.errors import ApiError

if TYPE_CHECKING:
    from spotwright.simulation.world import World

# What promises never to raise does nothing instead.
_NEVER_RAISES: Final = frozenset({"record_event"})


class FailingPort:
    """A port of which every call fails in the same way."""

    def __init__(self, port: Any, failure: ApiError) -> None:
        self._port, self._failure = port, failure

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._port, name)
        return self._refusal(name) if callable(found) else found

    def _refusal(self, name: str) -> Any:
        def refuse(*_: Any, **__: Any) -> None:
            if name not in _NEVER_RAISES:
                raise self._failure

        return refuse


class PortsWithOutages:
    """The ports of a world as its functions reach them: those in ``World.outages`` are silent."""

    def __init__(self, world: "World") -> None:
        self._world = world

    def __getattr__(self, name: str) -> Any:
        found, failure = getattr(self._world, name), self._world.outages.get(name)
        return found if failure is None else FailingPort(found, failure)
