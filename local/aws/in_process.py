"""The local AWS inside this process: for benchmarks and tests that look into it. Needs `moto_setup.prepare` first."""

import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from local.aws.authorization.authorizer import AuthorizationLog
from local.aws.ec2.launches.instance_capacity import InstanceCapacity
from local.aws.ec2.throttling import RequestLimits
from local.aws.emulator import Emulator
from local.aws.faults import Faults
from local.aws.server import running_server
from local.aws.strictness import Rule, Strictness

ADMINISTRATOR = {"AccessKeyId": "local-admin", "SecretAccessKey": "local", "SessionToken": ""}


@dataclass(frozen=True)
class InProcessAws:
    """A running local AWS and its parts."""

    emulator: Emulator

    @property
    def request_limits(self) -> RequestLimits:
        return self.emulator.component(RequestLimits)

    @property
    def capacity(self) -> InstanceCapacity:
        return self.emulator.component(InstanceCapacity)

    @property
    def faults(self) -> Faults:
        return self.emulator.component(Faults)

    @property
    def authorization_log(self) -> AuthorizationLog:
        """What was asked of IAM."""
        return self.emulator.component(AuthorizationLog)

    def client(self, service: str, credentials: dict[str, Any] = ADMINISTRATOR, **arguments: Any) -> Any:
        """A boto3 client of the account's region, without retries unless told otherwise."""
        arguments = {
            "config": Config(retries={"total_max_attempts": 1}),
            "region_name": self.emulator.region,
        } | arguments
        return boto3.client(
            service,  # type: ignore[call-overload]
            endpoint_url=self.emulator.endpoint,
            aws_access_key_id=credentials["AccessKeyId"],
            aws_secret_access_key=credentials["SecretAccessKey"],
            aws_session_token=credentials["SessionToken"] or None,
            **arguments,
        )


@contextmanager
def run_in_process(
    directory: Path, *, region: str, cluster: str, lenient: Collection[Rule] = ()
) -> Iterator[InProcessAws]:
    """Answers on a free port of this machine until the block ends. Once per process: moto's state is global."""
    stop = threading.Event()
    strictness = Strictness(set(lenient))
    with running_server(
        directory, port=0, region=region, cluster=cluster, strictness=strictness, stop=stop
    ) as emulator:
        try:
            yield InProcessAws(emulator)
        finally:
            stop.set()
