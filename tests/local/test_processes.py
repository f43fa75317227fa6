"""Nothing is left behind, however a stack ends."""

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from local.ports import Ports
from local.processes import ProcessEnded, Processes

# A process with a child of its own; both write their ids.
FAMILY = "echo $$ > parent; sleep 600 & echo $! > child; wait"
STUBBORN = "trap '' TERM; echo $$ > parent; while true; do sleep 1; done"


def is_alive(pid: int) -> bool:
    try:
        return "zombie" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False


def until(holds: Callable[[], object], seconds: float = 180.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "it did not come about in time"
        time.sleep(0.05)


def pid_in(path: Path) -> int:
    until(lambda: path.exists() and path.read_text().strip())
    return int(path.read_text())


def test_close_ends_whole_families(tmp_path: Path) -> None:
    with Processes(tmp_path / "logs") as processes:
        processes.start("family", ["/bin/sh", "-c", FAMILY], directory=tmp_path)
        pids = [pid_in(tmp_path / name) for name in ("parent", "child")]
        assert all(map(is_alive, pids))
    until(lambda: not any(map(is_alive, pids)))


def test_one_that_ignores_sigterm_is_killed(tmp_path: Path) -> None:
    with Processes(tmp_path / "logs") as processes:
        processes.start("stubborn", ["/bin/sh", "-c", STUBBORN], directory=tmp_path)
        pid = pid_in(tmp_path / "parent")
        processes.stop("stubborn", grace_seconds=0.3)
        assert not is_alive(pid)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("script", [FAMILY, STUBBORN])
def test_processes_end_with_the_one_that_started_them(tmp_path: Path, number: signal.Signals, script: str) -> None:
    """Also when it is killed and can do nothing about it any more."""
    program = f"""
        import time
        from pathlib import Path
        from local.processes import Processes
        processes = Processes(Path("logs"))
        processes.start("family", ["/bin/sh", "-c", {script!r}])
        time.sleep(600)
    """
    owner = start_owner(program, tmp_path)
    pids = [pid_in(tmp_path / "parent")]
    if script == FAMILY:
        pids.append(pid_in(tmp_path / "child"))
    owner.send_signal(number)
    owner.wait(180)
    until(lambda: not any(map(is_alive, pids)))


def start_owner(program: str, folder: Path) -> subprocess.Popen[bytes]:
    """A process of its own that runs the program, which may import what we do."""
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(program)],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stderr=subprocess.DEVNULL,
    )


def test_nothing_begins_before_it_is_known_that_it_has_to_end(tmp_path: Path) -> None:
    """Its owner is killed as it is about to say so."""
    program = """
        import os, signal
        from pathlib import Path
        from local.processes import Processes
        def tell(line):
            Path("told").write_text(line)
            os.kill(os.getpid(), signal.SIGKILL)
        processes = Processes(Path("logs"))
        processes._tell = tell
        processes.start("sleeper", ["/bin/sh", "-c", "echo > began; sleep 600"])
    """
    start_owner(program, tmp_path).wait(180)
    until(lambda: not is_alive(int((tmp_path / "told").read_text().removeprefix("+ "))))
    assert not (tmp_path / "began").exists()


def test_a_process_sees_its_own_environment_alone(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start("shows", [sys.executable, "-c", "import os; print(*os.environ)"], environment={"OWN": "1"})
        until(lambda: processes.exit_codes() == {"shows": 0})
        assert set(processes.log_tail("shows").split()) <= {"OWN", "LC_CTYPE"}


def test_a_process_that_ends_before_it_is_ready_says_why(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start("broken", ["/bin/sh", "-c", "echo no such flag; exit 7"])
        with pytest.raises(ProcessEnded, match=r"broken ended with 7:\nno such flag"):
            processes.wait("broken", lambda: False, timeout_seconds=180)


def test_one_that_never_gets_ready_is_given_up(tmp_path: Path) -> None:
    with Processes(tmp_path) as processes:
        processes.start("slow", ["/bin/sleep", "600"])
        with pytest.raises(ProcessEnded, match="slow was not ready after 0 s"):
            processes.wait("slow", lambda: False, timeout_seconds=0.2)


def test_ports_are_not_given_twice_not_even_to_another_stack() -> None:
    ports, two = Ports(), Ports()
    taken = [ports.take() for ports in (ports, two) for _ in range(50)]
    assert len(set(taken)) == 100
    ports.close()
    two.close()
