"""Processes of the stack: which are held while a figure is taken or get one processor, what they use. Linux alone."""

import os
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def held(pids: Iterable[int]) -> Iterator[None]:
    """These processes stand still until the end; one that has ended meanwhile is fine."""
    stopped = tuple(pids)
    try:
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        yield
    finally:
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


def hold_to_one_processor(pids: Iterable[int]) -> None:
    """All threads of these processes run on the same processor from now on."""
    _hold(pids, {min(os.sched_getaffinity(0))})


def release_processors(pids: Iterable[int]) -> None:
    """They run on any processor that this process may use."""
    _hold(pids, os.sched_getaffinity(0))


def _hold(pids: Iterable[int], processors: set[int]) -> None:
    for pid in pids:
        for thread in _numbers(Path(f"/proc/{pid}/task")):
            with suppress(ProcessLookupError):
                os.sched_setaffinity(thread, processors)


def children(parent: int) -> tuple[int, ...]:
    """The processes that a process started and that have not ended."""
    return tuple(pid for pid in _numbers(Path("/proc")) if _parent(pid) == parent)


def _numbers(folder: Path) -> tuple[int, ...]:
    with suppress(FileNotFoundError):
        return tuple(int(path.name) for path in folder.iterdir() if path.name.isdigit())
    return ()


def _parent(pid: int) -> int:
    """0 where the process has ended."""
    with suppress(FileNotFoundError, ProcessLookupError):
        # The name of the program, in parentheses, may have spaces.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return 0


def processor_seconds(pid: int, *, of_ended_children: bool = False) -> float:
    """What a process has used, in user and in system mode, or what those used that it started and that have ended; 0
    where it has ended itself.
    """
    with suppress(FileNotFoundError, ProcessLookupError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        user, system = fields[13:15] if of_ended_children else fields[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")
    return 0.0
