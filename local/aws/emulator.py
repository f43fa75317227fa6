"""What every module of the local AWS is handed: the account, its call log, and where to register.

A module has one function `add(emulator)`, called once before the server listens. It registers answers to
AWS calls (`handle`), control routes under `/_local/` (`route`) and threads (`run_in_background`).
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local.aws.calls.call_log import CallLog
from local.aws.calls.request import AwsRequest, AwsResponse
from local.aws.strictness import Strictness

type ControlHandler = Callable[[Mapping[str, Any], Mapping[str, str]], Any]
type CallHandler = Callable[[AwsRequest], AwsResponse | None]
type CallCheck = Callable[[AwsRequest], None]
type CallReaction = Callable[[AwsRequest, AwsResponse], None]
type BackgroundRun = Callable[[threading.Event], None]


@dataclass
class Emulator:
    """One emulated account in one region, with one EKS cluster in mind.

    `process_killers` maps the access key id of a Lambda process to a function that kills that process, and
    `function_names` the same key to the function's name; the Lambda runtime fills both. Keys that were
    obtained with those keys (AssumeRole) are followed back through `parent_access_keys`.
    """

    directory: Path
    region: str
    account: str
    port: int
    cluster: str
    call_log: CallLog
    strictness: Strictness = field(default_factory=Strictness)
    routes: list[tuple[str, tuple[str, ...], ControlHandler]] = field(default_factory=list)
    handlers: dict[tuple[str, str], list[CallHandler]] = field(default_factory=dict)
    checks: list[CallCheck] = field(default_factory=list)
    reactions: list[CallReaction] = field(default_factory=list)
    background_runs: list[tuple[str, BackgroundRun]] = field(default_factory=list)
    process_killers: dict[str, Callable[[], None]] = field(default_factory=dict)
    function_names: dict[str, str] = field(default_factory=dict)
    parent_access_keys: dict[str, str] = field(default_factory=dict)
    _components: dict[Any, Any] = field(default_factory=dict)
    _components_lock: threading.RLock = field(default_factory=threading.RLock)

    def component[T](self, component_type: Callable[["Emulator"], T]) -> T:
        """The one `component_type(emulator)` of this emulator, made on first use: how modules share state."""
        with self._components_lock:
            if component_type not in self._components:
                self._components[component_type] = component_type(self)
            found: T = self._components[component_type]
            return found

    @property
    def endpoint(self) -> str:
        """Base URL of this process: an address, not a name, so that S3 clients use path style."""
        return f"http://127.0.0.1:{self.port}"

    @property
    def secure_endpoint(self) -> str:
        """The same with TLS."""
        return f"https://127.0.0.1:{self.port}"

    def route(self, method: str, path: str, handler: ControlHandler) -> None:
        """Answer `method path` of the control API; `<name>` segments of `path` become parameters."""
        self.routes.append((method, tuple(path.strip("/").split("/")), handler))

    def handle(self, service: str, action: str, handler: CallHandler) -> None:
        """Answer an AWS call (botocore service and operation name) before moto; None passes it on."""
        self.handlers.setdefault((service, action), []).append(handler)

    def check_before(self, check: CallCheck) -> None:
        """Run `check` before any call is answered, in order of registration; it refuses with AwsError."""
        self.checks.append(check)

    def react_after(self, react: CallReaction) -> None:
        """Run `react` when a call has taken effect and before its answer is sent."""
        self.reactions.append(react)

    def run_in_background(self, name: str, run: BackgroundRun) -> None:
        """Run `run(stop)` in a thread once the server listens; it must return soon after `stop` is set."""
        self.background_runs.append((name, run))

    def original_access_key(self, access_key: str) -> str:
        """The access key at the start of the chain of AssumeRole calls that led to `access_key`."""
        while access_key in self.parent_access_keys:
            access_key = self.parent_access_keys[access_key]
        return access_key
