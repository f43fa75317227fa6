"""What a function's process prints is in its log when the invocation has ended."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from local.aws.functions.log import FunctionLog

# Prints, answers on standard error, and goes on until its input ends.
PRINTS = """
import sys
print("hello", "from the process", sep="\\n")
print("unfinished", end="", flush=True)
print("done", file=sys.stderr, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def prints() -> Iterator[subprocess.Popen[bytes]]:
    """It has printed by now."""
    command = [sys.executable, "-c", PRINTS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        assert process.stderr.readline() == b"done\n"
        yield process


def test_nobody_need_have_copied_what_was_printed(
    prints: subprocess.Popen[bytes], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that copies may not have had its turn."""
    monkeypatch.setattr(threading.Thread, "start", lambda _: None)
    log = FunctionLog(tmp_path / "function.log", "1")
    log.follow(prints)
    log.begin("r")
    assert log.tail().splitlines() == [b"START RequestId: r Version: 1", b"hello", b"from the process"]
    log.end("r", "", "REPORT")
    lines = (tmp_path / "function.log").read_text().splitlines()
    assert lines[-4:] == ["hello", "from the process", "END RequestId: r", "REPORT"]


def test_the_last_line_is_kept_when_the_process_ends(prints: subprocess.Popen[bytes], tmp_path: Path) -> None:
    before = set(threading.enumerate())
    log = FunctionLog(tmp_path / "function.log", "1")
    log.follow(prints)
    (copier,) = set(threading.enumerate()) - before
    assert prints.stdin is not None
    prints.stdin.close()
    copier.join(120)
    assert (tmp_path / "function.log").read_text() == "hello\nfrom the process\nunfinished"
    log.end("r", "", "")
    assert log.tail().endswith(b"END RequestId: r\n")
