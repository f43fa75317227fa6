"""The part of a processor that a function's memory buys, held by a control group of Linux, else by stops and starts.

Off until the control API or the strictness asks for it: a test should not wait as long as a small function does. The
control group needs root, and the controller `cpu` of cgroup v1 or v2.
Sources: https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html (1,769 MB are one vCPU),
https://docs.kernel.org/admin-guide/cgroup-v2.html and https://docs.kernel.org/scheduler/sched-bwc.html.
"""

import os
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from local.aws.functions.usage import processor_seconds

MB_PER_PROCESSOR = 1769
CGROUPS = Path("/sys/fs/cgroup")
# In each period a group has its share and then waits for the next.
PERIOD_MICROSECONDS = 20_000
# The same for a process that is stopped and started; looked at so often, a period may not be much shorter.
CYCLE_SECONDS, LOOK_SECONDS = 0.1, 0.005

# Takes back what holds a process that has ended.
type Release = Callable[[], None]
type Hold = Callable[[int, int], Release]


def processors(memory_mb: int) -> float:
    """How many processors Lambda gives a function with so much memory."""
    return memory_mb / MB_PER_PROCESSOR


def hold(pid: int, memory_mb: int, root: Path = CGROUPS) -> Release:
    """Hold a process to the share of its memory, whatever this machine allows."""
    try:
        return hold_by_control_group(pid, memory_mb, root)
    except OSError:
        return hold_by_stops(pid, memory_mb)


def hold_by_control_group(pid: int, memory_mb: int, root: Path = CGROUPS) -> Release:
    """The kernel does it, exactly. Raises OSError where that is not allowed."""
    quota = str(round(processors(memory_mb) * PERIOD_MICROSECONDS))
    if (root / "cpu" / "cgroup.procs").exists():
        group = root / "cpu" / f"spotwright-{pid}"
        limits = {"cpu.cfs_period_us": str(PERIOD_MICROSECONDS), "cpu.cfs_quota_us": quota}
    else:
        (root / "cgroup.subtree_control").write_text("+cpu")
        group, limits = root / f"spotwright-{pid}", {"cpu.max": f"{quota} {PERIOD_MICROSECONDS}"}
    group.mkdir()
    for name, value in limits.items():
        (group / name).write_text(value)
    (group / "cgroup.procs").write_text(str(pid))
    return lambda: _remove(group)


def _remove(group: Path) -> None:
    with suppress(OSError):
        group.rmdir()


def hold_by_stops(pid: int, memory_mb: int) -> Release:
    """A process that has used its share of a period stands still until the next; roughly right."""
    ended = threading.Event()
    quota = processors(memory_mb) * CYCLE_SECONDS
    threading.Thread(target=_cycle, args=(pid, quota, ended), name=f"share-{pid}", daemon=True).start()
    return ended.set


def _cycle(pid: int, quota_seconds: float, ended: threading.Event) -> None:
    with suppress(ProcessLookupError, PermissionError, OSError):
        while not ended.is_set():
            until, used = time.monotonic() + CYCLE_SECONDS, processor_seconds(pid)
            while time.monotonic() < until and not ended.wait(LOOK_SECONDS):
                if processor_seconds(pid) - used >= quota_seconds:
                    os.kill(pid, signal.SIGSTOP)
                    ended.wait(until - time.monotonic())
                    os.kill(pid, signal.SIGCONT)
