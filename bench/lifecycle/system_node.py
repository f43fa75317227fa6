"""A node for what runs in a cluster beside the pods that are measured, so that it neither needs nodes nor moves."""

import json
from typing import Any, Final

from local.kubernetes.control_plane import KUBELET_LABEL
from local.stack import Stack

READY_SECONDS: Final = 180
# Pods that are measured do not tolerate it; Karpenter's tests fail where a node of somebody else takes their pods.
_TAINT: Final = {"key": "CriticalAddonsOnly", "value": "true", "effect": "NoSchedule"}
_SIZE: Final = {"cpu": "16", "memory": "32Gi", "pods": "110"}
_NODE: Final = {
    "apiVersion": "v1",
    "kind": "Node",
    "metadata": {
        "name": "system",
        "labels": {
            KUBELET_LABEL: "kwok", "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            "kubernetes.io/hostname": "system",
        },
        "annotations": {"kwok.x-k8s.io/node": "fake"},
    },
    "spec": {"taints": [_TAINT]},
    "status": {"capacity": _SIZE, "allocatable": _SIZE},
}  # fmt: skip


def add_system_node(stack: Stack) -> None:
    """Raises CalledProcessError when it is not Ready within a minute."""
    stack.kubectl("apply", "-f", "-", input=json.dumps(_NODE))
    stack.kubectl("wait", "--for=condition=Ready", "node/system", "--timeout=60s")


def move_to_system_node(stack: Stack) -> None:
    """Every Deployment runs there, with all of its pods, and none waits for a node. Raises CalledProcessError."""
    template: dict[str, Any] = {
        "spec": {"template": {"spec": {"tolerations": [{"key": _TAINT["key"], "operator": "Exists"}]}}}
    }
    for deployment in json.loads(stack.kubectl("get", "deployments", "-A", "-o", "json").stdout)["items"]:
        named = (deployment["metadata"]["name"], "-n", deployment["metadata"]["namespace"])
        stack.kubectl("patch", "deployment", *named, "--type=strategic", "-p", json.dumps(template))
        stack.kubectl("rollout", "status", "deployment", *named, f"--timeout={READY_SECONDS}s")
