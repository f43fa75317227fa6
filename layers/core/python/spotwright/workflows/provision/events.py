"""Events on pods, NodePools, nodes and NodeClaims about what plans mean for them."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from itertools import batched
from typing import Final

from spotwright.decisions.decision import Decision
from spotwright.errors import ApiError
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.plurals import counted
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan
from spotwright.telemetry import events
from spotwright.telemetry.rows import Event
from spotwright.workflows.parallel import in_parallel
from spotwright.workflows.planning.time_budget import LAST_SECONDS, SecondsLeft
from spotwright.workflows.ports.cluster import ClusterPort
from spotwright.workflows.provision import buffer_status

# Events on pods in one invocation. Karpenter itself records at most ten nominations at once, and five a second
# (``pkg/controllers/provisioning/scheduling/events.go``).
MAXIMUM_POD_EVENTS: Final = 500
# Between two of these there is a look at the time that is left.
EVENTS_AT_ONCE: Final = 50


def record_events(
    cluster: ClusterPort, plans: Sequence[tuple[Snapshot, Plan, Decision | None]], seconds_left: SecondsLeft
) -> None:
    """Events on pods, with Karpenter's reasons: where each should schedule, or why it cannot. Never raises.

    ``plans``: with the decision that was committed for each. Of more Events than ``MAXIMUM_POD_EVENTS``, those of other
    pods are recorded every minute; none is begun when time runs out.
    """
    waiting: list[tuple[Pod, Event, datetime]] = []
    for snapshot, plan, decision in plans:
        _record_object_events(cluster, snapshot, plan)
        buffer_status.update_buffer_status(cluster, snapshot, plan)
        pods = snapshot.pods_by_key()
        waiting += [
            (pods[key], event, snapshot.now)
            for key, event in _pod_events(plan, decision)
            if key in pods and _wants_event(pods[key])
        ]
    for batch in batched(_in_turn(waiting), EVENTS_AT_ONCE, strict=False):
        if seconds_left is not None and seconds_left() < LAST_SECONDS:
            return
        in_parallel(lambda told: _record(cluster, "pods", told[0].metadata, told[1], told[2]), batch)


def _in_turn(waiting: Sequence[tuple[Pod, Event, datetime]]) -> Sequence[tuple[Pod, Event, datetime]]:
    """As many Events as are recorded at once; those of other pods every minute."""
    turns = max(1, -(-len(waiting) // MAXIMUM_POD_EVENTS))
    turn = int(waiting[-1][2].timestamp()) // 60 % turns if waiting else 0
    return waiting[turn * MAXIMUM_POD_EVENTS : (turn + 1) * MAXIMUM_POD_EVENTS]


def _record(cluster: ClusterPort, kind: str, metadata: ObjectMeta, event: Event, now: datetime) -> None:
    """The decision is committed already, whether or not anybody hears of it."""
    with suppress(ApiError):
        cluster.record_event(kind, metadata, event, now=now)


def _record_object_events(cluster: ClusterPort, snapshot: Snapshot, plan: Plan) -> None:
    """Events on NodePools that select or may launch nothing, and on nodes and claims that cannot be read."""
    metadata = {f"nodepools/{nodepool.name}": nodepool.metadata for nodepool in snapshot.nodepools}
    metadata |= {f"nodeclaims/{nodeclaim.name}": nodeclaim.metadata for nodeclaim in snapshot.nodeclaims}
    metadata |= {f"nodes/{node.name}": node.metadata for node in snapshot.nodes}
    for name, reason in plan.nodepools_without_offerings.items():
        event = events.NO_COMPATIBLE_INSTANCE_TYPES(reason=reason)
        _record(cluster, "nodepools", metadata[f"nodepools/{name}"], event, snapshot.now)
    for held_back in plan.nodes_held_back:
        event = events.LAUNCHES_HELD_BACK(nodes=counted(held_back.nodes, "node"), reason=held_back.reason)
        _record(cluster, "nodepools", metadata[f"nodepools/{held_back.nodepool}"], event, snapshot.now)
    for key, error in plan.read_errors.items():
        _record(cluster, key.partition("/")[0], metadata[key], events.UNREADABLE(reason=error), snapshot.now)


def _wants_event(pod: Pod) -> bool:
    """Whether kube-scheduler tried the pod and found no place, and the pod is not a DaemonSet's."""
    return pod.unschedulable and not pod.is_owned_by("DaemonSet") and not pod.nominated_node_name


def _pod_events(plan: Plan, decision: Decision | None) -> Iterator[tuple[str, Event]]:
    """Events by the key of their pod: first of those without a place, who have more need of them."""
    for unschedulable in (*plan.unschedulable_pods, *plan.ignored_pods):
        yield unschedulable.pod, events.FAILED_SCHEDULING(reasons="; ".join(unschedulable.reasons))
    for pod, claim in _claims_by_pod(decision):
        yield pod, events.NOMINATED(target=f"nodeclaim/{claim}")
    for node in plan.existing_nodes:
        for pod in node.pods:
            yield pod, events.NOMINATED(target=f"node/{node.name}")


def _claims_by_pod(decision: Decision | None) -> Iterable[tuple[str, str]]:
    """Each pending pod and the NodeClaim that was decided for it."""
    for launch in decision.launches if decision else ():
        for claim, pods in zip(launch.claims, launch.pods, strict=True):
            yield from ((pod, claim) for pod in pods)
