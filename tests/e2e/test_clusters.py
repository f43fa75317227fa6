"""A second cluster comes into cdk.json and leaves it with nodes: what is said, and what is left in it."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local.cdk_deployment import ROOT, CdkDeployment
from local.kubernetes.binaries import ensure_built
from local.kubernetes.control_plane import SERVICE_CIDR, ControlPlane, ControlPlaneStarter
from local.kubernetes.versions import minor_version
from local.ports import Ports
from local.processes import Processes
from tests.e2e.deployed_stack import DeployedStack
from tests.manifests.samples import COLLECTIONS, SAMPLES, changed

pytestmark = pytest.mark.stack

SECOND = "second"
# Some of what an installation puts into a cluster, and takes away again.
INSTALLED = {
    "Deployment": "/apis/apps/v1/namespaces/kube-system/deployments/spotwright-forwarder",
    "ServiceAccount": "/api/v1/namespaces/kube-system/serviceaccounts/spotwright-forwarder",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles/spotwright:forwarder",
    "FlowSchema": "/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas/spotwright",
}
# Nothing can be launched for it, so it is deleted; it stays for as long as somebody else's finalizer does.
CLAIM = changed(
    SAMPLES["NodeClaim"](), "metadata", {"name": "of-nobody", "finalizers": ["spotwright.example.com/stays"]}
)


@pytest.fixture
def second(deployed_stack: DeployedStack, tmp_path: Path) -> Iterator[ControlPlane]:
    """A cluster of the account that nothing is installed in; its API server is a process of its own."""
    stack, ports = deployed_stack.stack, Ports()
    environment = {**stack.environment(), "PYTHONPATH": str(ROOT)}
    with Processes(tmp_path / "logs") as processes:
        starter = ControlPlaneStarter(tmp_path, ensure_built(lambda _: None), processes, ports)
        plane = starter.start(aws_endpoint=stack.aws_endpoint, cluster=SECOND, environment=environment)
        registration = {
            "name": SECOND,
            "endpoint": plane.endpoint,
            "certificateAuthority": plane.certificate_authority,
            "version": minor_version(),
            "serviceIpv4Cidr": SERVICE_CIDR,
        }
        stack.control("POST", "/_local/clusters", registration)
        yield plane
    ports.close()


def test_a_cluster_that_leaves_with_nodes_is_refused_once_and_then_left_without_what_was_installed(
    deployed_stack: DeployedStack, second: ControlPlane
) -> None:
    deployment = deployed_stack.deployment
    first = cluster_of(deployment)
    deployment.context["clusters"] = [first, {**first, "name": SECOND}]
    deployment.deploy()
    assert installed(second) == INSTALLED.keys()
    second.api.create(COLLECTIONS["NodeClaim"], CLAIM)

    deployment.context["clusters"] = [first]
    with pytest.raises(RuntimeError) as refused:
        deployment.deploy()
    # The CDK CLI wraps what it shows.
    shown = " ".join(str(refused.value).split())
    assert "cluster second has 1 NodeClaim (of-nobody), and once it has left cdk.json nothing drains" in shown
    assert SECOND in deployment.outputs()["Clusters"]
    assert installed(second) == INSTALLED.keys()

    deployment.deploy()
    assert SECOND not in deployment.outputs()["Clusters"]
    assert installed(second) == set()


def cluster_of(deployment: CdkDeployment) -> dict[str, Any]:
    """The only cluster of a deployment's context."""
    clusters: Any = deployment.context["clusters"]
    (only,) = clusters
    return dict(only)


def installed(plane: ControlPlane) -> set[str]:
    """Kinds of INSTALLED that are there."""
    return {kind for kind, path in INSTALLED.items() if plane.api.find(path) is not None}
