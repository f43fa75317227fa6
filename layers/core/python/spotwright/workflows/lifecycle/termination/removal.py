"""What is left to do of a NodeClaim whose instance has ended: its Nodes are let go and deleted, then it is let go."""

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime

from spotwright.errors import Conflict, NotFound
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.kubernetes.node import Node
from spotwright.telemetry import events, log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.account import offering_health_store
from spotwright.workflows.lifecycle.actions import log, request_disruption
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.rows import epoch_ms


def remove_nodes(ports: LifecyclePorts, claim: NodeClaim, nodes: Iterable[Node]) -> bool:
    """Let go of the claim's Nodes and delete them. Whether the claim may go as well: as in Karpenter, whoever keeps a
    Node by a finalizer of its own may need its claim, once that is registered.
    """
    remaining = [node for node in nodes if not remove_node(ports, node)]
    return not remaining or not claim.is_condition_true("Registered")


def remove_node(ports: LifecyclePorts, node: Node) -> bool:
    """Let go of the Node as it was read, and delete it. Whether it is gone: a finalizer of another may keep it.

    What others write of it meanwhile is not in the way, unless it is a finalizer: Conflict. It is deleted last: a Node
    that is being deleted rings, and for one that is gone no step can be taken.
    """
    finalizers = [finalizer for finalizer in node.metadata.finalizers if finalizer != labels.FINALIZER]
    is_held = labels.FINALIZER in node.metadata.finalizers
    if is_held:
        # Gone meanwhile: its name may be another's by now, which has another uid.
        with suppress(NotFound):
            ports.cluster.set_taints(node, node.taints, metadata={"finalizers": finalizers})
    if node.metadata.deletion_timestamp is None:
        ports.cluster.delete("nodes", node.metadata)
    if is_held or not finalizers:
        log_line(log, log_lines.DELETED_NODE, node=node.name)
    return not finalizers


def remove_finalizer(ports: LifecyclePorts, claim: NodeClaim, now: datetime) -> bool:
    """Let the claim go, and say so; nothing where another step did. Whether it is gone: a finalizer of another may
    keep it.
    """
    try:
        is_gone = _let_go(ports, claim)
    except Conflict:
        current = ports.cluster.nodeclaim(claim.name)
        if current is None or current.metadata.uid != claim.metadata.uid:
            return True
        if labels.FINALIZER not in current.metadata.finalizers:
            # Another step let it go and said so; the finalizer of another keeps it.
            return False
        is_gone = _let_go(ports, current)
    if claim.metadata.labels.get(labels.CAPACITY_TYPE) == labels.RESERVED:
        reservation = claim.metadata.labels.get(labels.RESERVATION_ID, "")
        offering_health_store.record_reservation_use(ports.state, reservation, -1, now_ms=epoch_ms(now))
    ports.events.record_event("nodeclaims", claim.metadata, events.FINALIZED(finalizer=labels.FINALIZER), now=now)
    log_line(log, log_lines.DELETED_NODECLAIM, nodeclaim=claim.name, provider_id=claim.provider_id)
    if find_condition(claim.conditions, "DisruptionReason") is not None:
        request_disruption(ports)
    return is_gone


def _let_go(ports: LifecyclePorts, claim: NodeClaim) -> bool:
    """Remove the finalizer from the claim as it was read, whether it was the last one; Conflict when it has changed."""
    finalizers = [finalizer for finalizer in claim.metadata.finalizers if finalizer != labels.FINALIZER]
    ports.cluster.patch_metadata("nodeclaims", claim.metadata, {"finalizers": finalizers})
    return not finalizers
