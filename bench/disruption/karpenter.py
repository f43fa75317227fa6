"""Karpenter's own disruption methods on a simulated cluster, command after command."""

import json
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.disruption.cluster import NOW, Launched, SimulatedCluster
from spotwright.model import resources
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes import eviction
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import Pod

type Json = dict[str, Any]

_PATIENCE_SECONDS: Final = 1800


class Command(msgspec.Struct, frozen=True, rename="camel"):
    """What the controller would do next. ``method``: "" = nothing; ``delete``: Nodes; ``moved``: pods by Node.

    ``cpu_seconds``: of all threads, in deciding.
    """

    method: str
    delete: tuple[str, ...]
    launch: tuple[Launched, ...]
    moved: dict[str, tuple[str, ...]]
    seconds: float
    cpu_seconds: float
    peak_mb: int = msgspec.field(name="peakMB")


class Step(msgspec.Struct, frozen=True):
    """A command that was carried out. ``price_picousd_per_hour``: of the cluster after it."""

    command: Command
    evictions: int
    price_picousd_per_hour: int


class Karpenter:
    """``binary``: see ``bench.planner.runs.build_karpenter``; ``problem``: the file of which the cluster was made."""

    def __init__(self, binary: Path, problem: Path) -> None:
        self._binary = binary
        self._path = problem.with_suffix(".cluster.json")
        self._problem: Json = json.loads(problem.read_text())
        self._pods = {_key(pod): pod for pod in self._problem["pods"]}

    def steps(self, cluster: SimulatedCluster, most: int) -> Iterator[Step]:
        """Commands, ``most`` of them, each carried out on the cluster before the next is asked for."""
        for _ in range(most):
            command = self.find_command(cluster)
            if not command.method:
                return
            evictions = _evictions(cluster, command.delete)
            cluster.replace(command.delete, command.launch, command.moved)
            yield Step(command, evictions, cluster.price_picousd_per_hour)

    def find_command(self, cluster: SimulatedCluster) -> Command:
        self._path.write_text(json.dumps(self._describe(cluster)))
        done = subprocess.run(
            [str(self._binary), "-disrupt", "-problem", str(self._path)],
            stdout=subprocess.PIPE, text=True, check=True, timeout=_PATIENCE_SECONDS,
        )  # fmt: skip
        return msgspec.json.decode(done.stdout, type=Command)

    def _describe(self, cluster: SimulatedCluster) -> Json:
        return self._problem | {
            "nodePools": [_always_consolidated(pool) for pool in self._problem["nodePools"]],
            "nodes": [_node(node) for node in cluster.snapshot.nodes],
            "nodeClaims": [_claim(claim) for claim in cluster.snapshot.nodeclaims],
            "pods": [self._pod(pod) for pod in cluster.snapshot.pods],
        }

    def _pod(self, pod: Pod) -> Json:
        """The manifest of the pod, or of which it is a copy with a number before its name."""
        manifest = (
            self._pods.get(pod.key) or self._pods[f"{pod.metadata.namespace}/{pod.metadata.name.partition('-')[2]}"]
        )
        status = {"phase": "Running", "conditions": [{"type": "PodScheduled", "status": "True"}]}
        about = manifest["metadata"] | {"name": pod.metadata.name, "uid": pod.metadata.name}
        return {**manifest, "metadata": about, "spec": manifest["spec"] | {"nodeName": pod.node_name}, "status": status}


def _always_consolidated(pool: Json) -> Json:
    always = {
        "consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s", "budgets": [{"nodes": "100%"}],
    }  # fmt: skip
    return pool | {"spec": pool["spec"] | {"disruption": always}}


def _evictions(cluster: SimulatedCluster, nodes: Collection[str]) -> int:
    """Pods that move when these Nodes go."""
    return sum(pod.node_name in nodes and eviction.is_reschedulable(pod) for pod in cluster.snapshot.pods)


def _key(pod: Json) -> str:
    return f"{pod['metadata'].get('namespace', 'default')}/{pod['metadata']['name']}"


def _node(node: Node) -> Json:
    room = resources.text(node.allocatable)
    return {
        "metadata": {"name": node.name, "labels": node.metadata.labels, "creationTimestamp": NOW.isoformat()},
        "spec": {"providerID": node.provider_id},
        "status": {"allocatable": room, "capacity": room, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def _claim(claim: NodeClaim) -> Json:
    since = NOW.isoformat()
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": since}
        for kind in ("Launched", "Registered", "Initialized", "Consolidatable", "Ready")
    ]
    return {
        "metadata": {"name": claim.name, "labels": claim.metadata.labels, "creationTimestamp": since},
        "spec": {"nodeClassRef": {"group": "karpenter.test.sh", "kind": "TestNodeClass", "name": "default"}},
        "status": {"providerID": claim.provider_id, "nodeName": claim.node_name, "conditions": conditions},
    }
