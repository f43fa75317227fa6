"""Starts `python -m local.aws`, talks to it with boto3, and waits for things to become true."""

import contextlib
import io
import json
import subprocess
import sys
import time
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from local.aws.strictness import Rule

REGION = "ap-northeast-2"
ACCOUNT = "123456789012"
ROOT = Path(__file__).parents[3]
TRUST_LAMBDA = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}],
}
# What a process has to start in and gets of a processor is the smaller share of a machine that has other work, too.
RELAXED = ("delays", Rule.INIT_DURATION, Rule.PROCESSOR_SHARE, Rule.ACCOUNT_CONCURRENCY)
ALLOW_ALL = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}


@dataclass
class Aws:
    """A running local AWS."""

    endpoint: str
    directory: Path
    pid: int
    _clients: dict[str, Any] = field(default_factory=dict)

    def client(self, service: str) -> Any:
        if service not in self._clients:
            self._clients[service] = boto3.client(
                service,  # type: ignore[call-overload]
                region_name=REGION,
                endpoint_url=self.endpoint,
                aws_access_key_id="local-admin",
                aws_secret_access_key="local",
                config=Config(retries={"total_max_attempts": 1}, read_timeout=300),
            )
        return self._clients[service]

    def control(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.endpoint + path, data=data, method=method)
        with urllib.request.urlopen(request, timeout=120) as response:
            return json.load(response)

    def role(self, name: str) -> str:
        """The ARN of a role that Lambda may assume and that may do everything; made on first use."""
        iam = self.client("iam")
        with contextlib.suppress(iam.exceptions.EntityAlreadyExistsException):
            iam.create_role(RoleName=name, AssumeRolePolicyDocument=json.dumps(TRUST_LAMBDA))
            iam.put_role_policy(RoleName=name, PolicyName="all", PolicyDocument=json.dumps(ALLOW_ALL))
        return f"arn:aws:iam::{ACCOUNT}:role/{name}"

    def function(self, name: str, source: str, **settings: Any) -> str:
        """Deploy a handler module under `name`, with a minute for each invocation; returns the function's ARN."""
        created = self.client("lambda").create_function(
            FunctionName=name,
            Runtime="python3.13",
            Handler="handler.handler",
            Role=self.role("function"),
            Code={"ZipFile": zip_files({"handler.py": source})},
            **({"Timeout": 60} | settings),
        )
        return str(created["FunctionArn"])

    def invoke(self, name: str, event: Any = None, **arguments: Any) -> tuple[Any, dict[str, Any]]:
        """(decoded answer, whole response) of a synchronous invocation."""
        response = self.client("lambda").invoke(FunctionName=name, Payload=json.dumps(event).encode(), **arguments)
        return json.loads(response["Payload"].read() or b"null"), response

    def queue(self, name: str, **attributes: str) -> str:
        return str(self.client("sqs").create_queue(QueueName=name, Attributes=attributes)["QueueUrl"])

    def queue_arn(self, name: str) -> str:
        return f"arn:aws:sqs:{REGION}:{ACCOUNT}:{name}"

    def receive(self, url: str, seconds: int = 5) -> list[dict[str, Any]]:
        """Long-poll once, with every attribute."""
        answer = self.client("sqs").receive_message(
            QueueUrl=url,
            WaitTimeSeconds=seconds,
            MaxNumberOfMessages=10,
            AttributeNames=["All"],
            MessageAttributeNames=["All"],
        )
        return list(answer.get("Messages", ()))


def zip_files(files: dict[str, str]) -> bytes:
    """A zip with these texts by path."""
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return content.getvalue()


def eventually[T](look: Callable[[], T], seconds: float = 180.0, what: str = "it") -> T:
    """The first true value of `look()`; fails after `seconds`."""
    until = time.monotonic() + seconds
    while not (value := look()):
        if time.monotonic() > until:
            raise AssertionError(f"{what} did not happen within {seconds} s (last: {value!r})")
        time.sleep(0.02)
    return value


@contextlib.contextmanager
def run_local_aws(directory: Path, *, lenient: Sequence[str] = RELAXED) -> Iterator[Aws]:
    """The process, until the end of the block; its output goes to DIRECTORY/aws.log. What takes time, or limits it, is
    for tests of its own."""
    with (directory / "aws.log").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "local.aws", "--directory", str(directory), "--lenient", *lenient],
            cwd=ROOT,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    try:
        file = directory / "aws.json"
        eventually(lambda: file.exists() or process.poll() is not None, 300, "the local AWS's start")
        assert process.poll() is None, (directory / "aws.log").read_text()
        yield Aws(json.loads(file.read_text())["endpoint"], directory, process.pid)
    finally:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=15)
        process.kill()
