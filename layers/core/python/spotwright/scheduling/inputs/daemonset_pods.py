"""DaemonSets as load on the nodes that they would run on.

Source: Karpenter v1.14 ``scheduler.go`` (daemon overhead).
"""

from collections.abc import Iterable
from typing import Final

from spotwright.model.kubernetes.pod import RESOURCE_CLAIMS, DaemonSet, Pod
from spotwright.model.kubernetes.taints import Taint, TaintEffect, Toleration
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.inputs.pod_requirements import node_terms

# What the DaemonSet controller adds to every pod it makes (Kubernetes "Taints and tolerations").
_DAEMONSET_TOLERATIONS: Final = (
    Toleration("node.kubernetes.io/not-ready", "Exists", effect=TaintEffect.NO_EXECUTE),
    Toleration("node.kubernetes.io/unreachable", "Exists", effect=TaintEffect.NO_EXECUTE),
    Toleration("node.kubernetes.io/disk-pressure", "Exists", effect=TaintEffect.NO_SCHEDULE),
    Toleration("node.kubernetes.io/memory-pressure", "Exists", effect=TaintEffect.NO_SCHEDULE),
    Toleration("node.kubernetes.io/pid-pressure", "Exists", effect=TaintEffect.NO_SCHEDULE),
    Toleration("node.kubernetes.io/unschedulable", "Exists", effect=TaintEffect.NO_SCHEDULE),
    Toleration(operator="Exists", effect=TaintEffect.PREFER_NO_SCHEDULE),
)


class DaemonSetPod:
    """The pod of a DaemonSet. ``node_terms``: node selector and node affinity, alternatives of which one must hold."""

    __slots__ = ("host_ports", "key", "node_terms", "requests", "tolerations")

    def __init__(self, daemonset: DaemonSet, running_pod: Pod | None) -> None:
        # A running pod shows what admission changed. Its node affinity names its own host: the template's counts.
        pod = running_pod or daemonset.template
        self.key = daemonset.metadata.key
        self.requests = pod.requests
        self.host_ports = pod.host_ports
        self.tolerations = (*pod.tolerations, *_DAEMONSET_TOLERATIONS)
        self.node_terms = tuple(node_terms(daemonset.template))

    def tolerates(self, taints: Iterable[Taint]) -> bool:
        return all(any(toleration.tolerates(taint) for toleration in self.tolerations) for taint in taints)


def build_daemonset_pods(snapshot: Snapshot) -> tuple[DaemonSetPod, ...]:
    """Every readable DaemonSet, by key. A DaemonSet with device claims runs on no node that is provisioned here."""
    running = {
        daemonset_key(pod): pod for pod in snapshot.pods if pod.metadata.owner_references and not pod.is_terminal
    }
    readable = (
        daemonset
        for daemonset in snapshot.daemonsets
        if not daemonset.template.read_error and RESOURCE_CLAIMS not in daemonset.template.unsupported_fields
    )
    daemonset_pods = (DaemonSetPod(daemonset, running.get(daemonset.metadata.key)) for daemonset in readable)
    return tuple(sorted(daemonset_pods, key=lambda daemonset_pod: daemonset_pod.key))


def daemonset_key(pod: Pod) -> str:
    """``namespace/name`` of the DaemonSet that owns a pod; "" if none does."""
    name = next((owner.name for owner in pod.metadata.owner_references if owner.kind == "DaemonSet"), "")
    return f"{pod.metadata.namespace}/{name}" if name else ""
