"""Calls of other systems side by side, as many at once as they and a function's memory bear."""

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextvars import copy_context
from typing import Final

# Of one piece of work; the clients keep connections for five such at the same time.
CALLS_AT_ONCE: Final = 10


def in_parallel[T, R](work: Callable[[T], R], items: Iterable[T], *, at_once: int = CALLS_AT_ONCE) -> list[R]:
    """``work`` of every item, in the items' order, in the caller's context, ``at_once`` at the same time.

    After a failure nothing more is begun, and it is raised.
    """
    waiting = tuple(items)
    if len(waiting) < 2 or at_once == 1:
        return [work(item) for item in waiting]
    with ThreadPoolExecutor(min(at_once, len(waiting))) as threads:
        calls = [threads.submit(copy_context().run, work, item) for item in waiting]
        try:
            for call in as_completed(calls):
                call.result()
        except BaseException:
            threads.shutdown(cancel_futures=True)
            raise
        return [call.result() for call in calls]
