"""What every feature module of the local AWS is handed: the account, its log, and places to plug in.

A feature module has one function `add(world)`, called once before the server listens. It registers
answers to AWS calls (`front`), control routes under `/_local/` (`route`) and threads (`background`).
"""

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local.aws.calls import CallLog
from local.aws.request import AwsRequest, AwsResponse

type Route = Callable[[Mapping[str, Any], Mapping[str, str]], Any]
type Front = Callable[[AwsRequest], AwsResponse | None]
type Guard = Callable[[AwsRequest], None]
type After = Callable[[AwsRequest, AwsResponse], None]
type Background = Callable[[threading.Event], None]


@dataclass
class World:
    """One emulated account in one region, with one EKS cluster in mind.

    `callers` maps the access key id of a Lambda process to a function that kills that process, and
    `functions` the same key to the function's name; the Lambda runtime fills both. Keys that were
    obtained with those keys (AssumeRole) are followed back through `lineage`.
    """

    directory: Path
    region: str
    account: str
    port: int
    cluster: str
    calls: CallLog
    routes: list[tuple[str, tuple[str, ...], Route]] = field(default_factory=list)
    fronts: dict[tuple[str, str], list[Front]] = field(default_factory=dict)
    guards: list[Guard] = field(default_factory=list)
    afters: list[After] = field(default_factory=list)
    backgrounds: list[tuple[str, Background]] = field(default_factory=list)
    callers: dict[str, Callable[[], None]] = field(default_factory=dict)
    functions: dict[str, str] = field(default_factory=dict)
    lineage: dict[str, str] = field(default_factory=dict)
    _parts: dict[Any, Any] = field(default_factory=dict)
    _parts_lock: threading.RLock = field(default_factory=threading.RLock)

    def part[T](self, kind: Callable[["World"], T]) -> T:
        """The one `kind(world)` of this world, made on first use: how feature modules share state."""
        with self._parts_lock:
            if kind not in self._parts:
                self._parts[kind] = kind(self)
            found: T = self._parts[kind]
            return found

    @property
    def endpoint(self) -> str:
        """Base URL of this process: an address, not a name, so that S3 clients use path style."""
        return f"http://127.0.0.1:{self.port}"

    def route(self, method: str, path: str, handler: Route) -> None:
        """Answer `method path` of the control API; `<name>` segments of `path` become parameters."""
        self.routes.append((method, tuple(path.strip("/").split("/")), handler))

    def front(self, service: str, action: str, handler: Front) -> None:
        """Answer an AWS call (botocore service and operation name) before moto; None passes it on."""
        self.fronts.setdefault((service, action), []).append(handler)

    def guard(self, check: Guard) -> None:
        """Run `check` before any call is answered, in order of registration; it refuses with AwsError."""
        self.guards.append(check)

    def after(self, react: After) -> None:
        """Run `react` when a call has taken effect and before its answer is sent."""
        self.afters.append(react)

    def background(self, name: str, run: Background) -> None:
        """Run `run(stop)` in a thread once the server listens; it must return soon after `stop` is set."""
        self.backgrounds.append((name, run))

    def origin(self, access_key: str) -> str:
        """The access key at the start of the chain of AssumeRole calls that led to `access_key`."""
        while access_key in self.lineage:
            access_key = self.lineage[access_key]
        return access_key
