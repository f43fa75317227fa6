"""Asynchronous invocation: the caller is answered at once, the function runs later, twice more if it fails."""

import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass

from moto.awslambda.models import LambdaFunction

from local.aws.functions.environment_pool import Throttled
from local.aws.functions.invocations import Disabled, Functions

# https://docs.aws.amazon.com/lambda/latest/dg/invocation-async-error-handling.html
RETRY_AFTER_SECONDS = (60, 120)
LONGEST_WAIT_SECONDS = 6 * 3600.0


type OnFailure = Callable[[str], None]


@dataclass(frozen=True)
class _Event:
    functions: Functions
    function: LambdaFunction
    payload: bytes
    trace: str
    on_failure: OnFailure


def _forget(_error: str) -> None:
    """Nobody asked to be told."""


def invoke_async(
    functions: Functions,
    function: LambdaFunction,
    payload: bytes,
    trace: str = "",
    on_failure: OnFailure = _forget,
) -> None:
    """Queue one event; returns at once. An event that is part of a recursive loop is dropped.

    `on_failure` is called with the last error when the function has failed for good.
    """
    if functions.stops_recursion(function, trace):
        print(f"recursive loop: an event for {function.function_name} is dropped", file=sys.stderr, flush=True)
        return
    _start(_Event(functions, function, payload, trace, on_failure), 0)


def _start(event: _Event, attempt: int) -> None:
    name = f"async-{event.function.function_name}"
    threading.Thread(target=_run, args=(event, attempt), name=name, daemon=True).start()


def _run(event: _Event, attempt: int) -> None:
    try:
        invocation, _ = event.functions.invoke(
            event.function, event.payload, traces=(event.trace,), timeout_seconds=LONGEST_WAIT_SECONDS
        )
        error = invocation.error
    except (Disabled, Throttled) as obstacle:
        error = type(obstacle).__name__
    if error and attempt < _retries(event.function):
        again = threading.Timer(RETRY_AFTER_SECONDS[attempt], _start, (event, attempt + 1))
        again.daemon = True
        again.start()
    elif error:
        event.on_failure(error)


def _retries(function: LambdaFunction) -> int:
    for configuration in function.event_invoke_config:
        return int(configuration.config.get("MaximumRetryAttempts", len(RETRY_AFTER_SECONDS)))
    return len(RETRY_AFTER_SECONDS)
