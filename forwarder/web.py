"""Serves /metrics, /healthz (the loop runs) and /readyz (every watch is up to date)."""

import logging
import socket
import threading
from collections.abc import Callable, Mapping
from http.server import ThreadingHTTPServer
from typing import ClassVar

from prometheus_client import CollectorRegistry, MetricsHandler

from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line

logger = logging.getLogger("forwarder")

type Checks = Mapping[str, Callable[[], bool]]


class _Pages(MetricsHandler):
    """The library's handler answers /metrics; each path of ``checks`` answers 200 or 503."""

    timeout = 10
    checks: ClassVar[Checks] = {}

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            super().do_GET()
        elif path not in self.checks:
            self._say(404, "not found")
        elif self.checks[path]():
            self._say(200, "ok")
        else:
            self._say(503, "not ok")

    def _say(self, status: int, text: str) -> None:
        content = f"{text}\n".encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)


def serve(registry: CollectorRegistry, checks: Checks, address: str, port: int) -> ThreadingHTTPServer:
    """Serve in a thread of its own; the server's ``server_address`` says where.

    When the address is taken or of another machine, a free port of loopback is used: doorbells are sent without metrics
    too, and in a pod the probes fail.
    """
    handler = type("Pages", (_Pages,), {"registry": registry, "checks": checks})
    try:
        server = _bound(address, port, handler)
    except OSError as error:
        log_line(logger, log_lines.METRICS_ADDRESS_UNAVAILABLE, address=f"{address}:{port}", error=str(error))
        server = _bound("127.0.0.1", 0, handler)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


def _bound(address: str, port: int, handler: type[MetricsHandler]) -> ThreadingHTTPServer:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server_type = type("Server", (ThreadingHTTPServer,), {"address_family": family, "daemon_threads": True})
    server: ThreadingHTTPServer = server_type((address, port), handler)
    return server
