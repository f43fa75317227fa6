"""One local AWS process for EC2, IAM and EKS, another for what functions need; tests keep to names of their own."""

import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from tests.local.aws.serverless import Aws as ServerlessAws
from tests.local.aws.serverless import run_local_aws

ROOT = Path(__file__).parents[3]
REGION = "ap-northeast-2"
ACCOUNT = "123456789012"
CLUSTER = "dev-eks-cluster"
# On a busy machine it takes a while.
START_SECONDS = 300
ADMINISTRATOR = {"AccessKeyId": "local-admin", "SecretAccessKey": "local", "SessionToken": ""}


@dataclass(frozen=True)
class Aws:
    """The running process as a test talks to it."""

    endpoint: str
    directory: Path

    def client(self, service: str, credentials: dict[str, Any] = ADMINISTRATOR, region: str = REGION) -> Any:
        """A boto3 client without retries, the administrator's unless credentials are given."""
        keys = (credentials["AccessKeyId"], credentials["SecretAccessKey"], credentials["SessionToken"])
        return _client(self.endpoint, service, region, *keys)

    def control(self, method: str, path: str, body: Any = None) -> Any:
        """A call of the control API; the answer's JSON, with `status` when it is an error."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.endpoint + path, data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            return json.load(error) | {"status": error.code}

    @contextmanager
    def stopped_clock(self) -> Iterator[None]:
        """However long it takes, no delay ends, no instance changes its state and no request token comes back."""
        self.control("POST", "/_local/strictness/clock", {"stopped": True})
        try:
            yield
        finally:
            self.control("POST", "/_local/strictness/clock", {"stopped": False})

    def role(
        self, name: str, *statements: dict[str, Any], trust: Any = None, trusted_actions: Any = "sts:AssumeRole"
    ) -> dict[str, Any]:
        """A role with one inline policy, and credentials of a session named "test"."""
        iam, sts = self.client("iam"), self.client("sts")
        principal = trust or {"AWS": f"arn:aws:iam::{ACCOUNT}:root"}
        allow = {"Effect": "Allow", "Principal": principal, "Action": trusted_actions}
        arn = iam.create_role(
            RoleName=name, AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [allow]})
        )["Role"]["Arn"]
        if statements:
            document = json.dumps({"Version": "2012-10-17", "Statement": list(statements)})
            iam.put_role_policy(RoleName=name, PolicyName="test", PolicyDocument=document)
        session = sts.assume_role(RoleArn=arn, RoleSessionName="test")["Credentials"]
        return dict(session)


# One session, so that the service models are read once.
_session = boto3.Session()


@lru_cache(maxsize=64)
def _client(endpoint: str, service: str, region: str, key: str, secret: str, token: str) -> Any:
    return _session.client(
        service,  # type: ignore[call-overload]
        endpoint_url=endpoint,
        region_name=region,
        aws_access_key_id=key,
        aws_secret_access_key=secret,
        aws_session_token=token or None,
        config=Config(retries={"total_max_attempts": 1}, read_timeout=300),
    )


@pytest.fixture(scope="session")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    directory = tmp_path_factory.mktemp("aws")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "local.aws",
            "--port",
            "0",
            "--directory",
            str(directory),
            "--lenient",
            "delays",
            "vcpu-quotas",
        ],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    try:
        running = Aws(_endpoint(process, directory / "aws.json"), directory)
        # Tests one after the other make more calls in a second than EC2 allows: those of the limits turn them on.
        running.control("POST", "/_local/throttling", {"enabled": False})
        yield running
    finally:
        process.terminate()
        process.wait(timeout=120)


@pytest.fixture(scope="session")
def serverless_aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerlessAws]:
    with run_local_aws(tmp_path_factory.mktemp("aws")) as running:
        yield running


def _endpoint(process: subprocess.Popen[bytes], file: Path) -> str:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        assert process.poll() is None, "the local AWS ended before it listened"
        if file.exists() and (text := file.read_text()):
            return str(json.loads(text)["endpoint"])
        time.sleep(0.05)
    raise AssertionError(f"the local AWS did not start within {START_SECONDS} s")
