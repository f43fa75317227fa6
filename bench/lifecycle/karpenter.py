"""Karpenter with its own provider for kwok: nodes without machines, on a control plane of its own."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.planner.runs import KARPENTER_MODULE, build_go
from bench.scale.workloads import interrupted
from local.kubernetes.binaries import cache_folder
from local.kubernetes.control_plane import KUBELET_LABEL
from local.kubernetes.toolchain import go_environment
from local.ports import Ports
from local.processes import Processes
from local.stack import Stack, StackOptions

_CRDS: Final = ("pkg/apis/crds", "kwok/apis/crds")
_CLASS: Final = {
    "apiVersion": "karpenter.kwok.sh/v1alpha1",
    "kind": "KWOKNodeClass",
    "metadata": {"name": "default"},
}


@dataclass(frozen=True, slots=True)
class Karpenter:
    """What is built of it, and where its CustomResourceDefinitions are."""

    binary: Path
    crds: tuple[Path, ...]


def build(report: Callable[[str], None]) -> Karpenter:
    """Karpenter's controller for kwok; raises CalledProcessError."""
    report("building Karpenter's controller, a few minutes the first time")
    binary = build_go("sigs.k8s.io/karpenter/kwok", "bench-karpenter-kwok", report)
    command = ["go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/karpenter"]
    environment = dict(go_environment(cache_folder(), report))
    listed = subprocess.run(
        command, cwd=KARPENTER_MODULE, env=environment, check=True, capture_output=True, text=True, timeout=120
    )
    return Karpenter(binary, tuple(Path(listed.stdout.strip()) / folder for folder in _CRDS))


@contextmanager
def running(karpenter: Karpenter, stack: Stack, options: StackOptions, *, feature_gates: str = "") -> Iterator[int]:
    """The controller runs, with the CustomResourceDefinitions and a class whose nodes boot as long as the stack's; the
    id of its process.

    `feature_gates` as in Karpenter's setting FEATURE_GATES; empty: its defaults.
    """
    for folder in karpenter.crds:
        stack.kubectl("apply", "-f", str(folder))
    stack.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
    delay = f"{options.boot_seconds + options.ready_seconds:.0f}s"
    stack.kubectl("apply", "-f", "-", input=json.dumps(_CLASS | {"spec": {"nodeRegistrationDelay": delay}}))
    ports = Ports()
    try:
        environment = {
            "PATH": os.defpath,
            "HOME": str(stack.directory),
            "KUBECONFIG": str(stack.kubeconfig),
            "SYSTEM_NAMESPACE": "kube-system",
            "DISABLE_LEADER_ELECTION": "true",
            "METRICS_PORT": str(ports.take()),
            "HEALTH_PROBE_PORT": str(ports.take()),
        }
        if feature_gates:
            environment["FEATURE_GATES"] = feature_gates
        with Processes(stack.logs) as processes:
            yield processes.start("karpenter", [str(karpenter.binary)], environment=environment).pid
    finally:
        ports.close()


def workload(replicas: int) -> str:
    """The NodePool and Deployment of the benchmark, with Karpenter's class for kwok and instance types of its own."""
    pool, deployment = json.loads(interrupted(replicas))["items"]
    template = pool["spec"]["template"]
    template["metadata"]["labels"][KUBELET_LABEL] = "kwok"
    template["spec"]["nodeClassRef"] = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    template["spec"]["requirements"] = [
        requirement
        for requirement in template["spec"]["requirements"]
        if not requirement["key"].startswith("karpenter.k8s.aws/")
    ]
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [pool, deployment]})
