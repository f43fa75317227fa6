"""A stack without one of its functions: whatever the demo shows needs all of them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from local.demo.run import ExpectationFailed
from local.stack import ControlFailed, Stack

POLL_SECONDS = 0.1


@contextmanager
def disabled_function(stack: Stack, function: str | None) -> Iterator[None]:
    """While the stack is deployed, switch a function off as soon as it is there: it never runs.

    Raises ExpectationFailed when the deployed stack has no such function.
    """
    if function is None:
        yield
        return
    deployed = threading.Event()
    gone: list[str] = []
    watching = threading.Thread(target=_switch_off, args=(stack, function, deployed, gone), daemon=True)
    watching.start()
    try:
        yield
    finally:
        deployed.set()
        watching.join()
    if not gone:
        raise ExpectationFailed(f"the stack has no function {function}")


def _switch_off(stack: Stack, function: str, deployed: threading.Event, gone: list[str]) -> None:
    while not gone:
        last = deployed.is_set()
        try:
            stack.control("POST", f"/_local/functions/{function}", {"enabled": False})
            gone.append(function)
        except ControlFailed:
            if last:
                return
            deployed.wait(POLL_SECONDS)
