"""The termination of a NodeClaim: node cordoned and drained, volumes detached, instance terminated, objects deleted.

Source: Karpenter v1.14 ``pkg/controllers/node/termination`` and the finalizer of ``nodeclaim/lifecycle``. Unlike
Karpenter, node and claim are kept until a direct read shows the instance as terminated, and the instances of the
claim's launch are searched when the claim never received one.
"""

import math
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Final

from spotwright.aws.interruption_messages import REPLACED_KINDS
from spotwright.lifecycle import instance_assignment
from spotwright.lifecycle.retry import TICK_SECONDS
from spotwright.lifecycle.steps import ConditionChange, true_condition
from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import find_condition, format_time, parse_time
from spotwright.model.kubernetes.node import Node, NodeWithVolumes, instance_id
from spotwright.model.quoting import quote
from spotwright.telemetry import events
from spotwright.workflows.lifecycle.actions import (
    assigned_instances,
    claims_by_name,
    nodes_of,
    other_claims,
    update_conditions,
)
from spotwright.workflows.lifecycle.launch.adoption import release_claim
from spotwright.workflows.lifecycle.termination.absence import read_instance
from spotwright.workflows.lifecycle.termination.drain import empty_nodes
from spotwright.workflows.lifecycle.termination.instances import InstanceTermination
from spotwright.workflows.lifecycle.termination.removal import remove_finalizer, remove_nodes
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.rows import epoch_ms

# So long after the time that EC2 named its notice counts for a claim that begins to go.
TAKEN_BACK_MS: Final = 5 * 60 * 1000


def finalize(
    ports: LifecyclePorts,
    claim: NodeClaim,
    now: datetime,
    to_terminate: list[InstanceTermination],
    *,
    seen: NodeWithVolumes | None = None,
    shown: Instance | None = None,
) -> float | None:
    """One step of the termination. Seconds until the next step, inf = what is waited for rings, None = the claim is
    gone. ``seen``: the node whose doorbell rang; ``shown``: the claim's instance as EC2 has just shown it.

    An instance that may be terminated is added to ``to_terminate``: those of an invocation are terminated together.
    """
    if labels.FINALIZER not in claim.metadata.finalizers:
        return None
    claim, deadline = _with_deadline(ports, claim, now)
    nodes = nodes_of(ports, claim, now=now, seen=seen)
    is_new = find_condition(claim.conditions, "Drained") is None
    if is_new and other_claims(ports, claim) and not _is_taken_back(ports, claim, now):
        # The instance is another claim's, too: only this claim goes.
        remove_finalizer(ports, claim, now)
        return None
    is_running = _is_running(claim, nodes)
    instance, is_terminated = (None, False) if is_running else _find_instance(ports, claim, shown, now)
    changes: tuple[ConditionChange, ...] = ()
    # On an instance that does not exist any more nothing can be drained.
    to_empty = tuple(node for node in nodes if node.is_ready or not is_terminated)
    if to_empty:
        emptying = empty_nodes(ports, claim, to_empty, deadline, now)
        claim, changes = emptying.claim or claim, emptying.changes
        if emptying.wait is not None:
            return emptying.wait
    if not is_terminated:
        if is_running:
            id, zone = instance_id(claim.provider_id), claim.metadata.labels.get(labels.ZONE, "")
            to_terminate.append(InstanceTermination(id, zone, claim, changes, nodes))
        elif instance is not None and instance.state != "shutting-down":
            to_terminate.append(InstanceTermination(instance.id, instance.zone, claim, changes, nodes))
        else:
            terminating = () if instance is None else (true_condition("InstanceTerminating"),)
            update_conditions(ports, claim, (*changes, *terminating), now=now)
            return TICK_SECONDS if instance is None else math.inf
        # EC2 tells when it has ended.
        return math.inf
    if not remove_nodes(ports, claim, nodes):
        return TICK_SECONDS
    remove_finalizer(ports, claim, now)
    return None


def _is_taken_back(ports: LifecyclePorts, claim: NodeClaim, now: datetime) -> bool:
    """Whether EC2 takes the instance of a registered claim back about now: then its Node is drained, however many
    claims have it. A notice is kept for a day, and the instance may have been left where it was.
    """
    notice = ports.state.notice(instance_id(claim.provider_id)) if claim.node_name else None
    if notice is None or notice.kind not in REPLACED_KINDS:
        return False
    return epoch_ms(now) < notice.deadline + TAKEN_BACK_MS


def _is_running(claim: NodeClaim, nodes: Collection[Node]) -> bool:
    """Whether kubelets that answer show that the instance runs: until it is terminated, EC2 is not asked about it."""
    if not nodes or not instance_id(claim.provider_id) or claim.is_condition_true("InstanceTerminating"):
        return False
    return all(node.is_ready for node in nodes)


def _with_deadline(ports: LifecyclePorts, claim: NodeClaim, now: datetime) -> tuple[NodeClaim, datetime | None]:
    """The claim with the time at which pods are deleted whatever their budgets, None = never; set once from
    terminationGracePeriod, never changed.

    An annotation that is no time is reported and replaced like one that is not there.
    """
    stated = claim.metadata.annotations.get(labels.TERMINATION_TIMESTAMP)
    if stated and (time := parse_time(stated)):
        return claim, time
    if stated:
        ignored = events.INVALID_TERMINATION_TIMESTAMP(annotation=labels.TERMINATION_TIMESTAMP, value=quote(stated))
        ports.events.record_event("nodeclaims", claim.metadata, ignored, now=now)
    if claim.termination_grace_period_seconds is None or claim.metadata.deletion_timestamp is None:
        return claim, None
    deadline = claim.metadata.deletion_timestamp + timedelta(seconds=claim.termination_grace_period_seconds)
    text = format_time(deadline)
    claim = ports.cluster.patch_nodeclaim(claim, {"annotations": {labels.TERMINATION_TIMESTAMP: text}})
    expiring = events.TERMINATION_GRACE_PERIOD_EXPIRING(deadline=text)
    ports.events.record_event("nodeclaims", claim.metadata, expiring, now=now)
    return claim, deadline


def _find_instance(
    ports: LifecyclePorts, claim: NodeClaim, shown: Instance | None, now: datetime
) -> tuple[Instance | None, bool]:
    """The claim's instance by a direct read, and whether it is certain that it is terminated."""
    if not instance_id(claim.provider_id):
        return _find_unassigned_instance(ports, claim)
    return read_instance(ports, claim, now, shown=shown)


def _find_unassigned_instance(ports: LifecyclePorts, claim: NodeClaim) -> tuple[Instance | None, bool]:
    """The instance of a claim that names none: its launch may have launched one all the same.

    It is the one that was assigned to the claim, or else, of the launch's instances without a claim, the one that would
    have been.
    """
    if not release_claim(ports, claim):
        return None, False
    launch = claim.metadata.annotations.get(labels.LAUNCH, "")
    if not launch:
        return None, True
    instance = _instance_for(ports, claim, launch)
    return instance, instance is None


def _instance_for(ports: LifecyclePorts, claim: NodeClaim, launch: str) -> Instance | None:
    existing = {
        instance.id: instance for instance in ports.ec2.instances_of_launch(launch) if instance.state != "terminated"
    }
    if not existing:
        return None
    row = ports.state.launch(launch)
    own = existing.get(row.instances.get(claim.name, "")) if row else None
    if own is not None:
        return own
    # Only the row says which claims the launch has; without it, all claims are listed.
    claims = tuple(claims_by_name(ports, row.claims).values()) if row else ports.cluster.nodeclaims()
    assigned = assigned_instances(ports, existing.values(), claims) | set(row.instances.values() if row else ())
    waiting = [
        nodeclaim.name
        for nodeclaim in claims
        if nodeclaim.metadata.annotations.get(labels.LAUNCH) == launch and not nodeclaim.provider_id
    ]
    # Claims that are not being deleted come first: only a further instance is terminated with this claim.
    staying = instance_assignment.assign_instances(_staying(claims, waiting), {}, sorted(set(existing) - assigned))
    left_over = sorted(set(existing) - assigned - set(staying.values()))
    return existing[left_over[0]] if left_over else None


def _staying(claims: Iterable[NodeClaim], waiting: list[str]) -> list[str]:
    return [
        nodeclaim.name
        for nodeclaim in claims
        if nodeclaim.name in waiting and nodeclaim.metadata.deletion_timestamp is None
    ]
