"""Draining a node: pods evicted or deleted in Karpenter's order, then volumes waited for."""

import math
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.disruption import emptiness
from spotwright.lifecycle import drain as draining
from spotwright.lifecycle.retry import FULL_RATE, TICK_SECONDS
from spotwright.lifecycle.steps import ConditionChange, false_condition, true_condition, unknown_condition
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes import eviction
from spotwright.model.kubernetes.meta import Condition, find_condition, format_time
from spotwright.model.kubernetes.node import Node, NodeWithVolumes
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.taints import TaintEffect, untolerated_taints
from spotwright.scheduling.inputs.provisionable import is_follower
from spotwright.telemetry import events, log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.lifecycle.actions import (
    cordon,
    for_each,
    log,
    request_planning,
    ring_lifecycle,
    update_conditions,
)
from spotwright.workflows.lifecycle.termination.evictions import evict_pod, known_refusals
from spotwright.workflows.parallel import in_parallel
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.cluster import ClusterPort

FORCEFUL: Final = "Forceful Termination"
# A pod that has so much less than its grace period was told as early as it could be.
LATE_SECONDS: Final = 5
# So many nodes are looked at for one that admits a follower.
NODES_READ: Final = 100
# A time of the termination that comes this soon is rung for; the poll of each minute steps the claim twice before it.
SOON: Final = timedelta(seconds=120)


class Emptying(msgspec.Struct, frozen=True):
    """``claim``: as it is afterwards, None = there is none. ``wait``: seconds until the next step, None once the nodes
    are empty. ``changes``: what the claim's conditions say of that then, written with what comes next.
    """

    claim: NodeClaim | None
    wait: float | None = None
    changes: tuple[ConditionChange, ...] = ()


def empty_nodes(
    ports: LifecyclePorts,
    claim: NodeClaim | None,
    nodes: Iterable[NodeWithVolumes],
    deadline: datetime | None,
    now: datetime,
) -> Emptying:
    """Cordon, drain and wait for volumes. ``nodes``: all Nodes of the claim, of which there is one, usually; or the one
    of no claim.
    """
    nodes = [_cordon(ports, node) for node in nodes]
    if claim is not None and _is_empty(claim):
        return Emptying(claim)
    claim, attachments = _record_attachments(ports, claim, nodes)
    drained: tuple[ConditionChange, ...] = ()
    if claim is None or not claim.is_condition_true("Drained"):
        claim, wait = _drain_nodes(ports, claim, nodes, deadline, now)
        if wait is not None:
            return Emptying(claim, wait)
        drained = (true_condition("Drained"),)
    detached, wait = _await_volumes(ports, claim, nodes, attachments, deadline, now)
    changes = (*drained, *detached)
    return Emptying(claim, changes=changes) if wait is None else Emptying(_write(ports, claim, changes, now), wait)


def _is_empty(claim: NodeClaim) -> bool:
    """Whether the node was found to be empty before its instance was terminated."""
    return claim.is_condition_true("Drained") and find_condition(claim.conditions, "InstanceTerminating") is not None


def _cordon(ports: LifecyclePorts, node: NodeWithVolumes) -> NodeWithVolumes:
    """The node without further pods and without traffic of load balancers."""
    if labels.EXCLUDE_FROM_LOAD_BALANCERS in node.metadata.labels:
        return cordon(ports, node)
    return cordon(ports, node, metadata={"labels": {labels.EXCLUDE_FROM_LOAD_BALANCERS: "karpenter"}})


def _write(
    ports: LifecyclePorts, claim: NodeClaim | None, changes: Iterable[ConditionChange], now: datetime
) -> NodeClaim | None:
    """The claim, if there is one, with these conditions."""
    return claim if claim is None else update_conditions(ports, claim, changes, now=now)


def _drain_nodes(
    ports: LifecyclePorts,
    claim: NodeClaim | None,
    nodes: Iterable[NodeWithVolumes],
    deadline: datetime | None,
    now: datetime,
) -> tuple[NodeClaim | None, float | None]:
    """The planner is rung for before the condition says since when the node drains: a step that is cut off between the
    two rings again.
    """
    nodes = tuple(nodes)
    drained = find_condition(claim.conditions, "Drained") if claim is not None else None
    drains = {node.name: _drain(ports, claim, node, deadline, now) for node in nodes}
    if drained is None:
        if any(_awaits_plan(claim, drain, deadline, now) for drain in drains.values()):
            request_planning(ports)
        claim = _write(ports, claim, [unknown_condition("Drained", "Draining")], now)
    waits: list[float | None] = []

    def drain_node(node: Node) -> None:
        waits.append(_drain_node(ports, claim, node, drains[node.name], drained, deadline, now))

    for_each("node", nodes, drain_node)
    return claim, min((wait for wait in waits if wait is not None), default=None)


def _drain(
    ports: LifecyclePorts, claim: NodeClaim | None, node: Node, deadline: datetime | None, now: datetime
) -> draining.Drain:
    """What is to be done with the pods that the node has now."""
    pods = ports.cluster.pods(node=node.name)
    tier_deadlines = draining.tier_deadlines(pods, deadline, now) if _ends_early(claim, deadline) and deadline else {}
    return draining.drain(pods, deadline=deadline, now=now, tier_deadlines=tier_deadlines)


def _drain_node(
    ports: LifecyclePorts,
    claim: NodeClaim | None,
    node: Node,
    drain: draining.Drain,
    drained: Condition | None,
    deadline: datetime | None,
    now: datetime,
) -> float | None:
    """Seconds until the next step, None once the node is drained. ``drained``: the condition, None = since now."""
    if not drain.waiting:
        began = now if claim is not None and drained is None else _began(claim, node, drained, now)
        seconds_left = (began + draining.MINIMUM_DRAIN - now).total_seconds()
        return seconds_left if seconds_left > 0 else None
    if _awaits_plan(claim, drain, deadline, now) and (wait := _planning_wait(drained, now)) > 0:
        return wait
    # It is rung for first: an eviction that fails must not make it late.
    due = drain.next_forced_deletion
    until_forced = _await(ports, claim, due, now) if due is not None else None
    try:
        if deadline is not None:
            _delete_forcefully(ports, claim, drain, deadline, now)
    finally:
        wait = _evict(ports, claim, node, drain, now)
    return wait if until_forced is None else until_forced


def _began(claim: NodeClaim | None, node: Node, drained: Condition | None, now: datetime) -> datetime:
    """When the drain began: when the condition was written, or, if that is a time to come, when the claim was deleted;
    of a Node without a claim when that was.
    """
    written = drained.last_transition_time if drained is not None else None
    if written is not None and written <= now:
        return written
    deleted = (claim or node).metadata.deletion_timestamp
    return min(deleted or now, now)


def _await(ports: LifecyclePorts, claim: NodeClaim | None, at: datetime, now: datetime) -> float:
    """Seconds until ``at``, which has not passed; the claim is rung for just after it when it is near and ticks may not
    come in time: some minutes after the deletion they grow longer, and then end.
    """
    deleted = claim.metadata.deletion_timestamp if claim is not None else None
    if claim is not None and deleted is not None and now - deleted >= FULL_RATE and at - now <= SOON:
        seconds = math.floor((at - now).total_seconds()) + 1
        ring_lifecycle(ports, "claim", [claim.name], delay_seconds=seconds)
    return (at - now).total_seconds()


def _ends_early(claim: NodeClaim | None, deadline: datetime | None) -> bool:
    """Whether something else than terminationGracePeriod ends the termination: EC2 takes the instance. Then pods that
    are kept are told to stop in the order of a drain; Karpenter tells each by its own grace period.
    """
    if claim is None or claim.metadata.deletion_timestamp is None or deadline is None:
        return False
    grace_seconds = claim.termination_grace_period_seconds
    return grace_seconds is None or deadline < claim.metadata.deletion_timestamp + timedelta(seconds=grace_seconds)


def _awaits_plan(claim: NodeClaim | None, drain: draining.Drain, deadline: datetime | None, now: datetime) -> bool:
    """Whether evictions wait for a plan: for pods of a claim that a user deleted, that expired, or whose Node somebody
    deleted, nobody has planned; what is disrupted has its replacements already.
    """
    if claim is None or claim.is_condition_true("DisruptionReason"):
        return False
    return not draining.evicts_before_plan(drain, deadline=deadline, now=now)


def _planning_wait(drained: Condition | None, now: datetime) -> float:
    """Seconds until a plan that was rung for when the drain began is there.

    ``drained``: the condition, which says since when the node drains; None = since now. A time to come says nothing.
    """
    began = (drained.last_transition_time if drained else None) or now
    wait = began + draining.PLANNING_PERIOD - now
    return wait.total_seconds() if wait <= draining.PLANNING_PERIOD else 0


def _record_attachments(
    ports: LifecyclePorts, claim: NodeClaim | None, nodes: Iterable[NodeWithVolumes]
) -> tuple[NodeClaim | None, frozenset[str]]:
    """The claim, if there is one, with the names of its nodes' VolumeAttachments, of all that there were since the
    drain began; and these names.

    A node's status shows a volume only until it begins to detach, and VolumeAttachments cannot be selected by node.
    """
    attachments = frozenset(name for node in nodes for name in node.volume_attachments)
    if claim is None:
        return claim, attachments
    recorded = frozenset(filter(None, claim.metadata.annotations.get(labels.VOLUME_ATTACHMENTS, "").split(",")))
    attachments |= recorded
    if attachments == recorded:
        return claim, attachments
    change = {"annotations": {labels.VOLUME_ATTACHMENTS: ",".join(sorted(attachments))}}
    return ports.cluster.patch_nodeclaim(claim, change), attachments


def _delete_forcefully(
    ports: LifecyclePorts, claim: NodeClaim | None, drain: draining.Drain, deadline: datetime, now: datetime
) -> None:
    """Delete the pods that would outlast the deadline, without asking their disruption budgets; one whose deletion
    fails does not keep the others.
    """
    forced_deletes = {forced_delete.pod.key: forced_delete for forced_delete in drain.delete}

    def delete(pod: Pod) -> None:
        forced_delete = forced_deletes[pod.key]
        metadata, seconds = pod.metadata, forced_delete.grace_seconds
        ports.cluster.delete("pods", metadata, grace_seconds=seconds)
        event = events.DISRUPTED(deadline=format_time(deadline), seconds=seconds)
        ports.events.record_event("pods", metadata, event, now=now)
        if seconds + LATE_SECONDS < forced_delete.pod.termination_grace_period_seconds:
            _say_too_late(ports, claim, forced_delete, deadline, now)

    for_each("pod", [forced_delete.pod for forced_delete in drain.delete], delete)


def _say_too_late(
    ports: LifecyclePorts,
    claim: NodeClaim | None,
    forced_delete: draining.ForcedDelete,
    deadline: datetime,
    now: datetime,
) -> None:
    """Say of a pod that it cannot stop as it should, however early it would be told now."""
    pod, seconds = forced_delete.pod, forced_delete.grace_seconds
    needed = pod.termination_grace_period_seconds
    log_line(log, log_lines.POD_STOPPED_EARLY, pod=pod.key, node=pod.node_name, needed_seconds=needed, seconds=seconds)
    if claim is not None:
        event = events.POD_STOPPED_EARLY(pod=pod.key, needed=needed, seconds=seconds, deadline=format_time(deadline))
        ports.events.record_event("nodeclaims", claim.metadata, event, now=now)


def _evict(ports: LifecyclePorts, claim: NodeClaim | None, node: Node, drain: draining.Drain, now: datetime) -> float:
    """Seconds until the next step: inf where only pods are waited for that stop, since their end rings.

    A pod whose eviction fails, as where an admission webhook denies it, does not keep the others.
    """
    disruption_reason = find_condition(claim.conditions, "DisruptionReason") if claim is not None else None
    cause = disruption_reason.reason if disruption_reason and disruption_reason.status == "True" else FORCEFUL
    known = known_refusals(ports) if drain.evict else {}
    refused_labels = set[tuple[str, frozenset[tuple[str, str]]]]()

    def evict(pod: Pod) -> None:
        selected_by = pod.metadata.namespace, frozenset(pod.metadata.labels.items())
        if selected_by in refused_labels:
            # The same budgets select it: another refusal tells nothing, and costs the API server a request.
            return
        if evict_pod(ports, pod, known, now=now) or _delete_follower(ports, node, pod, cause):
            ports.events.record_event("pods", pod.metadata, events.EVICTED(reason=cause), now=now)
        else:
            refused_labels.add(selected_by)
            refused = events.FAILED_DRAINING(reason=f"evicting pod {pod.key} violates a PDB")
            ports.events.record_event("nodes", node.metadata, refused, now=now)

    for_each("pod", drain.evict, evict)
    if refused_labels or not drain.evict:
        waiting = events.FAILED_DRAINING(reason=f"{len(drain.waiting)} pods are waiting to be evicted")
        ports.events.record_event("nodes", node.metadata, waiting, now=now)
    return TICK_SECONDS if refused_labels else math.inf


def _delete_follower(ports: LifecyclePorts, node: Node, pod: Pod, cause: str) -> bool:
    """Delete a follower that no other node would admit, or whose node is removed as empty, despite its budget.

    Followers must not keep the last node; the pod has its whole grace period.
    """
    if not is_follower(pod, ports.settings) or (
        cause != emptiness.REASON and _tolerates_another_node(ports, node, pod)
    ):
        return False
    ports.cluster.delete("pods", pod.metadata)
    return True


def _tolerates_another_node(ports: LifecyclePorts, node: Node, pod: Pod) -> bool:
    """Whether the pod tolerates the taints of another Ready node; capacity is left to kube-scheduler.

    Where there are many nodes, one is assumed that admits it: its node is not among the last ones.
    """
    nodes = ports.cluster.nodes(limit=NODES_READ)
    return len(nodes) == NODES_READ or any(
        candidate.is_ready
        and not candidate.unschedulable
        and all(
            taint.effect == TaintEffect.PREFER_NO_SCHEDULE
            for taint in untolerated_taints(candidate.taints, pod.tolerations)
        )
        for candidate in nodes
        if candidate.name != node.name
    )


def _await_volumes(
    ports: LifecyclePorts,
    claim: NodeClaim | None,
    nodes: Collection[NodeWithVolumes],
    attachments: Collection[str],
    deadline: datetime | None,
    now: datetime,
) -> tuple[tuple[ConditionChange, ...], float | None]:
    """The condition of the claim, and the seconds until the next step; None = no volume is waited for any more."""
    if claim is not None and find_condition(claim.conditions, "InstanceTerminating") is not None:
        return (), None
    attached = _awaited_volumes(ports, nodes, attachments, now)
    if not attached:
        return (true_condition("VolumesDetached"),), None
    if deadline is not None and now >= deadline:
        return (false_condition("VolumesDetached", "TerminationGracePeriodElapsed"),), None
    awaiting = events.AWAITING_VOLUME_DETACHMENT(volumes=", ".join(sorted(attached)))
    for node in nodes:
        ports.events.record_event("nodes", node.metadata, awaiting, now=now)
    wait = _await(ports, claim, deadline, now) if deadline else TICK_SECONDS
    return (unknown_condition("VolumesDetached", awaiting.reason, awaiting.message),), wait


def _awaited_volumes(
    ports: LifecyclePorts, nodes: Iterable[NodeWithVolumes], attachments: Collection[str], now: datetime
) -> frozenset[str]:
    """PersistentVolumes attached to the nodes, except those of pods that are not evicted.

    The volume of a pod that is not evicted cannot detach before the instance is terminated.
    """
    attached = frozenset(filter(None, in_parallel(ports.cluster.attached_volume, sorted(attachments))))
    if not attached:
        return attached
    pods = [pod for node in nodes for pod in ports.cluster.pods(node=node.name)]
    remaining = (pod for pod in pods if not pod.is_terminal and not eviction.is_waiting_eviction(pod, now))
    return attached - _volume_names(ports.cluster, remaining)


def _volume_names(cluster: ClusterPort, pods: Iterable[Pod]) -> frozenset[str]:
    """The PersistentVolumes to which the claims of pods are bound; a claim that does not exist has none."""
    keys = {(pod.metadata.namespace, name) for pod in pods for name in pod.volume_claim_names}
    claims = (cluster.persistent_volume_claim(namespace, name) for namespace, name in sorted(keys))
    return frozenset(claim.volume_name for claim in claims if claim is not None)
