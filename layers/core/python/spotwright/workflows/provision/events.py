"""Events on pods, NodePools, nodes and NodeClaims about what a plan means for them."""

from collections.abc import Iterator

from spotwright.decisions.decision import Decision
from spotwright.errors import ApiError
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan
from spotwright.workflows.ports.cluster import ClusterPort
from spotwright.workflows.provision import buffer_status


def record_events(cluster: ClusterPort, snapshot: Snapshot, plan: Plan, decision: Decision | None) -> None:
    """Events on pods, with Karpenter's reasons: where each should schedule, or why it cannot. Never raises."""
    _record_object_events(cluster, snapshot, plan)
    buffer_status.update_buffer_status(cluster, snapshot, plan)
    pods = {pod.key: pod for pod in snapshot.pods}
    for key, reason, kind, message in _pod_events(plan, decision):
        if key in pods and _wants_event(pods[key]):
            try:
                cluster.record_event(
                    "pods", pods[key].metadata, type=kind, reason=reason, message=message, now=snapshot.now
                )
            except ApiError:
                continue


def _record_object_events(cluster: ClusterPort, snapshot: Snapshot, plan: Plan) -> None:
    """Events on NodePools that select nothing, and on nodes and claims that cannot be read."""
    about = {f"nodepools/{nodepool.name}": nodepool.metadata for nodepool in snapshot.nodepools}
    about |= {f"nodeclaims/{nodeclaim.name}": nodeclaim.metadata for nodeclaim in snapshot.nodeclaims}
    about |= {f"nodes/{node.name}": node.metadata for node in snapshot.nodes}
    said = [
        (f"nodepools/{name}", "NoCompatibleInstanceTypes", why)
        for name, why in plan.nodepools_without_offerings.items()
    ]
    for key, reason, why in (*said, *((key, "Unreadable", why) for key, why in plan.read_errors.items())):
        try:
            kind = key.partition("/")[0]
            cluster.record_event(kind, about[key], type="Warning", reason=reason, message=why, now=snapshot.now)
        except ApiError:
            continue


def _wants_event(pod: Pod) -> bool:
    """True for a pod that waits for a place; one of a DaemonSet, or one that was not tried yet, is not spoken to."""
    return pod.unschedulable and not pod.is_owned_by("DaemonSet") and not pod.nominated_node_name


def _pod_events(plan: Plan, decision: Decision | None) -> Iterator[tuple[str, str, str, str]]:
    for launch in decision.launches if decision else ():
        names = ", ".join(f"nodeclaim/{name}" for name in launch.claims)
        for pod in launch.node.pods:
            yield pod, "Nominated", "Normal", f"Pod should schedule on: {names}"
    for node in plan.existing_nodes:
        for pod in node.pods:
            yield pod, "Nominated", "Normal", f"Pod should schedule on: node/{node.name}"
    for refused in (*plan.unschedulable_pods, *plan.ignored_pods):
        yield refused.pod, "FailedScheduling", "Warning", "Failed to schedule pod, " + "; ".join(refused.reasons)
