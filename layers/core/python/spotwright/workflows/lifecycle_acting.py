"""What every part of ``lifecycle`` reaches, and the few writes they share: conditions, events, cordon, deletion."""

import logging
from collections.abc import Iterable
from datetime import datetime
from typing import Final, Protocol

import msgspec

from spotwright.lifecycle import conditions
from spotwright.lifecycle.retry import MAXIMUM_TICKS, tick_seconds
from spotwright.lifecycle.steps import ConditionChange, Deletion, Event, transition_events
from spotwright.model import labels
from spotwright.model.ec2.fleet import ClusterFacts
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.eviction import DISRUPTED_TAINT
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.node import Node
from spotwright.model.snapshot import Settings
from spotwright.workflows.ports import (
    BlobPort,
    CatalogPort,
    ClusterPort,
    Doorbell,
    DoorbellPort,
    Ec2Port,
    StatePort,
)

log: Final = logging.getLogger("spotwright.lifecycle")


class Acting(Protocol):
    """What the one hand reaches. ``facts``: what EKS says of the cluster."""

    @property
    def cluster(self) -> ClusterPort: ...
    @property
    def ec2(self) -> Ec2Port: ...
    @property
    def state(self) -> StatePort: ...
    @property
    def blobs(self) -> BlobPort: ...
    @property
    def bells(self) -> DoorbellPort: ...
    @property
    def catalogs(self) -> CatalogPort: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def facts(self) -> ClusterFacts: ...


def milliseconds(at: datetime) -> int:
    """Epoch milliseconds, as rows keep time."""
    return int(at.timestamp() * 1000)


def ring(ports: Acting, kind: str, keys: Iterable[str], *, delay_seconds: int = 0, epoch: int = 0) -> None:
    """Ring lifecycle's own doorbell, once for each key."""
    bells = [Doorbell(ports.cluster.name, kind, key, epoch) for key in keys]
    if bells:
        ports.bells.ring("lifecycle", bells, delay_seconds=delay_seconds)


def tick(ports: Acting, claim: str, number: int, *, within_seconds: float = float("inf")) -> None:
    """Ring for the next tick of a claim; ``within_seconds``: something is due then at the latest.

    Ticks are numbered by the doorbell's epoch; a chain ends at MAXIMUM_TICKS, then the sweep looks on.
    """
    if number <= MAXIMUM_TICKS:
        delay = min(tick_seconds(number), max(1, int(within_seconds) + 1 if within_seconds < 1000 else 1000))
        ring(ports, "claim", [claim], delay_seconds=delay, epoch=number)


def request_planning(ports: Acting, *, delay_seconds: int = 0) -> None:
    """Pods may have lost the place that was meant for them."""
    ports.bells.ring("provision", [Doorbell(ports.cluster.name, "pods")], delay_seconds=delay_seconds)


def request_disruption(ports: Acting) -> None:
    """A node became idle, or a slot of a budget is free again: no need to wait for the schedule."""
    ports.bells.ring("disrupt", [Doorbell(ports.cluster.name, "evaluate")])


def record(ports: Acting, claim: NodeClaim, changes: Iterable[ConditionChange], *, now: datetime) -> None:
    """Write the conditions of a claim that changed, the root included, and an event for each transition."""
    written = conditions.conditions_to_write(
        claim.metadata, claim.conditions, changes, dependents=conditions.NODECLAIM_CONDITIONS, now=now
    )
    if written:
        ports.cluster.set_conditions("nodeclaims", claim.metadata, written)
        note(ports, "nodeclaims", claim.metadata, transition_events(claim.conditions, written), now=now)


def note(ports: Acting, kind: str, about: ObjectMeta, notes: Iterable[Event], *, now: datetime) -> None:
    for one in notes:
        ports.cluster.event(kind, about, type=one.type, reason=one.reason, message=one.message, now=now)


def unlocked(about: ObjectMeta) -> ObjectMeta:
    """The object's identity without its resourceVersion: for a patch that may follow another of ours."""
    return msgspec.structs.replace(about, resource_version="")


def delete_claim(ports: Acting, claim: NodeClaim, cause: Deletion) -> None:
    """Delete a claim by its uid and begin to look at its end."""
    if claim.metadata.deletion_timestamp is None:
        ports.cluster.delete("nodeclaims", claim.metadata)
        log.info(
            "disrupted nodeclaim",
            extra={"NodeClaim": claim.name, "nodepool": claim.nodepool, "reason": cause.reason, "why": cause.message},
        )
    tick(ports, claim.name, 1, within_seconds=0)


def cordon(ports: Acting, node: Node) -> Node:
    """The node with the disrupted taint; it takes no further pods and no load-balancer traffic."""
    if DISRUPTED_TAINT not in node.taints:
        ports.cluster.set_taints(node, (*node.taints, DISRUPTED_TAINT))
        log.info("tainted node", extra={"Node": node.name, "taint": str(DISRUPTED_TAINT)})
        return ports.cluster.node(node.name) or node
    return node


def uncordon(ports: Acting, node: Node) -> None:
    kept = tuple(taint for taint in node.taints if taint != DISRUPTED_TAINT)
    if kept != node.taints:
        ports.cluster.set_taints(node, kept)


def nodes_of(ports: Acting, claim: NodeClaim) -> tuple[Node, ...]:
    """Nodes with the claim's provider id, by name. One read when the node is known, else a whole list."""
    if not claim.provider_id:
        return ()
    if claim.node_name and (known := ports.cluster.node(claim.node_name)) is not None:
        return (known,) if known.provider_id == claim.provider_id else ()
    return tuple(
        sorted(
            (node for node in ports.cluster.nodes() if node.provider_id == claim.provider_id),
            key=lambda node: node.name,
        )
    )


def is_tainted(node: Node) -> bool:
    return any(taint.key == labels.DISRUPTED for taint in node.taints)
