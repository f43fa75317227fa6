"""``python -m spotwright.cli``, and the command ``spotwright``."""

import errno
import os
import sys
from typing import Final, NoReturn

from spotwright.cli import BAD_INPUT, main

# What writing fails with where there is no room, and not where a reader has ended.
_WRITE_ERRORS: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF})


def once() -> NoReturn:
    """Run one command in a process of its own."""
    # Python has no stdout where it is closed.
    if sys.stdout is None:
        _end(_refuse_output("it is closed"))
    try:
        code = main()
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
    except OSError as error:
        # An error with a file is not of standard output.
        if error.errno not in _WRITE_ERRORS or error.filename is not None:
            raise
        _end(_refuse_output(error.strerror or str(error)))
    _end(_flush(code))


def _flush(code: int) -> int:
    """The exit code, after what is still to be written of standard output."""
    try:
        sys.stdout.flush()
    except (BrokenPipeError, ValueError):
        pass
    except OSError as error:
        return _refuse_output(error.strerror or str(error))
    return code


def _refuse_output(why: str) -> int:
    if sys.stderr is not None:
        print(f"spotwright: standard output cannot be written: {why}", file=sys.stderr)
    return BAD_INPUT


def _end(code: int) -> NoReturn:
    """End the process at once: to free what a plan made, object by object, takes 40 ms of a quarter of a second."""
    try:
        if sys.stderr is not None:
            sys.stderr.flush()
    except (OSError, ValueError):
        pass
    os._exit(code)


if __name__ == "__main__":
    once()
