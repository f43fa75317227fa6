"""Instances boot side by side, as real machines do."""

import threading
from pathlib import Path
from typing import cast

from local.boot.agent import BootAgent, BootDelays
from local.boot.capacity import InstanceType
from local.boot.join_check import Cluster, Instance
from local.boot.log import BootLog
from local.kubernetes.api import ApiUnavailable, KubernetesApi
from tests.local.boot.conftest import CLUSTER
from tests.local.conftest import numbered_instance

# A machine that sleeps is waited for; a boot that is never met fails the test.
PATIENCE_SECONDS = 60.0


class Meeting:
    """Both instances ask for their type before either is answered."""

    def __init__(self) -> None:
        self.asked = threading.Barrier(2, timeout=PATIENCE_SECONDS)

    def instances(self) -> list[Instance]:
        return [numbered_instance(1), numbered_instance(2)]

    def cluster(self) -> Cluster:
        return CLUSTER

    def instance_type(self, name: str) -> InstanceType:
        self.asked.wait()
        raise ApiUnavailable(f"nobody knows {name} now")

    def access_entries(self) -> dict[str, str]:
        return {}


def test_an_instance_does_not_wait_until_another_has_booted(tmp_path: Path) -> None:
    aws = Meeting()
    agent = BootAgent(aws, cast("KubernetesApi", None), BootLog(tmp_path), BootDelays(boot_seconds=0))
    agent.reconcile()
    assert not aws.asked.broken
