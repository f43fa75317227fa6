"""Draining a node: pods evicted or deleted in Karpenter's order, then volumes waited for."""

import math
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from spotwright.disruption import emptiness
from spotwright.lifecycle import drain as draining
from spotwright.lifecycle.steps import false_condition, normal_event, true_condition, unknown_condition, warning_event
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes import eviction
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.taints import TaintEffect, untolerated_taints
from spotwright.scheduling.inputs.provisionable import is_follower
from spotwright.workflows.lifecycle.actions import (
    record_events,
    update_conditions,
)
from spotwright.workflows.ports.bundles import LifecyclePorts

FORCEFUL: Final = "Forceful Termination"


def drain_node(
    ports: LifecyclePorts, claim: NodeClaim, node: Node, deadline: datetime | None, now: datetime
) -> float | None:
    began = find_condition(claim.conditions, "Drained")
    if began is None:
        update_conditions(ports, claim, [unknown_condition("Drained", "Draining")], now=now)
    drain = draining.drain(ports.cluster.pods(node=node.name), deadline=deadline, now=now)
    if not drain.waiting:
        since = (began.last_transition_time if began else None) or now
        left = (since + draining.MINIMUM_DRAIN - now).total_seconds()
        return left if left > 0 else None
    _evict(ports, claim, node, drain, now)
    return (drain.next_forced_deletion - now).total_seconds() if drain.next_forced_deletion else math.inf


def _evict(ports: LifecyclePorts, claim: NodeClaim, node: Node, drain: draining.Drain, now: datetime) -> None:
    reason = find_condition(claim.conditions, "DisruptionReason")
    why = reason.reason if reason and reason.status == "True" else FORCEFUL
    for forced_delete in drain.delete:
        ports.cluster.delete("pods", forced_delete.pod.metadata, grace_seconds=forced_delete.grace_seconds)
        seconds = forced_delete.grace_seconds
        told = f"Deleting the pod to accommodate the terminationTime of the node, grace period {seconds}s"
        record_events(ports, "pods", forced_delete.pod.metadata, [normal_event("Disrupted", told)], now=now)
    for pod in drain.evict:
        if ports.cluster.evict(pod) or _delete_follower(ports, node, pod, why):
            record_events(ports, "pods", pod.metadata, [normal_event("Evicted", f"Evicted pod: {why}")], now=now)
        else:
            told = f"evicting pod {pod.key} violates a PDB"
            record_events(ports, "nodes", node.metadata, [warning_event("FailedDraining", told)], now=now)
    told = f"Failed to drain node, {len(drain.waiting)} pods are waiting to be evicted"
    record_events(ports, "nodes", node.metadata, [warning_event("FailedDraining", told)], now=now)


def _delete_follower(ports: LifecyclePorts, node: Node, pod: Pod, why: str) -> bool:
    """A follower never keeps the last node: where its budget refuses and no other node would take it, or the node goes
    because it is empty, it is deleted with its whole grace period."""
    if not is_follower(pod, ports.settings) or (why != emptiness.REASON and _tolerates_another_node(ports, node, pod)):
        return False
    ports.cluster.delete("pods", pod.metadata)
    return True


def _tolerates_another_node(ports: LifecyclePorts, node: Node, pod: Pod) -> bool:
    """True when another Ready node has no taint that keeps the pod away; room is kube-scheduler's business."""
    return any(
        one.is_ready
        and not one.unschedulable
        and not [
            t for t in untolerated_taints(one.taints, pod.tolerations) if t.effect != TaintEffect.PREFER_NO_SCHEDULE
        ]
        for one in ports.cluster.nodes()
        if one.name != node.name
    )


def await_volumes(
    ports: LifecyclePorts, claim: NodeClaim, node: Node, deadline: datetime | None, now: datetime
) -> float | None:
    if find_condition(claim.conditions, "InstanceTerminating") is not None:
        return None
    attached = ports.cluster.volume_attachments(node.name)
    if len(attached) <= _undetachable_volumes(ports.cluster.pods(node=node.name), now):
        update_conditions(ports, claim, [true_condition("VolumesDetached")], now=now)
        return None
    if deadline is not None and now >= deadline:
        update_conditions(ports, claim, [false_condition("VolumesDetached", "TerminationGracePeriodElapsed")], now=now)
        return None
    message = "waiting for volumes to detach: " + ", ".join(sorted(attached))
    update_conditions(
        ports, claim, [unknown_condition("VolumesDetached", "AwaitingVolumeDetachment", message)], now=now
    )
    record_events(ports, "nodes", node.metadata, [normal_event("AwaitingVolumeDetachment", message)], now=now)
    return (deadline - now).total_seconds() if deadline else math.inf


def _undetachable_volumes(pods: Iterable[Pod], now: datetime) -> int:
    """Claimed volumes of pods that stay to the end: those cannot detach before the instance goes."""
    staying = (pod for pod in pods if not pod.is_terminal and not eviction.is_waiting_eviction(pod, now))
    return sum(len(pod.volume_claim_names) for pod in staying)
