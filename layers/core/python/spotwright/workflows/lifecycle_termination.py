"""The end of a NodeClaim: node cordoned and drained, volumes detached, instance terminated, objects let go.

Source: Karpenter v1.14 ``pkg/controllers/node/termination`` and the finalizer of ``nodeclaim/lifecycle``. We let
neither node nor claim go before a direct read of the instance says that it is terminated, and look for instances of
the claim's launch when it never learnt of one.
"""

import math
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from spotwright.disruption import emptiness
from spotwright.lifecycle import drain as draining
from spotwright.lifecycle import nodeclaim_creation
from spotwright.lifecycle.steps import false_condition, normal_event, true_condition, unknown_condition, warning_event
from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes import eviction
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.kubernetes.node import Node, instance_id
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.taints import TaintEffect, untolerated_taints
from spotwright.scheduling.inputs.provisionable import is_follower
from spotwright.workflows import launching, offering_memory, shifts
from spotwright.workflows.lifecycle_acting import (
    Acting,
    cordon,
    log,
    milliseconds,
    nodes_of,
    note,
    record,
    request_disruption,
)
from spotwright.workflows.terminations import Ending

# Two reads this far apart must both say NotFound before an instance counts as gone.
NOT_FOUND_TWICE: Final = timedelta(seconds=60)
FORCEFUL: Final = "Forceful Termination"


def terminate(ports: Acting, claim: NodeClaim, now: datetime, endings: list[Ending]) -> float | None:
    """One step towards the claim's end. Seconds until something is due, inf for the next tick, None when it is gone.

    An instance whose time has come is put on ``endings``: those of one invocation are ended together.
    """
    if labels.FINALIZER not in claim.metadata.finalizers:
        return None
    deadline = _deadline(ports, claim, now)
    nodes = nodes_of(ports, claim)
    instance, gone = _instance(ports, claim, now)
    for node in nodes:
        if gone and not node.is_ready:
            # The machine does not exist any more: nothing on it can be drained.
            continue
        wait = _empty(ports, claim, node, deadline, now)
        if wait is not None:
            return wait
    if not gone:
        _end_instance(ports, claim, instance, now, endings)
        return float("inf")
    for node in nodes:
        _let_go_of_node(ports, node)
    _let_go(ports, claim, now)
    return None


def _deadline(ports: Acting, claim: NodeClaim, now: datetime) -> datetime | None:
    """When the node goes no matter what; set once from terminationGracePeriod, never moved."""
    stated = claim.metadata.annotations.get(labels.TERMINATION_TIMESTAMP)
    if stated:
        return datetime.fromisoformat(stated)
    if claim.termination_grace_period_seconds is None or claim.metadata.deletion_timestamp is None:
        return None
    deadline = claim.metadata.deletion_timestamp + timedelta(seconds=claim.termination_grace_period_seconds)
    text = deadline.strftime("%Y-%m-%dT%H:%M:%SZ")
    ports.cluster.patch_metadata("nodeclaims", claim.metadata, {"annotations": {labels.TERMINATION_TIMESTAMP: text}})
    warn = warning_event("TerminationGracePeriodExpiring", f"All pods will be deleted by {text}")
    note(ports, "nodeclaims", claim.metadata, [warn], now=now)
    return deadline


def _empty(ports: Acting, claim: NodeClaim, node: Node, deadline: datetime | None, now: datetime) -> float | None:
    """Cordon, drain and wait for volumes; None once the node is empty."""
    node = cordon(ports, node)
    if labels.EXCLUDE_FROM_LOAD_BALANCERS not in node.metadata.labels:
        change = {"labels": {labels.EXCLUDE_FROM_LOAD_BALANCERS: "karpenter"}}
        ports.cluster.patch_metadata("nodes", node.metadata, change)
    if not claim.is_condition_true("Drained"):
        wait = _drain(ports, claim, node, deadline, now)
        if wait is not None:
            return wait
        record(ports, claim, [true_condition("Drained")], now=now)
    return _volumes(ports, claim, node, deadline, now)


def _drain(ports: Acting, claim: NodeClaim, node: Node, deadline: datetime | None, now: datetime) -> float | None:
    began = find_condition(claim.conditions, "Drained")
    if began is None:
        record(ports, claim, [unknown_condition("Drained", "Draining")], now=now)
    drain = draining.drain(ports.cluster.pods(node=node.name), deadline=deadline, now=now)
    if not drain.waiting:
        since = (began.last_transition_time if began else None) or now
        left = (since + draining.MINIMUM_DRAIN - now).total_seconds()
        return left if left > 0 else None
    _evict(ports, claim, node, drain, now)
    return (drain.next_forced_deletion - now).total_seconds() if drain.next_forced_deletion else math.inf


def _evict(ports: Acting, claim: NodeClaim, node: Node, drain: draining.Drain, now: datetime) -> None:
    reason = find_condition(claim.conditions, "DisruptionReason")
    why = reason.reason if reason and reason.status == "True" else FORCEFUL
    for one in drain.delete:
        ports.cluster.delete("pods", one.pod.metadata, grace_seconds=one.grace_seconds)
        told = f"Deleting the pod to accommodate the terminationTime of the node, grace period {one.grace_seconds}s"
        note(ports, "pods", one.pod.metadata, [normal_event("Disrupted", told)], now=now)
    for pod in drain.evict:
        if ports.cluster.evict(pod) or _leave_with(ports, node, pod, why):
            note(ports, "pods", pod.metadata, [normal_event("Evicted", f"Evicted pod: {why}")], now=now)
        else:
            told = f"evicting pod {pod.key} violates a PDB"
            note(ports, "nodes", node.metadata, [warning_event("FailedDraining", told)], now=now)
    told = f"Failed to drain node, {len(drain.waiting)} pods are waiting to be evicted"
    note(ports, "nodes", node.metadata, [warning_event("FailedDraining", told)], now=now)


def _leave_with(ports: Acting, node: Node, pod: Pod, why: str) -> bool:
    """A follower never keeps the last node: where its budget refuses and no other node would take it, or the node goes
    because it is empty, it is deleted with its whole grace period."""
    if not is_follower(pod, ports.settings) or (why != emptiness.REASON and _has_elsewhere(ports, node, pod)):
        return False
    ports.cluster.delete("pods", pod.metadata)
    return True


def _has_elsewhere(ports: Acting, node: Node, pod: Pod) -> bool:
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


def _volumes(ports: Acting, claim: NodeClaim, node: Node, deadline: datetime | None, now: datetime) -> float | None:
    if find_condition(claim.conditions, "InstanceTerminating") is not None:
        return None
    attached = ports.cluster.volume_attachments(node.name)
    if len(attached) <= _kept_volumes(ports.cluster.pods(node=node.name), now):
        record(ports, claim, [true_condition("VolumesDetached")], now=now)
        return None
    if deadline is not None and now >= deadline:
        record(ports, claim, [false_condition("VolumesDetached", "TerminationGracePeriodElapsed")], now=now)
        return None
    message = "waiting for volumes to detach: " + ", ".join(sorted(attached))
    record(ports, claim, [unknown_condition("VolumesDetached", "AwaitingVolumeDetachment", message)], now=now)
    note(ports, "nodes", node.metadata, [normal_event("AwaitingVolumeDetachment", message)], now=now)
    return (deadline - now).total_seconds() if deadline else math.inf


def _kept_volumes(pods: Iterable[Pod], now: datetime) -> int:
    """Claimed volumes of pods that stay to the end: those cannot detach before the instance goes."""
    staying = (pod for pod in pods if not pod.is_terminal and not eviction.is_waiting_eviction(pod, now))
    return sum(len(pod.volume_claim_names) for pod in staying)


def _instance(ports: Acting, claim: NodeClaim, now: datetime) -> tuple[Instance | None, bool]:
    """The claim's instance by a direct read, and whether it is certain that there is none any more."""
    if not claim.provider_id:
        return _unlearnt(ports, claim)
    found = ports.ec2.instance(instance_id(claim.provider_id))
    if found is not None and found.state != "terminated":
        return found, False
    if claim.metadata.labels.get(labels.ZONE) in shifts.zones(ports):
        # What EC2 says of a zone that is shifted away from proves nothing.
        return None, False
    if found is not None:
        return found, True
    first = claim.metadata.annotations.get(labels.INSTANCE_NOT_FOUND)
    if first is None:
        stamp = {labels.INSTANCE_NOT_FOUND: now.strftime("%Y-%m-%dT%H:%M:%SZ")}
        ports.cluster.patch_metadata("nodeclaims", claim.metadata, {"annotations": stamp})
        return None, False
    return None, now - datetime.fromisoformat(first) >= NOT_FOUND_TWICE


def _unlearnt(ports: Acting, claim: NodeClaim) -> tuple[Instance | None, bool]:
    """A claim that never learnt of an instance: its launch may still have bought one.

    Among the launch's instances that nobody holds, ours is the one that would have been dealt to us.
    """
    if not launching.release(ports, claim):
        return None, False
    launch = claim.metadata.annotations.get(labels.LAUNCH, "")
    if not launch:
        return None, True
    mine = _dealt_to(ports, claim, launch)
    return mine, mine is None


def _dealt_to(ports: Acting, claim: NodeClaim, launch: str) -> Instance | None:
    row = ports.state.launch(launch)
    claims = ports.cluster.nodeclaims()
    held = {instance_id(one.provider_id) for one in claims} | set(row.instances.values() if row else ())
    alive = {one.id: one for one in ports.ec2.instances_of_launch(launch) if one.state != "terminated"}
    waiting = [
        one.name for one in claims if one.metadata.annotations.get(labels.LAUNCH) == launch and not one.provider_id
    ]
    # Claims that stay are served first: only what is left over is taken down with this one.
    staying = nodeclaim_creation.assign_instances(_staying(claims, waiting), {}, sorted(set(alive) - held))
    rest = sorted(set(alive) - held - set(staying.values()))
    return alive[rest[0]] if rest else None


def _staying(claims: Iterable[NodeClaim], waiting: list[str]) -> list[str]:
    return [one.name for one in claims if one.name in waiting and one.metadata.deletion_timestamp is None]


def _end_instance(
    ports: Acting, claim: NodeClaim, instance: Instance | None, now: datetime, endings: list[Ending]
) -> None:
    if instance is None:
        return
    if instance.state == "shutting-down":
        record(ports, claim, [true_condition("InstanceTerminating")], now=now)
    else:
        endings.append(Ending(instance, claim))


def _let_go_of_node(ports: Acting, node: Node) -> None:
    ports.cluster.delete("nodes", node.metadata)
    current = ports.cluster.node(node.name)
    if current is not None and labels.FINALIZER in current.metadata.finalizers:
        kept = [one for one in current.metadata.finalizers if one != labels.FINALIZER]
        ports.cluster.patch_metadata("nodes", current.metadata, {"finalizers": kept})
    log.info("deleted node", extra={"Node": node.name})


def _let_go(ports: Acting, claim: NodeClaim, now: datetime) -> None:
    current = ports.cluster.nodeclaim(claim.name)
    if current is None or current.metadata.uid != claim.metadata.uid:
        return
    if claim.metadata.labels.get(labels.CAPACITY_TYPE) == labels.RESERVED:
        into = claim.metadata.labels.get(labels.RESERVATION_ID, "")
        offering_memory.reservation_taken(ports.state, into, -1, now_ms=milliseconds(now))
    kept = [one for one in current.metadata.finalizers if one != labels.FINALIZER]
    ports.cluster.patch_metadata("nodeclaims", current.metadata, {"finalizers": kept})
    finalized = normal_event("Finalized", f"Finalized {labels.FINALIZER}")
    note(ports, "nodeclaims", claim.metadata, [finalized], now=now)
    log.info("deleted nodeclaim", extra={"NodeClaim": claim.name, "provider-id": claim.provider_id})
    if find_condition(claim.conditions, "DisruptionReason") is not None:
        request_disruption(ports)
