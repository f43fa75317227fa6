"""A second cluster comes into cdk.json, at first without access entries, and leaves it with nodes: what is said."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from local.cdk_deployment import ROOT, CdkDeployment, administrator_session
from local.kubernetes.binaries import ensure_built
from local.kubernetes.control_plane import SERVICE_CIDR, ControlPlane, ControlPlaneStarter
from local.kubernetes.versions import minor_version
from local.ports import Ports
from local.processes import Processes
from spotwright.adapters.aws import preflight
from spotwright.workflows.install.preflight.checks import run_checks
from spotwright.workflows.install.preflight.facts import ClusterDescription, Facts, FunctionEntry, NotAsked, Target
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
            "authenticationMode": "CONFIG_MAP",
        }
        stack.control("POST", "/_local/clusters", registration)
        yield plane
    ports.close()


def test_a_cluster_that_comes_without_access_entries_or_leaves_with_nodes_is_refused_and_nothing_of_ours_stays(
    deployed_stack: DeployedStack, second: ControlPlane
) -> None:
    deployment = deployed_stack.deployment
    first = cluster_of(deployment)
    deployment.context["clusters"] = [first, {**first, "name": SECOND}]
    eks = administrator_session(deployed_stack.stack).client("eks", endpoint_url=deployed_stack.stack.aws_endpoint)
    is_without_access_entries_refused(deployment, second)
    eks.update_cluster_config(name=SECOND, accessConfig={"authenticationMode": "API_AND_CONFIG_MAP"})
    deployment.deploy()
    assert installed(second) == INSTALLED.keys()
    an_entry_that_somebody_deletes_is_named(deployed_stack, eks)
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


def is_without_access_entries_refused(deployment: CdkDeployment, second: ControlPlane) -> None:
    """What is said of a cluster that is in CONFIG_MAP mode; nothing is made in it or kept of it."""
    with pytest.raises(RuntimeError) as refused:
        deployment.deploy()
    shown = " ".join(str(refused.value).split())
    assert (
        f"cluster {SECOND} is not ready for Spotwright: authentication mode CONFIG_MAP knows no access entries" in shown
    )
    assert f"aws eks update-cluster-config --name {SECOND}" in shown
    assert "authenticationMode=API_AND_CONFIG_MAP" in shown
    assert installed(second) == set()
    assert SECOND not in deployment.outputs()["Clusters"]


def an_entry_that_somebody_deletes_is_named(deployed_stack: DeployedStack, eks: Any) -> None:
    """With what makes it again: CloudFormation does not."""
    account = administrator_session(deployed_stack.stack)
    cloudformation = account.client("cloudformation", endpoint_url=deployed_stack.stack.aws_endpoint)

    def entries() -> tuple[FunctionEntry, ...]:
        found = preflight.function_entries(cloudformation, eks, deployed_stack.deployment.stack_name, SECOND)
        assert not isinstance(found, NotAsked)
        return found

    made = entries()
    assert {(entry.needed_group, entry.groups) for entry in made} == {
        ("spotwright:read", ("spotwright:read",)),
        ("spotwright:act", ("spotwright:act",)),
    }
    for entry in made:
        eks.delete_access_entry(clusterName=SECOND, principalArn=entry.principal)
    assert [entry.groups for entry in entries()] == [None, None]
    facts = Facts(cluster=ClusterDescription("ACTIVE", "1.35", "API"), function_entries=entries())
    (check,) = run_checks(Target(SECOND, deployed_stack.stack.region), facts, ("access-entries",))
    assert check.message.count("aws eks create-access-entry") == len(made)
    for entry in made:
        eks.create_access_entry(clusterName=SECOND, principalArn=entry.principal, kubernetesGroups=[entry.needed_group])
    assert entries() == made


def cluster_of(deployment: CdkDeployment) -> dict[str, Any]:
    """The only cluster of a deployment's context."""
    clusters: Any = deployment.context["clusters"]
    (only,) = clusters
    return dict(only)


def installed(plane: ControlPlane) -> set[str]:
    """Kinds of INSTALLED that are there."""
    return {kind for kind, path in INSTALLED.items() if plane.api.find(path) is not None}
