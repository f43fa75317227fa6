"""Serves /metrics, /healthz (the loop runs) and /readyz (watches are up to date, and AWS took a heartbeat)."""

import logging
import socket
import threading
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Metric, generate_latest

from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line

logger = logging.getLogger("forwarder")

#: Path to what asks for the reason why not; "" = all is well.
type Checks = Mapping[str, Callable[[], str]]


class _Family:
    """A single metric, as the library's encoder takes it."""

    def __init__(self, metric: Metric) -> None:
        self._metric = metric

    def collect(self) -> Iterable[Metric]:
        return (self._metric,)


def page_parts(metrics: Iterable[Metric]) -> Iterator[bytes]:
    """The page in parts: as a whole, that of 50,000 pods would be most of the forwarder's memory.

    A metric may come several times in a row, with other samples; its name and type are written once.
    """
    before = ""
    for metric in metrics:
        text = generate_latest(_Family(metric))
        yield (
            text
            if metric.name != before
            else b"".join(line for line in text.splitlines(keepends=True) if not line.startswith(b"# "))
        )
        before = metric.name


class _Pages(BaseHTTPRequestHandler):
    """/metrics has the metrics of ``registry``; each path of ``checks`` answers 200 or 503."""

    timeout = 10
    registry: ClassVar[CollectorRegistry]
    checks: ClassVar[Checks] = {}

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._say_metrics()
        elif path not in self.checks:
            self._say(404, "not found")
        elif reason := self.checks[path]():
            self._say(503, reason)
        else:
            self._say(200, "ok")

    def _say_metrics(self) -> None:
        is_compressed = "gzip" in self.headers.get("Accept-Encoding", "")
        # 31: with the header and the end of a gzip file.
        compressor = zlib.compressobj(1, wbits=31) if is_compressed else None
        self.send_response(200)
        self.send_header("Content-Type", CONTENT_TYPE_LATEST)
        if compressor:
            self.send_header("Content-Encoding", "gzip")
        self.end_headers()
        for part in page_parts(self.registry.collect()):
            self.wfile.write(compressor.compress(part) if compressor else part)
        if compressor:
            self.wfile.write(compressor.flush())

    def log_message(self, format: str, *args: object) -> None:
        """Requests are not logged."""

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


def _bound(address: str, port: int, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server_type = type("Server", (ThreadingHTTPServer,), {"address_family": family, "daemon_threads": True})
    server: ThreadingHTTPServer = server_type((address, port), handler)
    return server
