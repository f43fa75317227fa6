"""The local AWS inside this process: for benchmarks and tests that look into it. Needs `moto_setup.prepare` first."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config

from local.aws.capacity import Capacity
from local.aws.faults import Faults
from local.aws.iam import Questions
from local.aws.server import listening
from local.aws.throttling import Buckets
from local.aws.world import World

ADMINISTRATOR = {"AccessKeyId": "local-admin", "SecretAccessKey": "local", "SessionToken": ""}


@dataclass(frozen=True)
class Account:
    """A running local AWS and its parts."""

    world: World

    @property
    def buckets(self) -> Buckets:
        return self.world.part(Buckets)

    @property
    def capacity(self) -> Capacity:
        return self.world.part(Capacity)

    @property
    def faults(self) -> Faults:
        return self.world.part(Faults)

    @property
    def questions(self) -> Questions:
        """What was asked of IAM."""
        return self.world.part(Questions)

    def client(self, service: str, credentials: dict[str, Any] = ADMINISTRATOR, **arguments: Any) -> Any:
        """A boto3 client of the account's region, without retries unless told otherwise."""
        arguments = {"config": Config(retries={"total_max_attempts": 1}), "region_name": self.world.region} | arguments
        return boto3.client(
            service,  # type: ignore[call-overload]
            endpoint_url=self.world.endpoint,
            aws_access_key_id=credentials["AccessKeyId"],
            aws_secret_access_key=credentials["SecretAccessKey"],
            aws_session_token=credentials["SessionToken"] or None,
            **arguments,
        )


@contextmanager
def running(directory: Path, *, region: str, cluster: str) -> Iterator[Account]:
    """Answers on a free port of this machine until the block ends. Once per process: moto's state is global."""
    stop = threading.Event()
    with listening(directory, port=0, region=region, cluster=cluster, stop=stop) as world:
        try:
            yield Account(world)
        finally:
            stop.set()
