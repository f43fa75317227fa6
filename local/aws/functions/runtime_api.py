"""The Lambda Runtime API (2018-06-01) towards one execution environment, on a loopback port of its own.

Source: https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html
"""

import json
import queue
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PREFIX = "/2018-06-01/runtime/"


@dataclass
class Invocation:
    """One event on its way through a function. `deadline_ms` is epoch milliseconds.

    `error` is "" for success, else the error type; `answer` is then the error document.
    """

    request_id: str
    function_arn: str
    payload: bytes
    trace_header: str
    client_context: str = ""
    deadline_ms: int = 0
    answer: bytes = b""
    error: str = ""
    finished: threading.Event = field(default_factory=threading.Event)

    def finish(self, answer: bytes, error: str = "") -> None:
        """The first outcome counts; a late answer after a timeout changes nothing."""
        if not self.finished.is_set():
            self.answer, self.error = answer, error
            self.finished.set()


class RuntimeApi(ThreadingHTTPServer):
    """Serves next, response, error and init/error to exactly one runtime process."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.ready = threading.Event()
        self.init_error: tuple[str, bytes] | None = None
        self.current_invocation: Invocation | None = None
        self._waiting: queue.SimpleQueue[Invocation | None] = queue.SimpleQueue()
        threading.Thread(
            target=self.serve_forever, kwargs={"poll_interval": 0.5}, name="runtime-api", daemon=True
        ).start()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_address[1]}"

    def submit(self, invocation: Invocation) -> None:
        self.current_invocation = invocation
        self._waiting.put(invocation)

    def next(self) -> Invocation | None:
        """Blocks until there is something to do; None once the environment is closed."""
        self.ready.set()
        return self._waiting.get()

    def fail_init(self, error_type: str, document: bytes) -> None:
        self.init_error = (error_type, document)
        self.ready.set()

    def close(self) -> None:
        self._waiting.put(None)
        self.shutdown()
        self.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Without these two each call waits about 40 ms for a delayed acknowledgement.
    disable_nagle_algorithm = True
    wbufsize = -1
    server: RuntimeApi

    def do_GET(self) -> None:
        invocation = self.server.next() if self.path == PREFIX + "invocation/next" else None
        if invocation is None:
            self.close_connection = True
            return self._answer(410, b"{}")
        return self._answer(200, invocation.payload, _headers(invocation))

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        error_type = self.headers.get("Lambda-Runtime-Function-Error-Type", "")
        match self.path.removeprefix(PREFIX).split("/"):
            case ["invocation", request_id, "response"]:
                self._finish(request_id, body, "")
            case ["invocation", request_id, "error"]:
                self._finish(request_id, body, error_type or _error_type(body))
            case ["init", "error"]:
                self.server.fail_init(error_type or _error_type(body), body)
            case _:
                return self._answer(404, b"{}")
        return self._answer(202, b'{"status":"OK"}')

    def _finish(self, request_id: str, body: bytes, error: str) -> None:
        current = self.server.current_invocation
        if current is not None and current.request_id == request_id:
            current.finish(body, error)

    def _answer(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *args: Any) -> None:
        """Requests of the runtime are not worth a line each."""


def _headers(invocation: Invocation) -> dict[str, str]:
    headers = {
        "Lambda-Runtime-Aws-Request-Id": invocation.request_id,
        "Lambda-Runtime-Deadline-Ms": str(invocation.deadline_ms),
        "Lambda-Runtime-Invoked-Function-Arn": invocation.function_arn,
        "Lambda-Runtime-Trace-Id": invocation.trace_header,
    }
    if invocation.client_context:
        headers["Lambda-Runtime-Client-Context"] = invocation.client_context
    return headers


def _error_type(document: bytes) -> str:
    try:
        return str(json.loads(document).get("errorType", "Unknown"))
    except (ValueError, AttributeError):
        return "Unknown"
