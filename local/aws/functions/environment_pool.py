"""Many environments of many functions: reuse idle ones, start more up to a limit, replace outdated ones."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from local.aws.functions.execution_environment import ExecutionEnvironment
from local.aws.functions.versions import FunctionVersion

# On AWS a function without reserved concurrency shares 1000; a laptop's memory does not.
PROCESSES_PER_FUNCTION = 10
# An environment unused for so long is given up.
IDLE_SECONDS = 600

type StartEnvironment = Callable[[FunctionVersion], ExecutionEnvironment]


class Throttled(Exception):
    """No environment is free and no more may be started (reserved concurrency, or waited too long)."""


@dataclass
class EnvironmentPool:
    """The environments of one function name. `limit` counts busy and idle ones together."""

    start: StartEnvironment
    idle: list[ExecutionEnvironment] = field(default_factory=list)
    busy: list[ExecutionEnvironment] = field(default_factory=list)
    starting: int = 0
    invocations: int = 0
    last_error: str = ""
    closed: bool = False
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def acquire(self, function: FunctionVersion, limit: int, timeout_seconds: float) -> ExecutionEnvironment:
        """An environment of exactly `function`, for one invocation; raises Throttled."""
        until = time.monotonic() + timeout_seconds
        with self._changed:
            while not self.closed:
                self._retire(function)
                if self.idle:
                    environment = self.idle.pop()
                    self.busy.append(environment)
                    return environment
                if len(self.busy) + self.starting < limit:
                    self.starting += 1
                    break
                if not self._changed.wait(until - time.monotonic()):
                    raise Throttled(function.name)
            else:
                raise Throttled(function.name)
        return self._started(function)

    def _started(self, function: FunctionVersion) -> ExecutionEnvironment:
        try:
            environment = self.start(function)
        except BaseException:
            with self._changed:
                self.starting -= 1
                self._changed.notify_all()
            raise
        with self._changed:
            self.starting -= 1
            self.busy.append(environment)
            if self.closed:
                environment.kill()
        return environment

    def release(self, environment: ExecutionEnvironment, error: str) -> None:
        with self._changed:
            self.busy.remove(environment)
            self.invocations += 1
            self.last_error = error or self.last_error
            if environment.is_usable and not self.closed:
                self.idle.append(environment)
            else:
                environment.kill()
            self._changed.notify_all()

    def _retire(self, function: FunctionVersion | None) -> None:
        """Kill idle environments that are dead, old or of another deployment than `function`."""
        now = time.monotonic()
        for environment in list(self.idle):
            current = function is None or environment.function == function
            if not current or not environment.is_usable or now - environment.last_used > IDLE_SECONDS:
                self.idle.remove(environment)
                environment.kill()

    def retire_idle(self) -> None:
        with self._changed:
            self._retire(None)

    def close(self) -> None:
        """Kill everything, for good."""
        with self._changed:
            self.closed = True
            for environment in (*self.idle, *self.busy):
                environment.kill()
            self.idle.clear()
            self._changed.notify_all()

    @property
    def processes(self) -> int:
        return len(self.idle) + len(self.busy) + self.starting
