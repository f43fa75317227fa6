"""The functions that run: every event, whoever delivers it, goes through `world.part(Functions).invoke`."""

import threading
from dataclasses import dataclass, field

from moto.awslambda.models import LambdaFunction

from local.aws import recursion
from local.aws.functions_deployed import Deployed, backend, deployed, label
from local.aws.functions_environment import ExecutionEnvironment
from local.aws.functions_pool import PROCESSES_PER_FUNCTION, Pool
from local.aws.functions_runtime_api import Invocation
from local.aws.world import World

# How long a synchronous call waits for a free process before it counts as throttled.
PATIENCE_SECONDS = 30.0
TIDY_SECONDS = 1.0


class Disabled(Exception):
    """The function was switched off through the control API."""


@dataclass
class Functions:
    """The execution environments of one world, keyed by function name and version. See `World.part`."""

    world: World
    pools: dict[tuple[str, str], Pool] = field(default_factory=dict)
    disabled: set[str] = field(default_factory=set)
    recursion_allowed: set[str] = field(default_factory=set)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def invoke(
        self,
        function: LambdaFunction,
        payload: bytes,
        *,
        traces: tuple[str, ...] = (),
        client_context: str = "",
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> tuple[Invocation, ExecutionEnvironment]:
        """Run one event to its end; raises Disabled or functions_pool.Throttled, nothing else."""
        if self.is_disabled(function):
            raise Disabled(function.function_name)
        version = deployed(self.world, function)
        pool = self._pool(version)
        trace = recursion.entering(traces, version.arn)
        environment = pool.borrow(version, self._limit(function), patience_seconds)
        invocation = environment.invoke(payload, trace, client_context)
        pool.give_back(environment, invocation.error)
        return invocation, environment

    def is_disabled(self, function: LambdaFunction) -> bool:
        return bool({function.function_name, label(function)} & self.disabled)

    def stops_recursion(self, function: LambdaFunction, trace: str) -> bool:
        """Whether Lambda's recursive loop detection drops an event with this trace header."""
        allowed = function.function_name in self.recursion_allowed
        return not allowed and recursion.is_loop(trace, function.function_arn)

    def _pool(self, version: Deployed) -> Pool:
        with self._lock:
            key = (version.name, version.version)
            if key not in self.pools:
                self.pools[key] = Pool(lambda function: ExecutionEnvironment(self.world, function))
            return self.pools[key]

    def _limit(self, function: LambdaFunction) -> int:
        reserved = function.reserved_concurrency
        return PROCESSES_PER_FUNCTION if reserved is None else min(int(reserved), PROCESSES_PER_FUNCTION)

    def run(self, stop: threading.Event) -> None:
        """Background: drop idle and deleted functions' processes; at the end, all of them."""
        while not stop.wait(TIDY_SECONDS):
            names = {function.function_name for function in backend(self.world).list_functions()}
            with self._lock:
                deleted = [key for key in self.pools if key[0] not in names]
                closing = [self.pools.pop(key) for key in deleted]
                kept = list(self.pools.values())
            for pool in closing:
                pool.close()
            for pool in kept:
                pool.tidy()
        for pool in list(self.pools.values()):
            pool.close()
