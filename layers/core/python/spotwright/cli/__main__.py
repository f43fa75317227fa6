"""``python -m spotwright.cli``, and the command ``spotwright``."""

from typing import NoReturn

from spotwright.cli import main, start


def once() -> NoReturn:
    """Run one command in a process of its own."""
    start.begin()
    try:
        code = main()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    start.end(code)


if __name__ == "__main__":
    once()
