"""One step in the life of a NodeClaim: launched, registered, initialized, kept up to date, or on its way out.

Level-triggered: every step reads the claim and its node anew and writes what is missing. Karpenter's order within a
pass: launch, registration, initialization, liveness.
"""

import math
from datetime import datetime, timedelta
from typing import Final

from spotwright.aws.instance_types import discovered_capacity
from spotwright.failures import Conflict, Failure, NotFound
from spotwright.lifecycle import liveness
from spotwright.lifecycle.initialization import initialize
from spotwright.lifecycle.registration import NodeUpdate, lacks_partition, register
from spotwright.lifecycle.steps import ConditionChange, StepResult, false_condition, true_condition
from spotwright.model import labels
from spotwright.model.karpenter import consolidation_timer
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.kubernetes.node import Node, instance_id
from spotwright.model.snapshot import STATIC_CAPACITY
from spotwright.workflows import launching, lifecycle_nominations, lifecycle_reservations
from spotwright.workflows.lifecycle_acting import (
    Acting,
    delete_claim,
    is_tainted,
    log,
    nodes_of,
    note,
    record,
    request_disruption,
    request_planning,
    ring,
    tick,
    uncordon,
    unlocked,
)
from spotwright.workflows.lifecycle_tagging import tag
from spotwright.workflows.lifecycle_termination import terminate
from spotwright.workflows.ports import Doorbell
from spotwright.workflows.terminations import Ending

# A claim that is being deleted is seen for the first time when it does not say yet how far it is.
_UNDERWAY: Final = ("Drained", "InstanceTerminating")
# A node that becomes idle this soon is rung for at the moment itself; later ones are found by the schedule.
SOON: Final = timedelta(seconds=120)


def step(ports: Acting, name: str, endings: list[Ending], *, now: datetime, ticks: int = 0) -> None:
    """Take the claim ``name`` one step further. ``ticks``: number of this tick in its chain, 0 = no chain rang.

    A chain of ticks is carried on until the claim is settled; a lost race or an API in trouble only costs a tick.
    """
    claim = ports.cluster.nodeclaim(name)
    if claim is None or not claim.is_managed:
        return
    starts = claim.metadata.deletion_timestamp is not None and not any(
        find_condition(claim.conditions, one) for one in _UNDERWAY
    )
    try:
        wait = terminate(ports, claim, now, endings) if claim.metadata.deletion_timestamp else _live(ports, claim, now)
    except (Conflict, NotFound) as lost:
        log.info("nodeclaim is in other hands", extra={"NodeClaim": name, "conflict": str(lost)})
        wait = 1.0
    except Failure as failure:
        log.warning("step interrupted", extra={"NodeClaim": name, "code": failure.code, "error": str(failure)})
        wait = float("inf")
    if wait is not None and (ticks or starts):
        tick(ports, name, ticks + 1, within_seconds=wait)
    # Its limit may let a pool replace a node only when that is gone.
    if claim.metadata.deletion_timestamp and (starts or wait is None) and _is_static(ports, claim):
        request_planning(ports)


def _is_static(ports: Acting, claim: NodeClaim) -> bool:
    """True for a node of a pool that keeps a number of them."""
    if STATIC_CAPACITY not in ports.settings.feature_gates:
        return False
    return any(one.name == claim.nodepool and one.replicas is not None for one in ports.cluster.nodepools())


def step_of_node(ports: Acting, name: str, endings: list[Ending], *, now: datetime) -> None:
    """A node changed: its claim takes a step. Deleting a Node deletes its claim."""
    node = ports.cluster.node(name)
    if node is None or not node.provider_id:
        return
    claims = [one for one in ports.cluster.nodeclaims() if one.provider_id == node.provider_id]
    for claim in claims:
        if (
            node.metadata.deletion_timestamp is not None
            and claim.metadata.deletion_timestamp is None
            and claim.is_managed
        ):
            ports.cluster.delete("nodeclaims", claim.metadata)
            log.info("deleted nodeclaim of a deleted node", extra={"NodeClaim": claim.name, "Node": name})
            tick(ports, claim.name, 1, within_seconds=0)
        step(ports, claim.name, endings, now=now)
    if not claims and node.metadata.deletion_timestamp is not None and labels.FINALIZER in node.metadata.finalizers:
        kept = [one for one in node.metadata.finalizers if one != labels.FINALIZER]
        ports.cluster.patch_metadata("nodes", node.metadata, {"finalizers": kept})
        log.info("deleted node", extra={"Node": name})


def _live(ports: Acting, claim: NodeClaim, now: datetime) -> float | None:
    """Seconds until the next look at the latest; None when the claim is settled."""
    if labels.FINALIZER not in claim.metadata.finalizers:
        finalizers = [*claim.metadata.finalizers, labels.FINALIZER]
        ports.cluster.patch_metadata("nodeclaims", claim.metadata, {"finalizers": finalizers})
    gone = liveness.expiration(claim, now) or liveness.timeout(claim, now)
    if gone is not None:
        log.info(_CAUSES.get(gone.reason, "deleting nodeclaim"), extra={"NodeClaim": claim.name, "why": gone.message})
        delete_claim(ports, claim, gone)
        return None
    if not claim.is_condition_true("Launched"):
        return _launching(ports, claim, now)
    nodes = nodes_of(ports, claim)
    if not claim.is_condition_true("Registered"):
        return _registering(ports, claim, nodes, now)
    node = nodes[0] if nodes else None
    if not claim.is_condition_true("Initialized"):
        return _initializing(ports, claim, node, now)
    return _keeping(ports, claim, node, now)


_CAUSES: Final = {
    "expired": "deleting expired nodeclaim",
    "launch_timeout": "terminating due to timeout",
    "registration_timeout": "terminating due to timeout",
}


def _launching(ports: Acting, claim: NodeClaim, now: datetime) -> float:
    """A claim without a launch gets one; a claim with one waits for it."""
    launch = launching.adopt(ports, claim, now=now)
    if launch:
        launching.advance(ports, launch, now=now)
    return float("inf")


def _registering(ports: Acting, claim: NodeClaim, nodes: tuple[Node, ...], now: datetime) -> float | None:
    if nodes and lacks_partition(claim):
        claim = _with_partition(ports, claim)
    registration = register(claim, nodes)
    if registration.node_update is None:
        _write(ports, claim, registration.result, now)
        return float("inf")
    _take_over(ports, lifecycle_nominations.held(ports, claim, registration.node_update, now))
    _write(ports, claim, registration.result, now)
    note(ports, "nodes", registration.node_update.node.metadata, registration.result.events, now=now)
    tag(ports, claim, registration.node_update.node.name, now)
    current = ports.cluster.nodeclaim(claim.name)
    node = ports.cluster.node(registration.node_update.node.name)
    return 1.0 if current is None or current.metadata.deletion_timestamp else _initializing(ports, current, node, now)


def _with_partition(ports: Acting, claim: NodeClaim) -> NodeClaim:
    """The claim with the partition of its placement group, as soon as EC2 shows it; written on it as well."""
    instance = ports.ec2.instance(instance_id(claim.provider_id))
    if instance is None or not instance.partition_number:
        return claim
    told = {labels.PLACEMENT_GROUP_PARTITION: str(instance.partition_number)}
    ports.cluster.patch_metadata("nodeclaims", claim.metadata, {"labels": told})
    return ports.cluster.nodeclaim(claim.name) or claim


def _take_over(ports: Acting, adoption: NodeUpdate) -> None:
    """Metadata first, taints last: pods come only to a node that carries all its labels."""
    ports.cluster.patch_metadata("nodes", adoption.node.metadata, adoption.metadata)
    current = ports.cluster.node(adoption.node.name)
    if current is not None and current.taints != adoption.taints:
        ports.cluster.set_taints(current, adoption.taints)


def _initializing(ports: Acting, claim: NodeClaim, node: Node | None, now: datetime) -> float | None:
    node = lifecycle_nominations.release(ports, claim, node, now)
    seen = initialize(claim, node)
    if seen.log and node is not None:
        ports.cluster.patch_metadata("nodes", node.metadata, {"labels": {labels.INITIALIZED: "true"}})
    _write(ports, claim, seen, now)
    if not seen.log:
        return float("inf")
    tagging = tag(ports, claim, claim.node_name, now)
    if node is not None and discovered_capacity.has_less_memory(node, claim):
        # Plans count with what the catalog says until it knows better.
        ports.bells.ring("catalog", [Doorbell(ports.cluster.name, "nodeclasses")])
    current = ports.cluster.nodeclaim(claim.name)
    if current is None:
        return None
    landing = lifecycle_nominations.follow(ports, current, node, now)
    return _sooner(tagging, landing, _consolidatable(ports, current, now))


def _keeping(ports: Acting, claim: NodeClaim, node: Node | None, now: datetime) -> float | None:
    """An initialized claim: its pods, tags, pod events, Consolidatable; a taint that no command stands behind goes."""
    ending = lifecycle_reservations.step(ports, claim, node)
    if ending is not None:
        delete_claim(ports, claim, ending)
        return None
    landing = lifecycle_nominations.follow(ports, claim, node, now)
    tagging = tag(ports, claim, claim.node_name, now)
    if node is not None:
        if is_tainted(node) and not _is_disrupted(ports, claim):
            uncordon(ports, node)
            if claim.is_condition_true("DisruptionReason"):
                record(ports, claim, [false_condition("DisruptionReason", "NotDisrupted")], now=now)
        pods = ports.cluster.pods(node=node.name)
        if consolidation_timer.has_pod_event(claim, pods, now):
            stamp = now.strftime("%Y-%m-%dT%H:%M:%SZ")
            ports.cluster.patch_status("nodeclaims", unlocked(claim.metadata), {"lastPodEventTime": stamp})
            seen = {labels.PODS_SEEN: consolidation_timer.pods_digest(pods)}
            ports.cluster.patch_metadata("nodeclaims", claim.metadata, {"annotations": seen})
            claim = ports.cluster.nodeclaim(claim.name) or claim
    return _sooner(tagging, landing, _consolidatable(ports, claim, now))


def _sooner(*waits: float | None) -> float | None:
    return min((one for one in waits if one is not None), default=None)


def _is_disrupted(ports: Acting, claim: NodeClaim) -> bool:
    """True while a command or a notice means this claim, or a committed one may that was not acted on yet."""
    return (
        any(claim.name in row.candidates for row in ports.state.commands())
        or any(row.instance_id == instance_id(claim.provider_id) for row in ports.state.notices())
        or bool(ports.state.cluster().unacted)
    )


def _consolidatable(ports: Acting, claim: NodeClaim, now: datetime) -> float | None:
    """The condition, and the seconds until it becomes True."""
    pool = next((one for one in ports.cluster.nodepools() if one.name == claim.nodepool), None)
    at = consolidation_timer.consolidatable_at(claim, pool)
    if at is not None and at <= now:
        if not claim.is_condition_true("Consolidatable"):
            log.debug("marking consolidatable", extra={"NodeClaim": claim.name})
            record(ports, claim, [true_condition("Consolidatable")], now=now)
            request_disruption(ports)
        return None
    if claim.is_condition_true("Consolidatable"):
        record(ports, claim, [false_condition("Consolidatable", "NotConsolidatable")], now=now)
    if at is not None and at - now <= SOON:
        # No tick: the chain of a claim that has settled ends, and this rings once, at the moment itself.
        ring(ports, "claim", [claim.name], delay_seconds=math.ceil((at - now).total_seconds()))
    return None


def _write(ports: Acting, claim: NodeClaim, seen: StepResult, now: datetime) -> None:
    """Status fields, then conditions: what a True condition stands for is there when it is read."""
    if seen.status:
        ports.cluster.patch_status("nodeclaims", unlocked(claim.metadata), seen.status)
    changes: list[ConditionChange] = [one for one in seen.condition_changes if not _same(claim, one)]
    record(ports, claim, changes, now=now)
    note(ports, "nodeclaims", claim.metadata, seen.events, now=now)
    if seen.log:
        node = seen.status.get("nodeName") or claim.node_name
        launched = find_condition(claim.conditions, "Launched")
        since = (launched.last_transition_time if launched else None) or now
        log.info(
            seen.log,
            extra={
                "NodeClaim": claim.name,
                "provider-id": claim.provider_id,
                "Node": node,
                "seconds": (now - since).total_seconds(),
            },
        )


def _same(claim: NodeClaim, change: ConditionChange) -> bool:
    before = find_condition(claim.conditions, change.type)
    return before is not None and (before.status, before.reason, before.message) == (
        change.status, change.reason, change.message,
    )  # fmt: skip
