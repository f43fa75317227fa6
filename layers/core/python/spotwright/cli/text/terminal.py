"""How lines look on a terminal: folded to its width, headings bold; plain anywhere else."""

import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

_BOLD: Final = "\033[1m"
_RESET: Final = "\033[0m"
# Below this nothing is readable anyway.
_MINIMUM_WIDTH: Final = 40
_HANGING: Final = "  "


class Terminal(msgspec.Struct, frozen=True):
    """``width`` None: lines stay whole, as for a file or another program."""

    width: int | None = None
    has_color: bool = False

    def heading(self, text: str) -> str:
        return f"{_BOLD}{text}{_RESET}" if self.has_color else text

    def show(self, lines: Iterable[str]) -> str:
        """The lines as one text. What does not end with an indented line's width goes on below, indented further."""
        return "\n".join(folded for line in lines for folded in self._fold(line))

    def _fold(self, line: str) -> Iterator[str]:
        if self.width is None or len(line) <= self.width:
            yield line
            return
        if line.startswith(_BOLD):
            text = line.removeprefix(_BOLD).removesuffix(_RESET)
            yield from (self.heading(part) for part in self._fold(text))
            return
        indent = line[: len(line) - len(line.lstrip())]
        yield from textwrap.wrap(
            line, max(self.width, _MINIMUM_WIDTH), subsequent_indent=indent + _HANGING,
            break_long_words=False, break_on_hyphens=False, initial_indent="", drop_whitespace=True,
        )  # fmt: skip


def stdout_terminal() -> Terminal:
    """What standard output is: colors unless NO_COLOR is set or TERM is dumb."""
    if not sys.stdout.isatty():
        return Terminal()
    has_color = not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Terminal(shutil.get_terminal_size().columns, has_color)
