"""The part of a processor that a function's memory buys, held by a control group of Linux.

Off until the control API asks for it: a test should not wait as long as a small function does. Needs root, and the
controller `cpu` of cgroup v1 or v2; where one of them is missing, `hold` raises OSError.
Sources: https://docs.aws.amazon.com/lambda/latest/dg/configuration-memory.html (1,769 MB are one vCPU),
https://docs.kernel.org/admin-guide/cgroup-v2.html and https://docs.kernel.org/scheduler/sched-bwc.html.
"""

from contextlib import suppress
from pathlib import Path

MB_PER_PROCESSOR = 1769
CGROUPS = Path("/sys/fs/cgroup")
# In each period a group has its share and then waits for the next.
PERIOD_MICROSECONDS = 20_000


def processors(memory_mb: int) -> float:
    """How many processors Lambda gives a function with so much memory."""
    return memory_mb / MB_PER_PROCESSOR


def hold(pid: int, memory_mb: int, root: Path = CGROUPS) -> Path:
    """Hold a process to the share of its memory; the control group, which `release` takes away. Raises OSError."""
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
    return group


def release(group: Path) -> None:
    """Take a group away whose processes have ended."""
    with suppress(OSError):
        group.rmdir()
