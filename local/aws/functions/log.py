"""What a function process prints, framed by START and END lines per invocation, as CloudWatch Logs shows it."""

import os
import select
import subprocess
import threading
import uuid
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import IO

# LogResult of the Invoke API: the last 4 KB.
TAIL_BYTES = 4096
READ_BYTES = 65536


class FunctionLog:
    """Appends one process's output to the function's file, line by line.

    Whoever ends an invocation, or asks for its last lines, first takes what the process has written by then.
    """

    def __init__(self, file: Path, version: str) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        self.stream = f"{datetime.now(UTC):%Y/%m/%d}/[{version}]{uuid.uuid4().hex}"
        self._file = file.open("ab", buffering=0)
        self._lock = threading.Lock()
        self._recent: deque[bytes] = deque(maxlen=400)
        self._version = version
        # The read end of the process's output, -1 before and after; and what it wrote since its last line ended.
        self._output = -1
        self._unfinished = b""

    def follow(self, process: subprocess.Popen[bytes]) -> None:
        """Copy the process's output until it ends, in a thread."""
        assert process.stdout is not None
        self._output = process.stdout.fileno()
        os.set_blocking(self._output, False)
        threading.Thread(target=self._copy, args=(process.stdout,), name="function-log", daemon=True).start()

    def begin(self, request_id: str) -> None:
        self._recent.clear()
        self._write(f"START RequestId: {request_id} Version: {self._version}\n".encode())

    def end(self, request_id: str, error: str, report: str) -> None:
        """`report`: the line that says what was used; empty when nobody knows."""
        self._take()
        status = f" Status: error Error Type: {error}" if error else ""
        self._write(f"END RequestId: {request_id}{status}\n".encode())
        if report:
            self._write(f"{report}\n".encode())

    def tail(self) -> bytes:
        """The last of what there is since `begin`."""
        self._take()
        with self._lock:
            return b"".join(self._recent)[-TAIL_BYTES:]

    def _copy(self, output: IO[bytes]) -> None:
        waiting = select.poll()
        waiting.register(self._output, select.POLLIN)
        with output:
            while self._take():
                waiting.poll()
            # Whoever writes the last line of an invocation may be at it.
            with self._lock:
                self._output = -1
                self._file.close()

    def _take(self) -> bool:
        """Write down whatever the process has written; False when it will write no more."""
        with self._lock:
            while self._output >= 0:
                try:
                    content = os.read(self._output, READ_BYTES)
                except BlockingIOError:
                    return True
                if not content:
                    break
                *lines, self._unfinished = (self._unfinished + content).split(b"\n")
                for line in lines:
                    self._keep(line + b"\n")
            if self._unfinished:
                self._keep(self._unfinished)
                self._unfinished = b""
        return False

    def _write(self, line: bytes) -> None:
        with self._lock:
            self._keep(line)

    def _keep(self, line: bytes) -> None:
        self._recent.append(line)
        if not self._file.closed:
            self._file.write(line)
