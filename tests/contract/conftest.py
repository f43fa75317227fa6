"""The real parts that a contract is checked against: the local AWS and the local control plane, once per session."""

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
import urllib3

from local.aws.strictness import WITHOUT_DELAYS, Rule
from local.kubernetes.api import KubernetesApi
from local.ports import Ports
from local.stack import Stack, StackOptions
from spotwright import manifests
from spotwright.adapters.aws import pricing

REGION = "ap-northeast-2"
READY_SECONDS = 300


class LocalAws:
    """A running local AWS and clients for it."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint

    def client(self, service: str) -> object:
        return boto3.client(
            service,  # type: ignore[call-overload]
            endpoint_url=self.endpoint,
            region_name=REGION,
            aws_access_key_id="local-admin",
            aws_secret_access_key="local-admin",
        )

    def prices(self) -> Any:
        """A client of the Price List, which answers in few regions."""
        return boto3.client(
            "pricing", endpoint_url=self.endpoint, region_name=pricing.endpoint_region(REGION),
            aws_access_key_id="local-admin", aws_secret_access_key="local-admin",
        )  # fmt: skip


@pytest.fixture(scope="session")
def local_aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalAws]:
    directory: Path = tmp_path_factory.mktemp("aws")
    ports = Ports()
    port = ports.take()
    # Fakes and the real thing are compared in what they answer, not in when.
    command = [sys.executable, "-m", "local.aws", "--port", str(port), "--directory", str(directory)]
    command += ["--lenient", *(rule for rule in WITHOUT_DELAYS if rule != Rule.INSTANCE_SHUTDOWN)]
    with (directory / "out.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            _wait(f"http://127.0.0.1:{port}/_local/capacity", process)
            yield LocalAws(f"http://127.0.0.1:{port}")
        finally:
            process.terminate()
            process.wait(timeout=READY_SECONDS)
            ports.close()


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A local stack in whose cluster our definitions are served; names keep its tests apart."""
    options = StackOptions(lenient=WITHOUT_DELAYS)
    with Stack.start(tmp_path_factory.mktemp("stack"), options=options, report=lambda _: None) as running:
        items = manifests.definitions()
        running.kubectl("apply", "-f", "-", input=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        wait_served(running, *(f"karpenter.sh/v1/{plural}" for plural in ("nodepools", "nodeclaims")))
        wait_served(running, "karpenter.k8s.aws/v1/ec2nodeclasses")
        yield running


def wait_served(stack: Stack, *paths: str) -> None:
    """Until the API server answers for each; ``kubectl wait`` fails where a definition has no status yet."""
    deadline = time.monotonic() + 300
    while missing := [path for path in paths if not KubernetesApi(stack.kubeconfig).find(f"/apis/{path}")]:
        assert time.monotonic() < deadline, f"not served: {missing}"
        time.sleep(0.1)


def _wait(url: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + READY_SECONDS
    pool = urllib3.PoolManager(retries=False, timeout=30.0)
    while time.monotonic() < deadline:
        assert process.poll() is None, "the local AWS ended"
        try:
            if pool.request("GET", url).status < 500:
                return
        except urllib3.exceptions.HTTPError:
            time.sleep(0.1)
    raise TimeoutError(url)


@pytest.fixture
def fault(local_aws: LocalAws) -> Any:
    """Makes an action fail until the test ends."""

    def put(service: str, action: str, code: str) -> None:
        body = json.dumps({"service": service, "action": action, "kind": "error", "code": code, "times": 100})
        assert urllib3.request("POST", f"{local_aws.endpoint}/_local/faults", body=body).status == 200

    yield put
    urllib3.request("DELETE", f"{local_aws.endpoint}/_local/faults")
