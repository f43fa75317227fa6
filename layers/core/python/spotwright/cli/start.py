"""What a command that lives for a quarter of a second need not pay for at its start and end."""

import gc
import os
import re
import sys
from importlib import import_module
from typing import Any, NoReturn

_compile = re.compile


def begin() -> None:
    """Before other imports: nothing is collected, and msgspec comes without typing_extensions, which brings ``inspect``
    and is installed only where something else needs it. ``cli.main`` lets collections happen again."""
    gc.disable()
    if "typing_extensions" in sys.modules or "msgspec" in sys.modules:
        return
    sys.modules["typing_extensions"] = None  # type: ignore[assignment]
    import_module("msgspec")
    del sys.modules["typing_extensions"]


class _Later:
    """A pattern that is compiled when something is asked of it."""

    def __init__(self, *given: Any) -> None:
        self._given = given

    def __getattr__(self, name: str) -> Any:
        found = getattr(_compile(*self._given), name)
        setattr(self, name, found)
        return found


class PatternsLater:
    """While this lasts, modules that are imported compile no pattern: PyYAML has one that takes longer than a plan, and
    uses it only where libyaml is missing."""

    def __enter__(self) -> None:
        re.compile = _Later  # type: ignore[assignment]

    def __exit__(self, *_: object) -> None:
        re.compile = _compile


def end(code: int) -> NoReturn:
    """End the process without taking apart, object by object, what it made."""
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (BrokenPipeError, ValueError):
        pass
    os._exit(code)
