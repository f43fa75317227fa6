"""A running control plane, shared by the tests of one module, with a stand-in for the local AWS."""

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

from local.boot.agent import Agent, Delays
from local.boot.capacity import Machine
from local.boot.judge import Cluster, Instance
from local.boot.record import Record
from local.kubernetes.build import ensure_built
from local.kubernetes.plane import ControlPlane, Starter
from local.ports import Ports
from local.processes import Processes
from tests.local.boot.conftest import CLUSTER, MACHINE, ROLE, instance

ROOT = Path(__file__).parents[3]


class Answers(ThreadingHTTPServer):
    """Answers `POST /_local/...` with what `replies` holds for the path; keeps the questions."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.replies: dict[str, dict[str, Any]] = {}
        self.questions: list[tuple[str, dict[str, Any]]] = []

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    server: Answers

    def do_POST(self) -> None:
        question = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.questions.append((self.path, question))
        reply = self.server.replies.get(self.path)
        body = json.dumps(reply or {}).encode()
        self.send_response(404 if reply is None else 200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Silent."""


class World:
    """Instances that a test moves along by hand."""

    def __init__(self) -> None:
        self.all: dict[str, Instance] = {}

    def put(self, value: Instance) -> None:
        self.all[value.id] = value

    def instances(self) -> list[Instance]:
        return list(self.all.values())

    def cluster(self) -> Cluster:
        return CLUSTER

    def machine(self, instance_type: str) -> Machine:
        return MACHINE

    def entries(self) -> dict[str, str]:
        return {ROLE: "EC2_LINUX"}


class Boots:
    """An agent with its world; `until` keeps it stepping."""

    def __init__(self, plane: ControlPlane, logs: Path) -> None:
        self.world = World()
        self.logs = logs
        self.api = plane.api
        self.agent = Agent(self.world, plane.api, Record(logs), Delays(0.0, 1.0, 1.0))

    def until(self, holds: Callable[[], object], seconds: float = 20.0) -> None:
        deadline = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < deadline, "it did not come about in time"
            self.agent.step()
            time.sleep(0.1)

    def node(self, value: Instance) -> dict[str, Any] | None:
        return self.api.find(f"/api/v1/nodes/{value.private_dns}")

    def ready(self, value: Instance) -> str | None:
        conditions = (self.node(value) or {}).get("status", {}).get("conditions", [])
        return next((entry["status"] for entry in conditions if entry["type"] == "Ready"), None)


def numbered(number: int) -> Instance:
    """An instance of its own address and id."""
    return instance(id=f"i-{number}", private_ip=f"192.168.0.{number}", private_dns=f"ip-192-168-0-{number}.local")


@contextmanager
def gone_afterwards(boots: Boots, value: Instance) -> Iterator[None]:
    yield
    boots.world.put(replace(value, state="terminated"))
    boots.until(lambda: boots.node(value) is None)


@pytest.fixture(scope="session")
def aws() -> Iterator[Answers]:
    server = Answers()
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
    aws: Answers,
    processes: Processes,
    environment: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ControlPlane]:
    ports = Ports()
    binaries = ensure_built(lambda text: print(text, file=sys.stderr))
    starter = Starter(tmp_path_factory.mktemp("plane"), binaries, processes, ports)
    yield starter.start(aws_endpoint=aws.endpoint, cluster="dev", environment=environment)
    ports.close()


@pytest.fixture
def boots(plane: ControlPlane, tmp_path: Path) -> Boots:
    return Boots(plane, tmp_path)
