"""Every call of a function to a port: faults act on it, and invariants look at it."""

from collections.abc import Callable, Mapping, Sequence
from itertools import batched
from typing import Any, Final

import msgspec

# What changes something outside the function that calls it; everything else is a read.
CHANGES: Final[Mapping[str, frozenset[str]]] = {
    "cluster": frozenset(
        {
            "create_nodeclaim", "patch_metadata", "patch_nodeclaim", "patch_status", "set_conditions",
            "write_nodeclaim_status", "set_taints", "delete", "evict", "nominate", "clear_nominations", "record_event",
        }
    ),
    "ec2": frozenset({"create_fleet", "ensure_launch_template", "terminate", "tag"}),
    "state": frozenset(
        {
            "request_planning", "begin_planning", "end_planning", "throttle", "mark_served", "commit",
            "mark_acted", "create", "save", "create_together", "save_together",
            "save_offering_health", "save_call_rate", "save_call_rates", "save_breaker",
            "save_registration_health", "save_refused_evictions",
        }
    ),
    "blobs": frozenset({"put"}),
    "doorbells": frozenset({"ring"}),
    "cluster_state": frozenset(),
}  # fmt: skip
# SQS takes so many messages in a call.
MESSAGES_PER_CALL: Final = 10


class Call(msgspec.Struct, frozen=True):
    """A call of a function: ``port``.``action`` with its arguments."""

    port: str
    action: str
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = {}

    @property
    def changes(self) -> bool:
        return self.action in CHANGES.get(self.port, ())

    def is_to(self, port: str, *actions: str) -> bool:
        return self.port == port and self.action in actions

    @property
    def is_transaction(self) -> bool:
        return self.is_to("state", "create_together", "save_together")

    def parts(self) -> tuple["Call", ...]:
        """What watchers look at: of rows that are written together the write of each."""
        if not self.is_transaction:
            return (self,)
        action = self.action.removesuffix("_together")
        created = self.kwargs.get("created", ())
        return (
            *(Call(self.port, action, (row,)) for row in self.args[0]),
            *(Call(self.port, "create", (row,)) for row in created),
        )


class Watcher:
    """Sees every call of every function; by itself it does nothing."""

    def before(self, call: Call) -> None:
        """Just before the port is reached."""

    def after(self, call: Call, answer: Any) -> None:
        """When the port has answered; not when it raised."""

    def refused(self, call: Call, error: Exception) -> None:
        """When the port has raised."""


class CallFault(Watcher):
    """Acts on the call at which its countdown ends, once. ``counted``: which calls are counted."""

    def __init__(self, countdown: int, counted: Callable[[Call], bool]) -> None:
        self._countdown, self._counted = countdown, counted
        self.has_struck = False

    def is_reached(self, call: Call) -> bool:
        """Whether this is the call; counts it. To be asked once for each call."""
        if self.has_struck or not self._counted(call):
            return False
        self._countdown -= 1
        self.has_struck = self._countdown <= 0
        return self.has_struck


class Calls:
    """``watchers`` see all calls; ``faults`` act on those of the invocation that runs now."""

    def __init__(self) -> None:
        self.watchers: list[Watcher] = []
        self.faults: tuple[CallFault, ...] = ()

    def carry_out(self, call: Call, work: Callable[[], Any]) -> Any:
        faults = self.faults
        for fault in faults:
            fault.before(call)
        parts = call.parts()
        for watcher in self.watchers:
            for part in parts:
                watcher.before(part)
        try:
            answer = work()
        except Exception as error:
            for watcher in self.watchers:
                for part in parts:
                    watcher.refused(part, error)
            raise
        if answer or not call.is_transaction:
            for watcher in self.watchers:
                for part in parts:
                    watcher.after(part, answer)
        for fault in faults:
            fault.after(call, answer)
        return answer


class WatchedPort:
    """A port whose methods go through ``Calls``."""

    def __init__(self, name: str, port: Any, calls: Calls) -> None:
        self._name, self._port, self._calls = name, port, calls

    def __getattr__(self, action: str) -> Any:
        attribute = getattr(self._port, action)
        if not callable(attribute):
            return attribute

        def carry_out(*args: Any, **kwargs: Any) -> Any:
            call = Call(self._name, action, args, kwargs)
            return self._calls.carry_out(call, lambda: attribute(*args, **kwargs))

        return carry_out


class WatchedQueues(WatchedPort):
    """The queues: many messages are several calls, one after the other, and a fault can come between them."""

    def ring(self, queue: str, bells: Sequence[Any], **rest: Any) -> None:
        ring = self.__getattr__("ring")
        for batch in batched(bells, MESSAGES_PER_CALL, strict=False):
            ring(queue, batch, **rest)


class WatchedPorts:
    """Ports as attributes, each of them watched; what is no port is itself."""

    def __init__(self, ports: Any, calls: Calls) -> None:
        self._ports, self._calls = ports, calls

    def __getattr__(self, name: str) -> Any:
        port = getattr(self._ports, name)
        if name not in CHANGES:
            return port
        return (WatchedQueues if name == "doorbells" else WatchedPort)(name, port, self._calls)
