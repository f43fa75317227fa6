"""Nothing outlives the local AWS: not when it is told to end, not when it is killed."""

import os
import signal
from pathlib import Path

import pytest

from tests.local.aws.serverless import eventually, run_local_aws

BUSY = """
import os, pathlib, time
def handler(event, context):
    pathlib.Path(event).write_text(str(os.getpid()))
    time.sleep(600)
"""


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGKILL])
def test_function_processes_end_with_it(tmp_path: Path, how: signal.Signals) -> None:
    with run_local_aws(tmp_path) as aws:
        aws.function("idle", "import os\ndef handler(e, c):\n    return os.getpid()")
        mark = tmp_path / "busy"
        aws.function("busy", BUSY, Timeout=600)
        idle, _ = aws.invoke("idle")
        aws.invoke("busy", str(mark), InvocationType="Event")
        busy = int(eventually(lambda: mark.exists() and mark.read_text()))
        os.kill(aws.pid, how)
        eventually(lambda: not _alive(idle) and not _alive(busy), what="the end of the functions")


def _alive(pid: int) -> bool:
    """A zombie does not count: whoever adopted it has yet to collect it."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
