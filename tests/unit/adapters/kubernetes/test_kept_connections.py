"""Calls that are made at once keep their connections: the next ones begin without a handshake."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from kubernetes.client.configuration import Configuration

from spotwright.adapters.kubernetes.connection import KEPT_CONNECTIONS, Connection
from spotwright.workflows.lifecycle.workflow import _BUYING_AT_ONCE
from spotwright.workflows.parallel import CALLS_AT_ONCE


class _Server(ThreadingHTTPServer):
    """Answers as soon as as many calls wait as are made at once; counts its connections."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, at_once: int) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.together = threading.Barrier(at_once)
        self.connections = 0

    def get_request(self):  # type: ignore[no-untyped-def]
        self.connections += 1
        return super().get_request()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Server

    def do_GET(self) -> None:
        self.server.together.wait(timeout=30)
        self.send_response(200)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, format: str, *args: object) -> None:
        """Nothing on standard error."""


@pytest.fixture
def server() -> Iterator[_Server]:
    with _Server(KEPT_CONNECTIONS) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield running
        running.shutdown()


def test_calls_that_are_made_at_once_again_and_again_need_no_new_connections(server: _Server) -> None:
    connection = Connection(Configuration(host=f"http://127.0.0.1:{server.server_port}"))
    with ThreadPoolExecutor(KEPT_CONNECTIONS) as threads:
        for _ in range(3):
            list(threads.map(lambda number: connection.call("GET", f"/{number}"), range(KEPT_CONNECTIONS)))
    assert server.connections == KEPT_CONNECTIONS


def test_as_many_connections_are_kept_as_launches_make_calls_at_once() -> None:
    assert KEPT_CONNECTIONS >= _BUYING_AT_ONCE * CALLS_AT_ONCE
