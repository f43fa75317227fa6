"""A cluster in which our definitions are established."""

import time

import pytest

from spotwright import manifests
from tests.manifests.cluster import Cluster, running_cluster


@pytest.fixture(scope="session")
def cluster() -> Cluster:
    running = running_cluster()
    for definition in manifests.definitions():
        running.objects.apply(definition)
    for path in ("karpenter.sh/v1/nodepools", "karpenter.sh/v1/nodeclaims", "karpenter.k8s.aws/v1/ec2nodeclasses"):
        deadline = time.monotonic() + 300
        while running.plane.api.find(f"/apis/{path}") is None:
            assert time.monotonic() < deadline, f"{path} is not served"
            time.sleep(0.1)
    return running
