"""Calls that functions make side by side, made one after the other, so that the same seed gives the same run."""

import sys
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from typing import Any, Self
from unittest.mock import patch


class SerialExecutor:
    """See concurrent.futures.ThreadPoolExecutor: each call is made when it is submitted."""

    def __init__(self, _: int = 1) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        """The end of the process is no result: it is raised here."""
        future: Future[Any] = Future()
        try:
            future.set_result(work(*args, **kwargs))
        except Exception as error:  # noqa: BLE001 a future holds whatever its call raised
            future.set_exception(error)
        return future

    def map(self, work: Callable[..., Any], *items: Iterable[Any]) -> Iterator[Any]:
        return iter([work(*arguments) for arguments in zip(*items, strict=False)])

    def shutdown(self, **_: object) -> None:
        pass


@contextmanager
def serial_calls() -> Iterator[None]:
    """In every module of the workflows that was imported."""
    users = [module for name, module in sys.modules.items() if name.startswith("spotwright.workflows.")]
    with ExitStack() as stack:
        for module in (module for module in users if hasattr(module, "ThreadPoolExecutor")):
            stack.enter_context(patch.object(module, "ThreadPoolExecutor", SerialExecutor))
        yield
