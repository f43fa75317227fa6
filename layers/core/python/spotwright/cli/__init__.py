"""The command line: ``spotwright <command>``. The modules of ``commands`` register the commands and run them.

Modules of commands import what they need when they run, so that a command starts quickly.
"""

import argparse
import re
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NoReturn

from spotwright.errors import BadConfiguration, MissingRegion

if TYPE_CHECKING:
    from _typeshed import SupportsWrite

# Command → the function of a module of ``commands`` that registers it.
_COMMANDS: Final = {
    "plan": "plan.add",
    "convert": "convert.add",
    "catalog": "catalog.add",
    "replay": "replay.add",
    "init": "init.add",
    "preflight": "preflight.add",
    "pause": "pause.add_pause",
    "resume": "pause.add_resume",
    "orphans": "orphans.add",
    "manifests": "manifests.add",
    "uninstall": "uninstall.add",
    "completion": "completion.add",
}
# Commands with an option --region for all that they ask of AWS.
_WITH_REGION: Final = frozenset({"init", "preflight", "replay", "pause", "resume", "orphans", "manifests", "uninstall"})
BAD_INPUT: Final = 2
_EPILOG: Final = """\
examples:
  spotwright plan examples/planner.yaml           which nodes would these manifests get, and why?
  spotwright plan                                 what do the pods that wait in the cluster need?
  spotwright catalog 'm7*' --sort price           what do these instance types offer and cost?
  spotwright convert old.yaml | kubectl apply -f -

spotwright COMMAND --help has the options of a command and examples
"""


class InputError(Exception):
    """Input that cannot be read: the message names the input, the place in it, and what is expected."""


class _Parser(argparse.ArgumentParser):
    """A parser that answers bad arguments with a sentence, without the usage."""

    def print_help(self, file: "SupportsWrite[str] | None" = None) -> None:
        """Print the help; unlike argparse, fail where it cannot be written."""
        (file or sys.stdout).write(self.format_help())

    def error(self, message: str) -> NoReturn:
        choice = re.fullmatch(r"argument (\S+): invalid choice: '(.*)' \(choose from (.*)\)", message, re.DOTALL)
        if not choice:
            self.exit(BAD_INPUT, f"{self.prog}: {message}; see {self.prog} --help\n")
        names, given, known = choice.groups()
        values = known.replace("'", "").split(", ")
        allowed = _suggest(given, values) or f"allowed are {', '.join(values)}"
        self.exit(BAD_INPUT, f"{self.prog}: {names.rpartition('/')[2]} {given}: there is no such value; {allowed}\n")


class _Version(argparse.Action):
    """Prints the version; looks it up only when asked."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version

        print(f"spotwright {version('spotwright')}")
        parser.exit()


def build_parser(commands: Iterable[str] = _COMMANDS) -> tuple[argparse.ArgumentParser, Any]:
    """The parser of these commands, and its subparsers; only the modules of these commands are imported."""
    parser = _Parser(
        prog="spotwright",
        description="Gives an EKS cluster the nodes its pods need.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    subparsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name in commands:
        module, _, function = _COMMANDS[name].partition(".")
        getattr(import_module(f"{__name__}.commands.{module}"), function)(subparsers)
    return parser, subparsers


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command. 0: done; 1: the command says no; 2: the input cannot be read."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    if given[:1] == ["help"]:
        given = [*given[1:2], "--help"]
    if given and not given[0].startswith("-") and given[0] not in _COMMANDS:
        suggestion = _suggest(given[0], _COMMANDS) or f"commands are {', '.join(_COMMANDS)}"
        print(f"spotwright: there is no command {given[0]}; {suggestion}", file=sys.stderr)
        return BAD_INPUT
    # For the help of all commands all modules are imported.
    parser, subparsers = build_parser([command for command in _COMMANDS if command in given[:1]] or _COMMANDS)
    options, unknown = parser.parse_known_args(given)
    try:
        if unknown:
            raise InputError(_explain_unknown(unknown[0], options.command, subparsers.choices[options.command]))
        _check_cluster(getattr(options, "cluster", None))
        return int(options.run(options))
    except InputError as error:
        print(f"spotwright {options.command}: {error}", file=sys.stderr)
        return BAD_INPUT
    except MissingRegion as error:
        advice = "give --region or set AWS_REGION" if options.command in _WITH_REGION else "set AWS_REGION"
        print(f"spotwright {options.command}: {error}: {advice}", file=sys.stderr)
        return BAD_INPUT
    except BadConfiguration as error:
        advice = "correct AWS_PROFILE, AWS_REGION or the files ~/.aws/config and ~/.aws/credentials"
        print(f"spotwright {options.command}: {str(error).rstrip('.')}: {advice}", file=sys.stderr)
        return BAD_INPUT
    except BrokenPipeError:
        # The reader of a pipe (head, less) has ended.
        sys.stderr.close()
        return 0


def _check_cluster(name: str | None) -> None:
    """Refuse what is no cluster's name, such as a shell's variable that is not set."""
    if name is None:
        return
    from spotwright.model.quoting import quote
    from spotwright.workflows.install.preflight.facts import CLUSTER_NAME, CLUSTER_NAMES

    if not re.fullmatch(CLUSTER_NAME, name):
        raise InputError(f"--cluster: got {quote(name)}, allowed: {CLUSTER_NAMES}")


def _explain_unknown(argument: str, command: str, parser: argparse.ArgumentParser) -> str:
    """What is wrong with an argument that the command does not have."""
    advice = f"spotwright {command} --help lists the options"
    if not argument.startswith("-"):
        return f"{argument}: the command takes no such argument; {advice}"
    name = argument.partition("=")[0]
    # The first words of the lines of the help, not what its sentences speak of.
    lines = re.findall(r"^ +(-.*?)(?:  |$)", parser.format_help(), re.MULTILINE)
    known = {option for line in lines for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", line)}
    return f"there is no option {name}; {_suggest(name, known) or advice}"


def _suggest(word: str, known: Iterable[str]) -> str:
    """``did you mean plan?``; "" if no known word is much like it."""
    import difflib

    matches = difflib.get_close_matches(word, sorted(known), n=1)
    return f"did you mean {matches[0]}?" if matches else ""


def completes_files(action: argparse.Action) -> None:
    """An argument that shells complete with the names of files."""
    # The attribute that shtab documents.
    action.complete = {"bash": "_shtab_compgen_files", "zsh": "_files", "tcsh": "f"}  # type: ignore[attr-defined]
