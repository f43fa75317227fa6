"""A running control plane, shared by the tests of boot, kubernetes and pods, with a stand-in for the local AWS."""

import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from local.boot.agent import BootAgent, BootDelays
from local.boot.capacity import InstanceType
from local.boot.join_check import Cluster, Instance
from local.boot.log import BootLog
from local.kubernetes.binaries import ensure_built
from local.kubernetes.control_plane import ControlPlane, ControlPlaneStarter
from local.ports import Ports
from local.processes import Processes
from tests.local.boot.conftest import CLUSTER, INSTANCE_TYPE, ROLE, instance

ROOT = Path(__file__).parents[2]


class FakeControlApi(ThreadingHTTPServer):
    """Answers `GET` and `POST /_local/...` with what `replies` holds for the path; keeps the questions."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.replies: dict[str, dict[str, Any]] = {}
        self.questions: list[tuple[str, dict[str, Any]]] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: FakeControlApi

    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.questions.append((self.path, question))
        self.do_GET()

    def do_GET(self) -> None:
        reply = self.server.replies.get(self.path)
        body = json.dumps(reply or {}).encode()
        self.send_response(404 if reply is None else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


class FakeAwsPort:
    """Instances that a test moves along by hand."""

    def __init__(self) -> None:
        self.all: dict[str, Instance] = {}

    def put(self, value: Instance) -> None:
        self.all[value.id] = value

    def instances(self) -> list[Instance]:
        return list(self.all.values())

    def cluster(self) -> Cluster:
        return CLUSTER

    def instance_type(self, name: str) -> InstanceType:
        return INSTANCE_TYPE

    def access_entries(self) -> dict[str, str]:
        return {ROLE: "EC2_LINUX"}


class BootHarness:
    """An agent and its AWS; `wait_until` keeps it reconciling."""

    def __init__(self, plane: ControlPlane, logs: Path) -> None:
        self.aws = FakeAwsPort()
        self.logs = logs
        self.api = plane.api
        self.agent = BootAgent(self.aws, plane.api, BootLog(logs), BootDelays(0.0, 1.0, 1.0))

    def wait_until(self, holds: Callable[[], object], seconds: float = 180.0) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, "it did not come about in time"
            self.agent.reconcile()
            time.sleep(0.1)

    def node(self, value: Instance) -> dict[str, Any] | None:
        return self.api.find(f"/api/v1/nodes/{value.private_dns_name}")

    def ready(self, value: Instance) -> str | None:
        conditions = (self.node(value) or {}).get("status", {}).get("conditions", [])
        return next((entry["status"] for entry in conditions if entry["type"] == "Ready"), None)


def numbered_instance(number: int) -> Instance:
    """An instance of its own address and id."""
    return instance(id=f"i-{number}", private_ip=f"192.168.0.{number}", private_dns_name=f"ip-192-168-0-{number}.local")


@contextmanager
def removed_afterwards(boots: BootHarness, value: Instance) -> Iterator[None]:
    yield
    boots.aws.put(replace(value, state="terminated"))
    boots.wait_until(lambda: boots.node(value) is None)


@pytest.fixture(scope="session")
def control_api() -> Iterator[FakeControlApi]:
    server = FakeControlApi()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def environment() -> dict[str, str]:
    """Of processes that a test starts from the project's modules."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


@pytest.fixture(scope="session")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Processes]:
    with Processes(tmp_path_factory.mktemp("logs")) as running:
        yield running


@pytest.fixture(scope="session")
def plane(
    control_api: FakeControlApi,
    processes: Processes,
    environment: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ControlPlane]:
    ports = Ports()
    binaries = ensure_built(lambda text: print(text, file=sys.stderr))
    starter = ControlPlaneStarter(tmp_path_factory.mktemp("plane"), binaries, processes, ports)
    yield starter.start(aws_endpoint=control_api.endpoint, cluster="dev", environment=environment)
    ports.close()


@pytest.fixture
def boots(plane: ControlPlane, tmp_path: Path) -> BootHarness:
    return BootHarness(plane, tmp_path)
