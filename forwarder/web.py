"""Serves /metrics, /healthz (the loop goes round) and /readyz (the cluster is seen)."""

import logging
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from forwarder.metrics import CONTENT_TYPE

logger = logging.getLogger("forwarder")


class Pages:
    """What each path answers. ``metrics`` gives the page, the others say whether all is well."""

    def __init__(self, *, metrics: Callable[[], str], healthy: Callable[[], bool], ready: Callable[[], bool]) -> None:
        self._metrics, self._checks = metrics, {"/healthz": healthy, "/readyz": ready}

    def answer(self, path: str) -> tuple[int, str, str]:
        """Status, content type, body."""
        if path == "/metrics":
            return 200, CONTENT_TYPE, self._metrics()
        if path in self._checks:
            well = self._checks[path]()
            return (200 if well else 503), "text/plain", "ok\n" if well else "not ok\n"
        return 404, "text/plain", "not found\n"


def serve(pages: Pages, address: str, port: int) -> ThreadingHTTPServer:
    """Serve in a thread of its own; the server's ``server_address`` says where.

    Where the address cannot be had (it is another machine's, or taken) any free port of loopback is used: news
    must flow without metrics too, and in a pod the probes notice.
    """

    class Request(BaseHTTPRequestHandler):
        timeout = 10

        def do_GET(self) -> None:
            status, content_type, body = pages.answer(self.path.partition("?")[0])
            content = body.encode()
            self.send_response(status)
            self.send_header("Content-Type", content_type)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Scrapes and probes are not news."""

    try:
        server = _bound(address, port, Request)
    except OSError as error:
        logger.warning("metrics served elsewhere", extra={"wanted": f"{address}:{port}", "reason": str(error)})
        server = _bound("127.0.0.1", 0, Request)
    threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()
    return server


def _bound(address: str, port: int, request: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    server_type = type("Server", (ThreadingHTTPServer,), {"address_family": family, "daemon_threads": True})
    server: ThreadingHTTPServer = server_type((address, port), request)
    return server
