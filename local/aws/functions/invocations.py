"""The functions that run: every event, whoever delivers it, goes through `emulator.component(Functions).invoke`."""

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from moto.awslambda.models import LambdaFunction

from local.aws.calls.moto_locks import MotoLocks
from local.aws.emulator import Emulator
from local.aws.functions import processor_share, recursion
from local.aws.functions.environment_pool import PROCESSES_PER_FUNCTION, EnvironmentPool, Throttled
from local.aws.functions.execution_environment import ExecutionEnvironment
from local.aws.functions.runtime_api import Invocation
from local.aws.functions.versions import FunctionVersion, function_version, lambda_backend, short_name
from local.aws.strictness import Rule

# How long a synchronous call waits for a free process before it counts as throttled.
WAIT_SECONDS = 30.0
# What a new account may run at once, in all its functions: https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html
ACCOUNT_CONCURRENCY = 10
TIDY_SECONDS = 1.0


class Disabled(Exception):
    """The function was switched off through the control API."""


@dataclass
class Functions:
    """The execution environments of one emulator, keyed by function name and version. See `Emulator.component`.

    `shares`: new processes get exactly the part of a processor that their function's memory buys, not a whole one.
    """

    emulator: Emulator
    pools: dict[tuple[str, str], EnvironmentPool] = field(default_factory=dict)
    disabled_names: set[str] = field(default_factory=set)
    recursive_names: set[str] = field(default_factory=set)
    shares: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _running: int = 0
    _ended: threading.Condition = field(default_factory=threading.Condition)

    def invoke(
        self,
        function: LambdaFunction,
        payload: bytes,
        *,
        traces: tuple[str, ...] = (),
        client_context: str = "",
        timeout_seconds: float = WAIT_SECONDS,
    ) -> tuple[Invocation, ExecutionEnvironment]:
        """Run one event to its end; raises Disabled or Throttled, nothing else.

        `timeout_seconds`: how long it waits for a place among those that the account or the function may run at once.
        """
        if self.is_disabled(function):
            raise Disabled(function.function_name)
        version = function_version(self.emulator, function)
        pool = self._pool(version)
        trace = recursion.trace_header(traces, version.arn)
        with self._place_of_account(function, timeout_seconds):
            # That this machine runs no more processes is no limit of AWS's.
            seconds = WAIT_SECONDS if function.reserved_concurrency is None else timeout_seconds
            environment = pool.acquire(version, self._limit(function), seconds)
            invocation = environment.invoke(payload, trace, client_context)
            pool.release(environment, invocation.error)
        return invocation, environment

    @contextmanager
    def _place_of_account(self, function: LambdaFunction, timeout_seconds: float) -> Iterator[None]:
        """One of the invocations that the account may run at once; raises Throttled when none is free in time."""
        strict = self.emulator.strictness.holds(Rule.ACCOUNT_CONCURRENCY)
        limit = ACCOUNT_CONCURRENCY if strict else sys.maxsize
        with self._ended:
            if not self._ended.wait_for(lambda: self._running < limit, timeout_seconds):
                raise Throttled(function.function_name)
            self._running += 1
        try:
            yield
        finally:
            with self._ended:
                self._running -= 1
                self._ended.notify()

    def is_disabled(self, function: LambdaFunction) -> bool:
        return bool({function.function_name, short_name(function)} & self.disabled_names)

    def stops_recursion(self, function: LambdaFunction, trace: str) -> bool:
        """Whether Lambda's recursive loop detection drops an event with this trace header."""
        allowed = function.function_name in self.recursive_names
        return not allowed and recursion.is_loop(trace, function.function_arn)

    def _pool(self, version: FunctionVersion) -> EnvironmentPool:
        with self._lock:
            key = (version.name, version.version)
            if key not in self.pools:
                self.pools[key] = EnvironmentPool(self._start)
            return self.pools[key]

    def _start(self, function: FunctionVersion) -> ExecutionEnvironment:
        if self.shares:
            return ExecutionEnvironment(self.emulator, function, hold=processor_share.hold_by_control_group)
        strict = self.emulator.strictness.holds(Rule.PROCESSOR_SHARE)
        return ExecutionEnvironment(self.emulator, function, hold=processor_share.hold if strict else None)

    def _limit(self, function: LambdaFunction) -> int:
        reserved = function.reserved_concurrency
        return PROCESSES_PER_FUNCTION if reserved is None else min(int(reserved), PROCESSES_PER_FUNCTION)

    def run(self, stop: threading.Event) -> None:
        """Background: tidies up; at the end, drops all processes."""
        while not stop.wait(TIDY_SECONDS):
            self.tidy()
        for pool in list(self.pools.values()):
            pool.close()

    def tidy(self) -> None:
        """Drop idle and deleted functions' processes."""
        with self.emulator.component(MotoLocks).alone("lambda"), self._lock:
            # Nobody gets a pool meanwhile: that of a function that was made since would be one of a deleted one.
            names = {function.function_name for function in lambda_backend(self.emulator).list_functions()}
            deleted = [key for key in self.pools if key[0] not in names]
            closing = [self.pools.pop(key) for key in deleted]
            kept = list(self.pools.values())
        for pool in closing:
            pool.close()
        for pool in kept:
            pool.retire_idle()
