"""Events on pods, NodePools, nodes and NodeClaims about what a plan means for them."""

from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime

from spotwright.decisions.decision import Decision
from spotwright.errors import ApiError
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan
from spotwright.telemetry import events
from spotwright.telemetry.rows import Event
from spotwright.workflows.ports.cluster import ClusterPort
from spotwright.workflows.provision import buffer_status


def record_events(cluster: ClusterPort, snapshot: Snapshot, plan: Plan, decision: Decision | None) -> None:
    """Events on pods, with Karpenter's reasons: where each should schedule, or why it cannot. Never raises."""
    _record_object_events(cluster, snapshot, plan)
    buffer_status.update_buffer_status(cluster, snapshot, plan)
    pods = {pod.key: pod for pod in snapshot.pods}
    for key, event in _pod_events(plan, decision):
        if key in pods and _wants_event(pods[key]):
            _record(cluster, "pods", pods[key].metadata, event, snapshot.now)


def _record(cluster: ClusterPort, kind: str, metadata: ObjectMeta, event: Event, now: datetime) -> None:
    """The decision is committed already, whether or not anybody hears of it."""
    with suppress(ApiError):
        cluster.record_event(kind, metadata, event, now=now)


def _record_object_events(cluster: ClusterPort, snapshot: Snapshot, plan: Plan) -> None:
    """Events on NodePools that select nothing, and on nodes and claims that cannot be read."""
    metadata = {f"nodepools/{nodepool.name}": nodepool.metadata for nodepool in snapshot.nodepools}
    metadata |= {f"nodeclaims/{nodeclaim.name}": nodeclaim.metadata for nodeclaim in snapshot.nodeclaims}
    metadata |= {f"nodes/{node.name}": node.metadata for node in snapshot.nodes}
    for name, reason in plan.nodepools_without_offerings.items():
        event = events.NO_COMPATIBLE_INSTANCE_TYPES(reason=reason)
        _record(cluster, "nodepools", metadata[f"nodepools/{name}"], event, snapshot.now)
    for key, error in plan.read_errors.items():
        _record(cluster, key.partition("/")[0], metadata[key], events.UNREADABLE(reason=error), snapshot.now)


def _wants_event(pod: Pod) -> bool:
    """Whether kube-scheduler tried the pod and found no place, and the pod is not a DaemonSet's."""
    return pod.unschedulable and not pod.is_owned_by("DaemonSet") and not pod.nominated_node_name


def _pod_events(plan: Plan, decision: Decision | None) -> Iterator[tuple[str, Event]]:
    """Events by the key of their pod."""
    for launch in decision.launches if decision else ():
        names = ", ".join(f"nodeclaim/{name}" for name in launch.claims)
        for pod in launch.node.pods:
            yield pod, events.NOMINATED(target=names)
    for node in plan.existing_nodes:
        for pod in node.pods:
            yield pod, events.NOMINATED(target=f"node/{node.name}")
    for unschedulable in (*plan.unschedulable_pods, *plan.ignored_pods):
        yield unschedulable.pod, events.FAILED_SCHEDULING(reasons="; ".join(unschedulable.reasons))
