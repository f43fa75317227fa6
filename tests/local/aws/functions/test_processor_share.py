"""A process has the part of a processor that its memory buys, with control groups or without."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.aws.functions.processor_share import Hold, hold, hold_by_control_group, hold_by_stops

# Waits for a line, then works for 0.3 s of a processor.
WORK = "import time; input(); end = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
# 256 MB are 0.145 processors: two seconds for that work.
MEMORY_MB, SECONDS = 256, 2.0


@pytest.fixture
def worker() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen([sys.executable, "-c", WORK], stdin=subprocess.PIPE)
    yield process
    process.kill()
    process.wait()


def seconds_of_work(process: subprocess.Popen[bytes], how: Hold) -> float:
    release = how(process.pid, MEMORY_MB)
    started = time.monotonic()
    process.communicate(b"\n", timeout=120)
    release()
    return time.monotonic() - started


def test_a_process_without_control_groups_is_stopped_and_started(worker: subprocess.Popen[bytes]) -> None:
    assert seconds_of_work(worker, hold_by_stops) > SECONDS / 2
    assert worker.returncode == 0


def test_it_is_held_wherever_control_groups_are_refused(worker: subprocess.Popen[bytes], tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        hold_by_control_group(worker.pid, MEMORY_MB, tmp_path / "none")
    assert seconds_of_work(worker, lambda pid, memory: hold(pid, memory, tmp_path / "none")) > SECONDS / 2


def test_it_is_held_as_this_machine_can(worker: subprocess.Popen[bytes]) -> None:
    assert seconds_of_work(worker, hold) > SECONDS / 2
