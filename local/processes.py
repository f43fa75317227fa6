"""The processes of one stack: each has its own log and group, and all end when this process ends.

However this process ends: a guardian (a shell that only waits for the end of a pipe) terminates the
groups when the pipe closes, which the kernel does even after SIGKILL.
"""

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

POLL_SECONDS = 0.05
# Components get this long to end on SIGTERM before SIGKILL.
STOP_SECONDS = 5.0

# Lines are "+ GROUP" and "- GROUP"; at the end of the input every group still listed is ended.
GUARDIAN = """
trap '' INT TERM HUP
groups=' '
while read -r sign group; do
  case $sign in
    +) groups=" $group$groups" ;;
    -) rest=' '; for g in $groups; do [ "$g" = "$group" ] || rest="$rest$g "; done; groups=$rest ;;
  esac
done
[ "$groups" = ' ' ] && exit 0
# Only this form of kill is understood by dash and bash alike.
for g in $groups; do kill -s TERM -- "-$g" 2>/dev/null; done
sleep 2
for g in $groups; do kill -s KILL -- "-$g" 2>/dev/null; done
"""

# A process begins when it is told to, which is when the guardian knows of it; and never, when its owner has ended. The
# variables are those that a shell sets for what it runs.
BEGIN = 'read -r go && unset OLDPWD PWD SHLVL _ && exec "$@" </dev/null'


class ProcessEnded(RuntimeError):
    """A process ended, or did not get ready in time; the text holds the end of its log."""


class Processes:
    """Starts processes and ends them in reverse order. Logs go to `logs`/NAME.log (appended)."""

    def __init__(self, logs: Path) -> None:
        logs.mkdir(parents=True, exist_ok=True)
        self._logs = logs
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._guardian = _start_guardian()

    def start(
        self,
        name: str,
        command: Sequence[str | Path],
        *,
        environment: Mapping[str, str] | None = None,
        directory: Path | None = None,
    ) -> subprocess.Popen[bytes]:
        """Start `command` in a session of its own; `environment` None inherits ours."""
        if name in self._running:
            raise ValueError(f"a process {name} is already here")
        with (self._logs / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                ["/bin/sh", "-c", BEGIN, "begin", *(str(part) for part in command)],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=None if environment is None else dict(environment),
                cwd=directory,
                start_new_session=True,
            )
        self._tell(f"+ {process.pid}")
        self._running[name] = process
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError), process.stdin as told:
            told.write(b"\n")
        return process

    def wait(self, name: str, ready: Callable[[], bool], *, timeout_seconds: float) -> None:
        """Wait until `ready()`. Raises ProcessEnded when the process ends first or time runs out."""
        deadline = time.monotonic() + timeout_seconds
        while not ready():
            code = self._running[name].poll()
            if code is not None:
                raise ProcessEnded(f"{name} ended with {code}:\n{self.log_tail(name)}")
            if time.monotonic() > deadline:
                text = f"{name} was not ready after {timeout_seconds:.0f} s:\n{self.log_tail(name)}"
                raise ProcessEnded(text)
            time.sleep(POLL_SECONDS)

    def pids(self) -> dict[str, int]:
        """Name to process id of everything started and not yet stopped."""
        return {name: process.pid for name, process in self._running.items()}

    def exit_codes(self) -> dict[str, int]:
        """Name to return code of processes that ended by themselves."""
        codes = {name: process.poll() for name, process in self._running.items()}
        return {name: code for name, code in codes.items() if code is not None}

    def log_tail(self, name: str, lines: int = 15) -> str:
        """The last lines of a process's log."""
        text = (self._logs / f"{name}.log").read_text(errors="replace")
        return "\n".join(text.splitlines()[-lines:])

    def stop(self, name: str, *, grace_seconds: float = STOP_SECONDS) -> None:
        """End one process and everything in its group; nothing happens when there is none of that name."""
        process = self._running.pop(name, None)
        if process is None:
            return
        _signal_group(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_seconds)
        _signal_group(process.pid, signal.SIGKILL)
        process.wait()
        self._tell(f"- {process.pid}")

    def close(self) -> None:
        """End every process, the last started first, then the guardian."""
        for name in reversed(list(self._running)):
            self.stop(name)
        if self._guardian.stdin is not None:
            self._guardian.stdin.close()
        self._guardian.wait()

    def _tell(self, line: str) -> None:
        assert self._guardian.stdin is not None
        self._guardian.stdin.write(line.encode() + b"\n")
        self._guardian.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _start_guardian() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", GUARDIAN],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        start_new_session=True,
    )


def _signal_group(group: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(group, number)
