"""The HTTP server of the process: AWS calls to the gateway, `/_local/` to the control API.

Connections are kept alive and Nagle's algorithm is off (each call would wait 40 ms for it otherwise).
"""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Protocol

from local.aws import faults, seed, tls
from local.aws.authorization import authorizer
from local.aws.calls import moto_lookups
from local.aws.calls.call_log import CallLog
from local.aws.calls.request import AwsRequest, AwsResponse, ConnectionDropped
from local.aws.cloudformation import change_sets_api, stacks_api
from local.aws.cloudformation.resource_types import custom_resources
from local.aws.control import ControlApi
from local.aws.ec2 import control as ec2_control
from local.aws.ec2 import instances_api, propagation, throttling
from local.aws.ec2.catalog import instance_types, price_list, spot_prices, ssm_parameters
from local.aws.ec2.launches import (
    capacity_reservations,
    fleets,
    instance_capacity,
    launch_templates,
    vcpu_quotas,
)
from local.aws.eks import addons, authentication, nodegroups, zonal_shifts
from local.aws.eks import api as eks_api
from local.aws.emulator import Emulator
from local.aws.event_source_mappings import pollers
from local.aws.eventbridge import event_bus
from local.aws.functions import control as functions_control
from local.aws.gateway import Gateway
from local.aws.schedules import scheduler
from local.aws.storage import bucket_policies, index_propagation, large_tables, time_to_live, transactions
from local.aws.strictness import Strictness
from local.aws.sts import callers


class EmulatorModule(Protocol):
    """A module that registers with an emulator."""

    def add(self, emulator: Emulator) -> None: ...


# Every module of the local AWS that registers something, in this order; checks of calls run in this order, too.
MODULES: tuple[EmulatorModule, ...] = (
    moto_lookups,
    callers,
    faults,
    throttling,
    authorizer,
    instance_capacity,
    vcpu_quotas,
    launch_templates,
    fleets,
    instances_api,
    capacity_reservations,
    ec2_control,
    propagation,
    instance_types,
    price_list,
    spot_prices,
    ssm_parameters,
    zonal_shifts,
    eks_api,
    addons,
    nodegroups,
    authentication,
    bucket_policies,
    time_to_live,
    index_propagation,
    large_tables,
    transactions,
    stacks_api,
    change_sets_api,
    custom_resources,
    event_bus,
    functions_control,
    pollers,
    scheduler,
    tls,
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
    """Listens on 127.0.0.1 only; port 0 takes a free one. The same port speaks TLS with who begins so."""

    daemon_threads = True
    request_queue_size = 128
    gateway: Gateway
    control: ControlApi
    tls: tls.Tls

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """In the connection's own thread: a client that is slow to shake hands keeps nobody waiting."""
        try:
            connection = self.tls.accept(request)
        except OSError:
            # The client went away, or trusts another certificate: it knows why.
            self.shutdown_request(request)
            return
        super().process_request_thread(connection, client_address)


def build_emulator(directory: Path, *, region: str, cluster: str, port: int, strictness: Strictness) -> Emulator:
    """The emulator with every module registered; nothing runs yet."""
    calls = CallLog(directory / "logs" / "aws-calls.jsonl")
    emulator = Emulator(directory, region, "123456789012", port, cluster, calls, strictness)
    for module in MODULES:
        module.add(emulator)
    return emulator


@contextlib.contextmanager
def running_server(
    directory: Path, *, port: int, region: str, cluster: str, strictness: Strictness, stop: threading.Event
) -> Iterator[Emulator]:
    """An emulator that answers on `port` (0 = a free one); its threads run until `stop` is set and the block ends."""
    server = Server(("127.0.0.1", port), Handler)
    port = server.server_address[1]
    emulator = build_emulator(directory, region=region, cluster=cluster, port=port, strictness=strictness)
    server.gateway, server.control, server.tls = Gateway(emulator), ControlApi(emulator), emulator.component(tls.Tls)
    threads = [threading.Thread(target=server.serve_forever, name="http", daemon=True)]
    threads += [
        threading.Thread(target=run, args=(stop,), name=name, daemon=True) for name, run in emulator.background_runs
    ]
    for thread in threads:
        thread.start()
    try:
        yield emulator
    finally:
        stop.set()
        server.shutdown()
        server.server_close()
        for thread in threads:
            thread.join(timeout=5)
        with contextlib.suppress(OSError):
            emulator.call_log.close()


def serve(
    directory: Path, *, port: int, region: str, cluster: str, strictness: Strictness, stop: threading.Event
) -> None:
    """Run until `stop`; writes the endpoint to DIRECTORY/aws.json once it listens."""
    with running_server(
        directory, port=port, region=region, cluster=cluster, strictness=strictness, stop=stop
    ) as emulator:
        # Whoever sees the file finds all of it.
        unfinished = directory / "aws.json.unfinished"
        unfinished.write_text(json.dumps({"endpoint": emulator.endpoint}))
        unfinished.replace(directory / "aws.json")
        print(f"AWS answers at {emulator.endpoint}", flush=True)
        stop.wait()
