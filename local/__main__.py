"""The local stack from the command line.

`up` runs until it is interrupted (`--detach` returns when the stack is up), `down` ends it, `build` only
builds the control plane's binaries.
"""

import argparse
import fcntl
import json
import os
import shlex
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

from local.kubernetes.binaries import BuildFailed, ensure_built
from local.kubernetes.other_module import ModuleMissing
from local.kubernetes.toolchain import ToolchainMissing
from local.kubernetes.versions import UnknownVersion
from local.processes import ProcessEnded
from local.stack import CLUSTER, REGION, Stack, StackInUse, StackOptions, print_progress

START_SECONDS = 3600
STOP_SECONDS = 300


def main() -> int:
    arguments = _arguments()
    try:
        match arguments.command:
            case "build":
                print(ensure_built(print_progress).folder)
                return 0
            case "up":
                return _detach(arguments) if arguments.detach else _up(arguments)
            case _:
                return _down(arguments.directory)
    except (BuildFailed, ModuleMissing, UnknownVersion, ToolchainMissing, ProcessEnded, StackInUse) as error:
        print_progress(str(error))
        return 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m local", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("build", help="build the control plane's binaries")
    up = commands.add_parser("up", help="start a stack")
    down = commands.add_parser("down", help="end the stack of a directory")
    for command in (up, down):
        command.add_argument("--directory", type=Path, default=Path("build/stack"))
    up.add_argument("--cluster", default=CLUSTER)
    up.add_argument("--region", default=REGION)
    up.add_argument("--detach", action="store_true", help="return when the stack is up; end it with `down`")
    up.add_argument("--boot-seconds", type=float, default=StackOptions().boot_seconds)
    up.add_argument("--lenient", nargs="*", metavar="RULE", help="what the local AWS is not to be strict about")
    up.add_argument("--pods", type=json.loads, default={}, help="JSON: image name to the command of its pods")
    return parser.parse_args()


def _up(arguments: argparse.Namespace) -> int:
    """Run in the foreground until SIGINT or SIGTERM, or until a part ends by itself."""
    # A script's background job is born ignoring SIGINT, so that one too is set.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    options = StackOptions(
        cluster=arguments.cluster,
        region=arguments.region,
        boot_seconds=arguments.boot_seconds,
        pod_commands=arguments.pods,
    )
    if arguments.lenient is not None:
        options = replace(options, lenient=arguments.lenient)
    try:
        with Stack.start(arguments.directory, options=options) as stack:
            for name, value in stack.environment().items():
                print(f"export {name}={shlex.quote(value)}", flush=True)
            return _watch(stack)
    except KeyboardInterrupt:
        return 0


def _watch(stack: Stack) -> int:
    while not (ended := stack.exit_codes()):
        time.sleep(0.5)
    print_progress(f"ended by themselves: {ended}; logs in {stack.logs}")
    return 1


def _detach(arguments: argparse.Namespace) -> int:
    """Start `up` in a session of its own and wait for its stack.json."""
    arguments.directory.mkdir(parents=True, exist_ok=True)
    described = arguments.directory / "stack.json"
    if _is_held(arguments.directory):
        raise StackInUse(f"a stack is running in {arguments.directory}")
    described.unlink(missing_ok=True)
    command = [sys.executable, "-m", "local", *(word for word in sys.argv[1:] if word != "--detach")]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
    deadline = time.monotonic() + START_SECONDS
    while not described.exists() and time.monotonic() < deadline:
        if process.poll() is not None:
            return process.returncode or 1
        time.sleep(0.1)
    return 0


def _down(directory: Path) -> int:
    """Ask the process that holds the directory's lock to end, and wait until it has."""
    described = directory / "stack.json"
    if not described.exists() or not _is_held(directory):
        print_progress(f"no stack is running in {directory}")
        return 0
    os.kill(json.loads(described.read_text())["pid"], signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while _is_held(directory):
        if time.monotonic() > deadline:
            print_progress(f"the stack in {directory} did not end within {STOP_SECONDS} s")
            return 1
        time.sleep(0.1)
    return 0


def _is_held(directory: Path) -> bool:
    with (directory / "stack.lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


if __name__ == "__main__":
    sys.exit(main())
