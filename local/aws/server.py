"""The HTTP server of the process: AWS calls to the gateway, `/_local/` to the control API.

Connections are kept alive and Nagle's algorithm is off (each call would wait 40 ms for it otherwise).
"""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Protocol

from local.aws import (
    capacity,
    cloudformation,
    control_ec2,
    control_identity,
    custom_resources,
    ec2,
    ec2_catalog,
    ec2_templates,
    eks_api,
    eventbridge,
    faults,
    fleet,
    functions,
    iam,
    identity,
    pricing,
    queues,
    reservations,
    schedules,
    seed,
    spot,
    ssm,
    throttling,
    zonal_shift,
)
from local.aws.calls import CallLog
from local.aws.control import Control
from local.aws.gateway import Gateway
from local.aws.request import AwsRequest, AwsResponse, ConnectionDropped
from local.aws.world import World


class Feature(Protocol):
    """A module that plugs into a world."""

    def add(self, world: World) -> None: ...


# Every feature of the local AWS, in the order in which it plugs in. Guards run in this order.
FEATURES: tuple[Feature, ...] = (
    identity,
    faults,
    throttling,
    iam,
    capacity,
    ec2_templates,
    fleet,
    ec2,
    reservations,
    control_ec2,
    ec2_catalog,
    pricing,
    zonal_shift,
    spot,
    ssm,
    eks_api,
    control_identity,
    cloudformation,
    eventbridge,
    functions,
    queues,
    schedules,
    custom_resources,
    seed,
)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: "Server"

    def handle_expect_100(self) -> bool:
        """S3 clients wait a second for this line unless it leaves at once: writes are buffered otherwise."""
        self.send_response_only(100)
        self.end_headers()
        self.wfile.flush()
        return True

    def answer(self) -> None:
        path, _, query = self.path.partition("?")
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self._body()
        try:
            if path.startswith("/_local/"):
                response = self.server.control.answer(self.command, path, query, body)
            else:
                call = AwsRequest(self.command, path, query, headers, body)
                response = self.server.gateway.answer(call)
            self._send(response)
        except (ConnectionDropped, ConnectionError):
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_PATCH = do_OPTIONS = answer

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            return b"".join(self._chunks())
        return self.rfile.read(int(self.headers.get("Content-Length") or 0))

    def _chunks(self) -> list[bytes]:
        chunks: list[bytes] = []
        while size := int(self.rfile.readline().split(b";")[0], 16):
            chunks.append(self.rfile.read(size))
            self.rfile.readline()
        while self.rfile.readline().strip():
            pass
        return chunks

    def _send(self, response: AwsResponse) -> None:
        self.send_response(response.status)
        length = str(len(response.body))
        for name, value in response.headers.items():
            if name.lower() not in ("content-length", "connection", "server", "date"):
                self.send_header(name, value)
            elif name.lower() == "content-length" and self.command == "HEAD":
                length = value
        self.send_header("Content-Length", length)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(response.body)
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        """Silent: the call log says more."""


class Server(ThreadingHTTPServer):
    """Listens on 127.0.0.1 only; port 0 takes a free one."""

    daemon_threads = True
    request_queue_size = 128
    gateway: Gateway
    control: Control


def world_of(directory: Path, *, region: str, cluster: str, port: int) -> World:
    """The world with every feature plugged in; nothing runs yet."""
    calls = CallLog(directory / "logs" / "aws-calls.jsonl")
    world = World(directory, region, "123456789012", port, cluster, calls)
    for feature in FEATURES:
        feature.add(world)
    return world


@contextlib.contextmanager
def listening(directory: Path, *, port: int, region: str, cluster: str, stop: threading.Event) -> Iterator[World]:
    """A world that answers on `port` (0 = a free one) and whose threads run until `stop` is set and the block ends."""
    server = Server(("127.0.0.1", port), Handler)
    world = world_of(directory, region=region, cluster=cluster, port=server.server_address[1])
    server.gateway, server.control = Gateway(world), Control(world)
    threads = [threading.Thread(target=server.serve_forever, name="http", daemon=True)]
    threads += [threading.Thread(target=run, args=(stop,), name=name, daemon=True) for name, run in world.backgrounds]
    for thread in threads:
        thread.start()
    try:
        yield world
    finally:
        stop.set()
        server.shutdown()
        server.server_close()
        for thread in threads:
            thread.join(timeout=5)
        with contextlib.suppress(OSError):
            world.calls.close()


def serve(directory: Path, *, port: int, region: str, cluster: str, stop: threading.Event) -> None:
    """Run until `stop`; writes the endpoint to DIRECTORY/aws.json once it listens."""
    with listening(directory, port=port, region=region, cluster=cluster, stop=stop) as world:
        # Whoever sees the file finds all of it.
        unfinished = directory / "aws.json.unfinished"
        unfinished.write_text(json.dumps({"endpoint": world.endpoint}))
        unfinished.replace(directory / "aws.json")
        print(f"AWS answers at {world.endpoint}", flush=True)
        stop.wait()
