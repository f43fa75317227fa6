"""What a function process prints, framed by START and END lines per invocation, as CloudWatch Logs shows it."""

import subprocess
import threading
import time
import uuid
from collections import deque
from datetime import UTC, datetime
from pathlib import Path

# LogResult of the Invoke API: the last 4 KB.
TAIL_BYTES = 4096
# How long `tail` lets the last lines travel through the pipe, in seconds.
SETTLE_SECONDS = 0.02


class FunctionLog:
    """Appends one process's output to the function's file, line by line."""

    def __init__(self, file: Path, version: str) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self.stream = f"{datetime.now(UTC):%Y/%m/%d}/[{version}]{uuid.uuid4().hex}"
        self._file = file.open("ab", buffering=0)
        self._lock = threading.Lock()
        self._recent: deque[bytes] = deque(maxlen=400)
        self._version = version

    def follow(self, process: subprocess.Popen[bytes]) -> None:
        """Copy the process's output until it ends, in a thread."""
        threading.Thread(target=self._copy, args=(process,), name="function-log", daemon=True).start()

    def begin(self, request_id: str) -> None:
        self._recent.clear()
        self._write(f"START RequestId: {request_id} Version: {self._version}\n".encode())

    def end(self, request_id: str, error: str, report: str) -> None:
        """`report`: the line that says what was used; empty when nobody knows."""
        status = f" Status: error Error Type: {error}" if error else ""
        self._write(f"END RequestId: {request_id}{status}\n".encode())
        if report:
            self._write(f"{report}\n".encode())

    def tail(self) -> bytes:
        time.sleep(SETTLE_SECONDS)
        return b"".join(self._recent)[-TAIL_BYTES:]

    def _copy(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout is not None
        with process.stdout as output:
            for line in output:
                self._write(line)
        # Whoever writes the last line of an invocation may be at it.
        with self._lock:
            self._file.close()

    def _write(self, line: bytes) -> None:
        with self._lock:
            self._recent.append(line)
            if not self._file.closed:
                self._file.write(line)
