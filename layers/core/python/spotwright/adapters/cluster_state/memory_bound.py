"""While a block runs, the process may take only so much more memory: who writes a body that lies ends no function.

Some KB of a body may unpack to objects of some GB, and a function that needs more memory than it has is killed, with
the work of other clusters. Source: ``man 2 setrlimit``, RLIMIT_DATA, which Linux enforces for all private memory.
"""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_STATUS: Final = Path("/proc/self/status")


@contextmanager
def bounded_memory(further_bytes: int) -> Iterator[None]:
    """MemoryError where the process would take more than so many bytes beyond what it has; no bound outside Linux.

    The bound is the process', so that MemoryError may meet its other threads, too.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    taken = _data_bytes()
    bound = taken + further_bytes
    if not taken or (soft != resource.RLIM_INFINITY and soft <= bound):
        yield
        return
    resource.setrlimit(resource.RLIMIT_DATA, (bound, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _data_bytes() -> int:
    """The private memory of the process; 0 = not known."""
    lines = _STATUS.read_text().splitlines() if _STATUS.exists() else ()
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmData:")), 0)
