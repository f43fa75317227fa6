"""What an invocation used: its time, its processor's time and its process's memory, and AWS's REPORT line about it."""

import time
from dataclasses import dataclass
from pathlib import Path

# https://docs.kernel.org/filesystems/proc.html: the most memory that the process ever had at once.
_PEAK = "VmHWM:"
_KIB = 1024


@dataclass(frozen=True)
class Usage:
    """Of one invocation. `init_seconds`: from the start of the process to its first `next`; 0 for a warm process.

    `processor_seconds` counts the start as well.
    """

    seconds: float
    init_seconds: float
    processor_seconds: float
    peak_bytes: int

    def report(self, request_id: str, memory_mb: int) -> str:
        """As Lambda logs it, and the processor's time, which Lambda does not tell."""
        parts = {
            "RequestId": request_id,
            "Duration": f"{self.seconds * 1000:.2f} ms",
            "Memory Size": f"{memory_mb} MB",
            "Max Memory Used": f"{self.peak_bytes / _KIB**2:.0f} MB",
            **({"Init Duration": f"{self.init_seconds * 1000:.2f} ms"} if self.init_seconds else {}),
            "Processor Time": f"{self.processor_seconds * 1000:.2f} ms",
        }
        return "REPORT " + "\t".join(f"{name}: {value}" for name, value in parts.items())


class UsageMeter:
    """Measures one process from its start, invocation by invocation."""

    def __init__(self, pid: int) -> None:
        self._pid, self._started = pid, time.monotonic()
        self._began = 0.0
        self._init_seconds = 0.0
        self._counted = 0.0

    def begin(self) -> None:
        """An invocation is about to be handed over."""
        now = time.monotonic()
        self._init_seconds = 0.0 if self._began else now - self._started
        self._began = now

    def end(self) -> Usage:
        """What the invocation used. Raises OSError when the process has ended."""
        used, before = processor_seconds(self._pid), self._counted
        self._counted = used
        return Usage(time.monotonic() - self._began, self._init_seconds, used - before, peak_bytes(self._pid))


def processor_seconds(pid: int) -> float:
    """What all threads of a process have used so far. Raises OSError when the process has ended."""
    # The clock's number as clock_getcpuclockid(3) makes it.
    return time.clock_gettime(~pid << 3 | 2)


def peak_bytes(pid: int) -> int:
    """The most memory that a process has had. Raises OSError when it has ended."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) * _KIB for line in lines if line.startswith(_PEAK)), 0)
