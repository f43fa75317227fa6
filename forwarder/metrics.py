"""Per-node and per-pod gauges under Karpenter's names, as Prometheus text.

Source of names and labels: Karpenter v1.14 ``pkg/controllers/metrics``; of the format:
https://prometheus.io/docs/instrumenting/exposition_formats/. Only what the forwarder itself sees is served; the
rest of Karpenter's metrics are CloudWatch's.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

import msgspec

from forwarder.loop import Counters
from forwarder.views import NodeView, PodView
from spotwright.model import labels, resources

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LABELS = sorted(labels.WELL_KNOWN - {labels.NODEPOOL})

type Sample = tuple[Mapping[str, str], float]


class Gauge(msgspec.Struct, frozen=True):
    name: str
    help: str
    samples: Sequence[Sample]
    kind: str = "gauge"


def text(
    nodes: Sequence[NodeView],
    pods: Sequence[PodView],
    counters: Counters,
    *,
    fresh: bool,
    silent_seconds: Mapping[str, float],
) -> str:
    """The whole page. ``silent_seconds``: per kind, how long ago it was last heard of."""
    by_name = {node.name: node for node in nodes}
    families = [
        *_node_gauges(nodes, pods),
        Gauge("karpenter_pods_state", "Pods, by where they are.", [(_pod_labels(pod, by_name), 1) for pod in pods]),
        Gauge("karpenter_cluster_state_node_count", "Nodes that are known.", [({}, len(nodes))]),
        Gauge("karpenter_cluster_state_synced", "1 while every kind was heard of lately.", [({}, int(fresh))]),
        Gauge(
            "spotwright_forwarder_silent_seconds",
            "Since a kind was last heard of.",
            [({"kind": kind}, seconds) for kind, seconds in sorted(silent_seconds.items())],
        ),
        Gauge(
            "spotwright_forwarder_doorbells_total",
            "Doorbells sent.",
            [({"queue": queue}, number) for queue, number in sorted(counters.sent.items())],
            "counter",
        ),
        Gauge("spotwright_forwarder_failed_doorbells_total", "Doorbells that no queue took at first.",
              [({}, counters.failed)], "counter"),
        Gauge("spotwright_forwarder_heartbeats_total", "Signs of life written.", [({}, counters.heartbeats)],
              "counter"),
    ]  # fmt: skip
    return "".join(line + "\n" for family in families for line in _lines(family))


def _node_gauges(nodes: Sequence[NodeView], pods: Sequence[PodView]) -> Iterator[Gauge]:
    own: dict[str, list[PodView]] = {}
    for pod in pods:
        if pod.node and not pod.terminal:
            own.setdefault(pod.node, []).append(pod)

    def gauge(name: str, help_text: str, amounts: Iterable[tuple[NodeView, Mapping[str, int]]]) -> Gauge:
        samples = [sample for node, of_node in amounts for sample in _per_resource(node, of_node)]
        return Gauge(f"karpenter_nodes_{name}", help_text, samples)

    def sums(node: NodeView, daemons: bool) -> dict[str, int]:
        return resources.add(*(pod.requests for pod in own.get(node.name, ()) if pod.daemon is daemons))

    yield gauge("allocatable", "What pods may use.", ((one, one.allocatable) for one in nodes))
    yield gauge("total_pod_requests", "What pods other than a DaemonSet's ask for.",
                ((one, sums(one, False)) for one in nodes))  # fmt: skip
    yield gauge("total_daemon_requests", "What DaemonSets' pods ask for.", ((one, sums(one, True)) for one in nodes))
    yield gauge("system_overhead", "What the system keeps: capacity less allocatable.",
                ((one, resources.subtract(one.capacity, one.allocatable)) for one in nodes))  # fmt: skip


def _per_resource(node: NodeView, amounts: Mapping[str, int]) -> Iterator[Sample]:
    """cpu in cores, memory in bytes, everything else in pieces."""
    for name, size in sorted(amounts.items()):
        yield {**_node_labels(node), "resource_type": name}, size / 1000 if name == resources.CPU else size


def _node_labels(node: NodeView) -> dict[str, str]:
    return {
        "node_name": node.name,
        "nodepool": node.labels.get(labels.NODEPOOL, ""),
        "managed": str(labels.NODEPOOL in node.labels).lower(),
        "phase": "deleting" if node.deleting else "ready" if node.ready else "not-ready",
        **{_snake(key): node.labels.get(key, "") for key in _LABELS},
    }


def _pod_labels(pod: PodView, nodes: Mapping[str, NodeView]) -> dict[str, str]:
    node = nodes.get(pod.node)
    of_node = node.labels if node else {}
    return {
        "name": pod.name,
        "namespace": pod.namespace,
        "owner": pod.owner,
        "node": pod.node,
        "nodepool": of_node.get(labels.NODEPOOL, ""),
        "zone": of_node.get(labels.ZONE, ""),
        "arch": of_node.get(labels.ARCH, ""),
        "capacity_type": of_node.get(labels.CAPACITY_TYPE, ""),
        "instance_type": of_node.get(labels.INSTANCE_TYPE, ""),
        "phase": pod.phase,
        "scheduled": str(bool(pod.node)).lower(),
        "ready": str(pod.ready).lower(),
        "managed": str(labels.NODEPOOL in of_node).lower(),
    }


def _snake(key: str) -> str:
    return key.partition("/")[2].replace("-", "_")


def _lines(family: Gauge) -> Iterator[str]:
    yield f"# HELP {family.name} {family.help}"
    yield f"# TYPE {family.name} {family.kind}"
    for named, value in family.samples:
        inside = ",".join(f'{name}="{_escaped(text)}"' for name, text in named.items())
        yield f"{family.name}{{{inside}}} {value!r}" if inside else f"{family.name} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
