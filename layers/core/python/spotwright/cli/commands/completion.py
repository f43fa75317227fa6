"""``spotwright completion``: a script that lets a shell complete commands, options and files."""

import argparse
from typing import Any, Final

from spotwright.cli import InputError, build_parser

_SHELLS: Final = ("bash", "zsh", "tcsh")
_EPILOG: Final = """\
examples:
  source <(spotwright completion bash)                       in ~/.bashrc
  spotwright completion zsh > "${fpath[1]}/_spotwright"      once, then start a new shell
"""


def add(subparsers: Any) -> None:
    """Register the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "completion",
        help="print a script that completes commands and options in a shell",
        description="Print a script that lets a shell complete the commands, options and files of spotwright.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=_SHELLS, help="the shell")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the script."""
    try:
        import shtab
    except ImportError:
        raise InputError("the package shtab is not installed: `make setup`, or pip install shtab") from None
    parser, _ = build_parser()
    print(shtab.complete(parser, shell=options.shell))
    return 0
