"""Faults on demand: an error instead of an answer, an answer that never comes, a caller that dies.

`POST /_local/faults {"service", "action", "kind", "times"?, "code"?, "function"?}` arms one; `service` and
`action` may be `*`. Kinds:
- `error`: the call is refused with `code` (default InternalError) and has no effect.
- `timeout_after_act`: the call takes effect; the connection is held for `seconds` (default 60), then closed.
- `crash_caller_before_act`, `crash_caller_after_act`: the Lambda process whose credentials made the call (also
  by way of AssumeRole) is killed, before or after the call takes effect.
"""

import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from local.aws.calls.request import AwsError, AwsRequest, AwsResponse, ConnectionDropped
from local.aws.control import InvalidRequest
from local.aws.emulator import Emulator

KINDS = ("error", "timeout_after_act", "crash_caller_after_act", "crash_caller_before_act")
# Codes that AWS sends with a server-side status; the others are the caller's fault.
SERVER_CODES = ("InternalError", "InternalFailure", "InternalServerError", "ServiceUnavailable", "Unavailable")


@dataclass
class Fault:
    """An armed fault; `times` counts down to 0. `function` restricts it to calls of that Lambda function."""

    service: str
    action: str
    kind: str
    times: int = 1
    code: str = "InternalError"
    message: str = "A fault was asked for."
    function: str | None = None
    seconds: float = 60.0

    def matches(self, request: AwsRequest, function: str | None) -> bool:
        return (
            self.times > 0
            and self.service in ("*", request.service)
            and self.action in ("*", request.action)
            and self.function in (None, function)
        )


class Faults:
    """The armed faults of the emulator, oldest first."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._lock = threading.Lock()
        self._faults: list[Fault] = []

    def inject(self, body: Mapping[str, Any]) -> dict[str, Any]:
        if body.get("kind") not in KINDS:
            raise InvalidRequest(f"kind must be one of {', '.join(KINDS)}")
        try:
            fault = Fault(**body)
        except TypeError as error:
            raise InvalidRequest(str(error)) from error
        with self._lock:
            self._faults.append(fault)
        return asdict(fault)

    def clear(self) -> dict[str, Any]:
        with self._lock:
            self._faults.clear()
        return {}

    def show(self) -> dict[str, Any]:
        with self._lock:
            return {"faults": [asdict(fault) for fault in self._faults if fault.times > 0]}

    def before_call(self, request: AwsRequest) -> None:
        fault = self._due(request, ("error", "crash_caller_before_act"))
        if fault is None:
            return
        if fault.kind == "error":
            status = 503 if fault.code == "RequestLimitExceeded" else 500 if fault.code in SERVER_CODES else None
            raise AwsError(fault.code, fault.message, status)
        self._crash(request)

    def after_call(self, request: AwsRequest, response: AwsResponse) -> None:
        """Faults that follow an effect; a refused call had none, so it triggers nothing."""
        if response.status >= 400:
            return
        fault = self._due(request, ("timeout_after_act", "crash_caller_after_act"))
        if fault is None:
            return
        if fault.kind == "crash_caller_after_act":
            self._crash(request)
        time.sleep(fault.seconds)
        raise ConnectionDropped

    def _due(self, request: AwsRequest, kinds: tuple[str, ...]) -> Fault | None:
        origin = self._emulator.original_access_key(request.access_key)
        function = self._emulator.function_names.get(origin)
        with self._lock:
            for fault in self._faults:
                needs_caller = fault.kind.startswith("crash_caller")
                if needs_caller and origin not in self._emulator.process_killers:
                    continue
                if fault.kind in kinds and fault.matches(request, function):
                    fault.times -= 1
                    return fault
        return None

    def _crash(self, request: AwsRequest) -> None:
        self._emulator.process_killers[self._emulator.original_access_key(request.access_key)]()
        raise ConnectionDropped


def add(emulator: Emulator) -> None:
    faults = emulator.component(Faults)
    emulator.check_before(faults.before_call)
    emulator.react_after(faults.after_call)
    emulator.route("POST", "/_local/faults", lambda body, _: faults.inject(body))
    emulator.route("GET", "/_local/faults", lambda _body, _query: faults.show())
    emulator.route("DELETE", "/_local/faults", lambda _body, _query: faults.clear())
