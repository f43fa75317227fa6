"""ClusterPort, fake and real, as one fixture."""

import json

import pytest

from local.stack import Stack
from spotwright.adapters.kubernetes.cluster import KubernetesCluster
from spotwright.adapters.kubernetes.transport import Transport
from spotwright.simulation.clock import Clock
from spotwright.simulation.cluster import FakeCluster
from spotwright.simulation.effects import Effects
from tests.contract.cluster_world import FakeWorld, RealWorld, World


@pytest.fixture(scope="session")
def real(stack: Stack) -> tuple[Stack, KubernetesCluster]:
    stack.kubectl("create", "serviceaccount", "contract", "-n", "default")
    account = "--serviceaccount=default:contract"
    stack.kubectl("create", "clusterrolebinding", "contract", "--clusterrole=cluster-admin", account)
    token = stack.kubectl("create", "token", "contract", "-n", "default").stdout.strip()
    config = json.loads(stack.kubectl("config", "view", "--raw", "-o", "json").stdout)["clusters"][0]["cluster"]
    transport = Transport(
        endpoint=config["server"], certificate_authority=config["certificate-authority-data"], token=lambda: token
    )
    return stack, KubernetesCluster("contract", transport)


@pytest.fixture(params=["fake", "real"])
def world(request: pytest.FixtureRequest) -> World:
    if request.param == "fake":
        clock = Clock()
        return FakeWorld(FakeCluster("contract", clock, Effects(clock)))
    return RealWorld(*request.getfixturevalue("real"))
