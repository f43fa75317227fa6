"""The command line: ``spotwright <command>``. The modules of ``commands`` register the commands and run them.

Modules of commands import what they need when they run, so that a command starts quickly.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import Final

from spotwright.errors import MissingRegion

# Command → the function of a module of ``commands`` that registers it.
_COMMANDS: Final = {
    "plan": "plan.add",
    "convert": "convert.add",
    "catalog": "catalog.add",
    "replay": "replay.add",
    "pause": "pause.add_pause",
    "resume": "pause.add_resume",
    "manifests": "manifests.add",
    "uninstall": "uninstall.add",
}
# Commands with an option --region for all that they ask of AWS.
_WITH_REGION: Final = frozenset({"replay", "pause", "resume", "manifests", "uninstall"})
_BAD_INPUT: Final = 2


class InputError(Exception):
    """Input that cannot be read: the message names the input, the place in it, and what is expected."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. 0: done; 1: the command says no; 2: the input cannot be read."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(prog="spotwright", description="Gives an EKS cluster the nodes its pods need.")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    # Only the module of the command is imported; for the help, all modules.
    for name in [command for command in _COMMANDS if command in given[:1]] or _COMMANDS:
        module, _, function = _COMMANDS[name].partition(".")
        getattr(import_module(f"{__name__}.commands.{module}"), function)(subparsers)
    options = parser.parse_args(given)
    try:
        return int(options.run(options))
    except InputError as error:
        print(f"spotwright {options.command}: {error}", file=sys.stderr)
        return _BAD_INPUT
    except MissingRegion as error:
        advice = "give --region or set AWS_REGION" if options.command in _WITH_REGION else "set AWS_REGION"
        print(f"spotwright {options.command}: {error}: {advice}", file=sys.stderr)
        return _BAD_INPUT
    except BrokenPipeError:
        # The reader of a pipe (head, less) has ended.
        sys.stderr.close()
        return 0
