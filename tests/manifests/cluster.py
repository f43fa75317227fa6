"""A real control plane for tests, started at most once per test run, with our definitions and rights applied."""

import atexit
import os
import subprocess
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from local.kubernetes.binaries import Binaries, ensure_built
from local.kubernetes.control_plane import ControlPlane, ControlPlaneStarter
from local.ports import Ports
from local.processes import Processes
from spotwright import manifests
from spotwright.adapters.kubernetes.connection import JsonObject, kubeconfig_configuration
from spotwright.adapters.kubernetes.dynamic_client import DynamicClient
from spotwright.workflows.install.workflow import Installation

# Nobody listens there: no test of these logs in by an AWS role.
NO_AWS = "http://127.0.0.1:9"


@dataclass(frozen=True)
class Cluster:
    """A running control plane: ``objects`` is our own adapter, ``plane.api`` the local stack's."""

    plane: ControlPlane
    binaries: Binaries
    objects: DynamicClient

    def kubectl(self, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        kubeconfig = self.plane.kubeconfig
        cache = str(kubeconfig.with_name("kubectl-cache"))
        environment = {"PATH": os.defpath, "KUBECONFIG": str(kubeconfig), "KUBECACHEDIR": cache}
        command = [str(self.binaries.path("kubectl")), *arguments]
        return subprocess.run(command, input=text, capture_output=True, text=True, env=environment, timeout=300)


@cache
def running_cluster() -> Cluster:
    """The test run's cluster; ends with the process."""
    ending = ExitStack()
    atexit.register(ending.close)
    folder = Path(ending.enter_context(tempfile.TemporaryDirectory(prefix="spotwright-cluster-")))
    ports = Ports()
    ending.callback(ports.close)
    processes = ending.enter_context(Processes(folder / "logs"))
    binaries = ensure_built(print)
    plane = ControlPlaneStarter(folder, binaries, processes, ports).start(
        aws_endpoint=NO_AWS, cluster="test", environment=dict(os.environ)
    )
    return Cluster(plane, binaries, DynamicClient(kubeconfig_configuration(str(plane.kubeconfig))))


def wanted(installer: str = "one", image: str = "forwarder:test") -> Installation:
    """Everything that install applies, for an installer of that name."""
    access: list[JsonObject] = [*manifests.rbac(), *manifests.flow_control()]
    # Nobody tells pods of a Pod Identity there.
    environment = {"CLUSTER_NAME": "test", "AWS_ACCESS_KEY_ID": "test"}
    parts = [*access, *manifests.forwarder(image, environment)]
    return Installation(manifests.definitions(), parts, installer)
