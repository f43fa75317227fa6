"""Per-node and per-pod gauges under Karpenter's names, and counters of the forwarder itself.

Source of names and labels: Karpenter v1.14 ``pkg/controllers/metrics``. Only metrics of watched objects are served;
the others are in CloudWatch.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import batched

import msgspec
from prometheus_client import Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

from forwarder.loop import Counters, Loop
from spotwright.model import labels, resources
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import Pod
from spotwright.telemetry import metrics as rows
from spotwright.telemetry.rows import PrometheusMetric

# Samples of so many pods and nodes are in memory at once; a node has a sample for each of its resources.
PODS_AT_ONCE, NODES_AT_ONCE = 1000, 250

_LABELS = sorted(labels.WELL_KNOWN - {labels.NODEPOOL})

#: Labels and value; within a metric all samples have the same labels in the same order.
type Sample = tuple[Mapping[str, str], float]


class StateFigures(msgspec.Struct, frozen=True):
    """Of the newest cluster state. ``age_seconds`` 0 = nothing has changed since it was taken."""

    full_bytes: int = 0
    changes_bytes: int = 0
    age_seconds: float = 0.0
    failures: int = 0
    late: int = 0


def state_figures(loop: Loop, wall: datetime) -> StateFigures:
    """The figures of a loop's cluster state."""
    shipping, late = loop.shipping, loop.pods.late
    written = shipping.written
    if written is None:
        return StateFigures(failures=shipping.failures, late=late)
    current = shipping.shows(loop.cache.changes.number)
    return StateFigures(
        full_bytes=written.state.full.size_bytes,
        changes_bytes=written.changes_bytes or 0,
        age_seconds=0.0 if current else (wall - written.state.taken).total_seconds(),
        failures=shipping.failures,
        late=late,
    )


class ClusterCollector:
    """A collector of prometheus_client: ``families`` makes the metrics anew for each scrape."""

    def __init__(self, families: Callable[[], Iterable[Metric]]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families()


def families(
    nodes: Sequence[Node],
    pods: Sequence[Pod],
    counters: Counters,
    state: StateFigures,
    *,
    fresh: bool,
    silent_seconds: Mapping[str, float],
) -> Iterator[Metric]:
    """Every metric. ``silent_seconds``: per kind, how long ago it was last heard of."""
    by_name = {node.name: node for node in nodes}
    yield from _node_gauges(nodes, pods)
    for some in batched(pods, PODS_AT_ONCE, strict=False) if pods else [()]:
        yield _family(rows.PODS_STATE, [(_pod_labels(pod, by_name), 1) for pod in some])
    yield _single(rows.CLUSTER_NODE_COUNT, len(nodes))
    yield _single(rows.CLUSTER_SYNCED, int(fresh))
    yield _family(
        rows.WATCH_SILENT_SECONDS, [({"kind": kind}, seconds) for kind, seconds in sorted(silent_seconds.items())]
    )
    yield _family(
        rows.FORWARDER_DOORBELLS, [({"queue": queue}, number) for queue, number in sorted(counters.sent.items())]
    )
    yield _single(rows.FORWARDER_FAILED_DOORBELLS, counters.failed)
    yield _single(rows.FORWARDER_HEARTBEATS, counters.heartbeats)
    sizes = {"full": state.full_bytes, "changes": state.changes_bytes}
    yield _family(rows.FORWARDER_STATE_BYTES, [({"body": body}, size) for body, size in sizes.items()])
    yield _single(rows.FORWARDER_STATE_AGE_SECONDS, state.age_seconds)
    yield _single(rows.FORWARDER_STATE_FAILURES, state.failures)
    yield _single(rows.FORWARDER_STATE_LATE, state.late)


def _single(row: PrometheusMetric, value: float) -> Metric:
    return _family(row, [({}, value)])


def _family(row: PrometheusMetric, samples: Sequence[Sample]) -> Metric:
    names = list(samples[0][0]) if samples else []
    make = GaugeMetricFamily if row.kind == "gauge" else CounterMetricFamily
    family = make(row.name, row.when, labels=names)
    for labelled, value in samples:
        family.add_metric(list(labelled.values()), value)
    return family


def _node_gauges(nodes: Sequence[Node], pods: Sequence[Pod]) -> Iterator[Metric]:
    pods_by_node: dict[str, list[Pod]] = {}
    for pod in pods:
        if pod.node_name and not pod.is_terminal:
            pods_by_node.setdefault(pod.node_name, []).append(pod)

    def gauge(row: PrometheusMetric, amounts: Callable[[Node], Mapping[str, int]]) -> Iterator[Metric]:
        for some in batched(nodes, NODES_AT_ONCE, strict=False) if nodes else [()]:
            yield _family(row, [sample for node in some for sample in _per_resource(node, amounts(node))])

    def requests(node: Node, daemons: bool) -> dict[str, int]:
        running = pods_by_node.get(node.name, ())
        return resources.add(*(pod.requests for pod in running if pod.is_owned_by("DaemonSet") is daemons))

    yield from gauge(rows.NODES_ALLOCATABLE, lambda node: node.allocatable)
    yield from gauge(rows.NODES_POD_REQUESTS, lambda node: requests(node, daemons=False))
    yield from gauge(rows.NODES_DAEMON_REQUESTS, lambda node: requests(node, daemons=True))
    yield from gauge(rows.NODES_SYSTEM_OVERHEAD, lambda node: resources.subtract(node.capacity, node.allocatable))


def _per_resource(node: Node, amounts: Mapping[str, int]) -> Iterator[Sample]:
    """cpu in cores, memory in bytes, other resources as counts."""
    for name, size in sorted(amounts.items()):
        yield {**_node_labels(node), "resource_type": name}, size / 1000 if name == resources.CPU else size


def _node_labels(node: Node) -> dict[str, str]:
    return {
        "node_name": node.name,
        "nodepool": node.nodepool,
        "managed": str(labels.NODEPOOL in node.metadata.labels).lower(),
        "phase": "deleting" if node.metadata.deletion_timestamp else "ready" if node.is_ready else "not-ready",
        **{_snake(key): node.metadata.labels.get(key, "") for key in _LABELS},
    }


def _pod_labels(pod: Pod, nodes: Mapping[str, Node]) -> dict[str, str]:
    node = nodes.get(pod.node_name)
    node_labels = node.metadata.labels if node else {}
    owner = next(iter(pod.metadata.owner_references), None)
    return {
        "name": pod.metadata.name,
        "namespace": pod.metadata.namespace,
        "owner": f"{owner.kind}/{owner.name}" if owner else "",
        "node": pod.node_name,
        "nodepool": node_labels.get(labels.NODEPOOL, ""),
        "zone": node_labels.get(labels.ZONE, ""),
        "arch": node_labels.get(labels.ARCH, ""),
        "capacity_type": node_labels.get(labels.CAPACITY_TYPE, ""),
        "instance_type": node_labels.get(labels.INSTANCE_TYPE, ""),
        "phase": pod.phase,
        "scheduled": str(bool(pod.node_name)).lower(),
        "ready": str(pod.is_ready).lower(),
        "managed": str(labels.NODEPOOL in node_labels).lower(),
    }


def _snake(key: str) -> str:
    return key.partition("/")[2].replace("-", "_")
