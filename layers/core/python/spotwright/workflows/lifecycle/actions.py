"""Writes that the steps of ``lifecycle`` share: conditions, events, taints, deletion, doorbells."""

import logging
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from spotwright.lifecycle import conditions
from spotwright.lifecycle.retry import MAXIMUM_TICKS, tick_seconds
from spotwright.lifecycle.steps import ConditionChange, Deletion, transition_events
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.eviction import DISRUPTED_TAINT
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.node import Node
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.telemetry.rows import Event
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.doorbells import Doorbell

log: Final = logging.getLogger("spotwright.lifecycle")


def ring_lifecycle(
    ports: LifecyclePorts,
    kind: str,
    keys: Iterable[str],
    *,
    delay_seconds: int = 0,
    epoch: int = 0,
    queue: str = "lifecycle",
) -> None:
    """Ring lifecycle's own doorbell, once for each key. ``queue``: lifecycle, or notices for what is urgent."""
    bells = [Doorbell(ports.cluster.name, kind, key, epoch) for key in keys]
    if bells:
        ports.doorbells.ring(queue, bells, delay_seconds=delay_seconds)


def ring_notices(ports: LifecyclePorts, instances: Iterable[str], *, delay_seconds: int = 0) -> None:
    """Ring for the notices of these instances."""
    ring_lifecycle(ports, "notice", instances, delay_seconds=delay_seconds, queue="notices")


def ring_next_tick(ports: LifecyclePorts, claim: str, number: int, *, within_seconds: float = float("inf")) -> None:
    """Ring for the next tick of a claim, at the latest in ``within_seconds``.

    The doorbell's epoch is the tick's number; after MAXIMUM_TICKS the sweep rings instead.
    """
    if number <= MAXIMUM_TICKS:
        delay = min(tick_seconds(number), max(1, int(within_seconds) + 1 if within_seconds < 1000 else 1000))
        ring_lifecycle(ports, "claim", [claim], delay_seconds=delay, epoch=number)


def request_planning(ports: LifecyclePorts, *, delay_seconds: int = 0) -> None:
    """Pods may have lost the node that was planned for them."""
    ports.doorbells.ring("provision", [Doorbell(ports.cluster.name, "pods")], delay_seconds=delay_seconds)


def request_disruption(ports: LifecyclePorts) -> None:
    """A node became empty, or a disruption budget allows one more: the schedule need not be waited for."""
    ports.doorbells.ring("disrupt", [Doorbell(ports.cluster.name, "evaluate")])


def update_conditions(
    ports: LifecyclePorts, claim: NodeClaim, changes: Iterable[ConditionChange], *, now: datetime
) -> None:
    """Write the conditions of a claim that changed, the root included, and an event for each transition."""
    written = conditions.conditions_to_write(
        claim.metadata, claim.conditions, changes, dependents=conditions.NODECLAIM_CONDITIONS, now=now
    )
    if written:
        ports.cluster.set_conditions("nodeclaims", claim.metadata, written)
        record_events(ports, "nodeclaims", claim.metadata, transition_events(claim.conditions, written), now=now)


def record_events(
    ports: LifecyclePorts, kind: str, about: ObjectMeta, events: Iterable[Event], *, now: datetime
) -> None:
    for event in events:
        ports.cluster.record_event(kind, about, event, now=now)


def delete_claim(ports: LifecyclePorts, claim: NodeClaim, cause: Deletion) -> None:
    """Delete a claim by its uid, and ring for its termination."""
    if claim.metadata.deletion_timestamp is None:
        ports.cluster.delete("nodeclaims", claim.metadata)
        log_line(
            log, log_lines.DELETING_NODECLAIM,
            nodeclaim=claim.name, nodepool=claim.nodepool, reason=cause.reason, details=cause.message,
        )  # fmt: skip
    ring_next_tick(ports, claim.name, 1, within_seconds=0)


def cordon(ports: LifecyclePorts, node: Node) -> Node:
    """The node with the disrupted taint; it takes no further pods and no load-balancer traffic."""
    if DISRUPTED_TAINT not in node.taints:
        ports.cluster.set_taints(node, (*node.taints, DISRUPTED_TAINT))
        log_line(log, log_lines.TAINTED_NODE, node=node.name, taint=str(DISRUPTED_TAINT))
        return ports.cluster.node(node.name) or node
    return node


def uncordon(ports: LifecyclePorts, node: Node) -> None:
    taints = tuple(taint for taint in node.taints if taint != DISRUPTED_TAINT)
    if taints != node.taints:
        ports.cluster.set_taints(node, taints)


def nodes_of(ports: LifecyclePorts, claim: NodeClaim) -> tuple[Node, ...]:
    """Nodes with the claim's provider id, by name. One read when the node is known, else a whole list."""
    if not claim.provider_id:
        return ()
    if claim.node_name and (node := ports.cluster.node(claim.node_name)) is not None:
        return (node,) if node.provider_id == claim.provider_id else ()
    return tuple(
        sorted(
            (node for node in ports.cluster.nodes() if node.provider_id == claim.provider_id),
            key=lambda node: node.name,
        )
    )


def has_disrupted_taint(node: Node) -> bool:
    return any(taint.key == labels.DISRUPTED for taint in node.taints)
