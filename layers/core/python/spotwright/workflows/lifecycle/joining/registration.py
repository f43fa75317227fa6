"""Registration of a NodeClaim: a Node with its provider id has joined, and takes over what the claim says."""

from datetime import datetime
from typing import Final

import msgspec

from spotwright.errors import Conflict
from spotwright.lifecycle import liveness
from spotwright.lifecycle.initialization import initialize
from spotwright.lifecycle.registration import (
    NodeUpdate,
    lacks_partition,
    register,
)
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import Node, NodeWithVolumes, instance_id
from spotwright.model.kubernetes.taints import Taint
from spotwright.workflows.lifecycle.actions import (
    joins_late,
    nodes_of,
    other_claims,
    record_events,
    report_duplicate_claims,
)
from spotwright.workflows.lifecycle.joining import nominations
from spotwright.workflows.lifecycle.joining.initialization import step_initialization
from spotwright.workflows.lifecycle.joining.launching import give_up
from spotwright.workflows.lifecycle.joining.results import write_result
from spotwright.workflows.lifecycle.status import registration_health
from spotwright.workflows.ports.bundles import LifecyclePorts

TAINT_ATTEMPTS: Final = 3


class SeenNode(msgspec.Struct, frozen=True):
    """A Node whose doorbell rang, and all claims with its provider id, as they were read a moment ago."""

    node: NodeWithVolumes
    claims: tuple[NodeClaim, ...]


def step_registration(
    ports: LifecyclePorts, claim: NodeClaim, nodes: tuple[Node, ...], seen: SeenNode | None, now: datetime
) -> float | None:
    """``nodes``: those with the claim's provider id; ``seen``: the one whose doorbell rang. Seconds until the next step
    at the latest, None = there is none.
    """
    if nodes and lacks_partition(claim):
        claim = _add_partition(ports, claim)
    others = _registered_claims(ports, claim, seen) if nodes or joins_late(claim, now) else ()
    if others:
        report_duplicate_claims(ports, nodes or nodes_of(ports, others[0]), (claim, *others), now=now)
    registration = register(claim, nodes, [other.name for other in others])
    if registration.node_update is None:
        claim = write_result(ports, claim, registration.result, now)
        # A node that joined is registered, however late it is looked at.
        timeout = liveness.timeout(claim, now)
        if timeout is None:
            return float("inf")
        give_up(ports, claim, timeout, now)
        return None
    adoption = nominations.with_held_taint(ports, claim, registration.node_update, now)
    node, are_pods_first = _adopt_node(ports, claim, adoption)
    registration_health.record_registration(ports, claim, now=now)
    result, initialization = registration.result, initialize(claim, node)
    # Some taint of the control plane may be left on a node that is initialized all the same.
    is_starting = initialization.log is None and (node is None or not node.is_open)
    if is_starting:
        changes = (*result.condition_changes, *initialization.condition_changes)
        result = msgspec.structs.replace(result, condition_changes=changes)
    claim = write_result(ports, claim, result, now)
    record_events(ports, "nodes", registration.node_update.node.metadata, registration.result.events, now=now)
    if claim.metadata.deletion_timestamp:
        return 1.0
    return float("inf") if is_starting or are_pods_first else step_initialization(ports, claim, node, now)


def _registered_claims(ports: LifecyclePorts, claim: NodeClaim, seen: SeenNode | None) -> tuple[NodeClaim, ...]:
    """Further claims that have the claim's instance and are registered, by name."""
    if seen is not None and {other.name for other in seen.claims} <= {claim.name}:
        return ()
    return tuple(other for other in other_claims(ports, claim) if other.is_condition_true("Registered"))


def _add_partition(ports: LifecyclePorts, claim: NodeClaim) -> NodeClaim:
    """The claim with the partition of its placement group, as soon as EC2 shows it; written on it as well."""
    instance = ports.ec2.instance(instance_id(claim.provider_id))
    if instance is None or not instance.partition_number:
        return claim
    partition = {labels.PLACEMENT_GROUP_PARTITION: str(instance.partition_number)}
    return ports.cluster.patch_nodeclaim(claim, {"labels": partition})


def _adopt_node(ports: LifecyclePorts, claim: NodeClaim, adoption: NodeUpdate) -> tuple[Node | None, bool]:
    """The node afterwards, None = it is gone; and whether pods come to it first. Labels and taints are written
    together, so that pods come only to a node with all its labels. A node that is initialized thereby is labeled so by
    the same write, unless pods come first.

    A kubelet that joins writes its Node often: what it changed in between is read, and the taints are set on that.
    """
    current: Node | None = adoption.node
    for attempt in range(1, TAINT_ATTEMPTS + 1):
        if current is None:
            return None, False
        taints, metadata = _adopted_taints(adoption, current), adoption.metadata
        # Then the forwarder rings again when they have come: what initialization writes would be in their way. It has
        # rung already for a node that an earlier step has adopted.
        opens = current.is_open and not (adoption.node.is_registered or current.is_initialized)
        written = msgspec.structs.replace(adoption, taints=taints)
        are_pods_first = opens and nominations.may_pods_come_first(ports, claim, written)
        if not are_pods_first and initialize(claim, msgspec.structs.replace(current, taints=taints)).log is not None:
            metadata = metadata | {"labels": metadata["labels"] | {labels.INITIALIZED: "true"}}
        try:
            return ports.cluster.set_taints(current, taints, metadata=metadata), are_pods_first
        except Conflict:
            if attempt == TAINT_ATTEMPTS:
                raise
        current = ports.cluster.node(adoption.node.name)
        if current is not None and _finalizers_and_owners(current) != _finalizers_and_owners(adoption.node):
            raise Conflict(f"nodes {current.name} has other finalizers or owners by now", code="Conflict")
    return None, False


def _finalizers_and_owners(node: Node) -> object:
    """What adoption replaces as a whole."""
    return node.metadata.finalizers, node.metadata.owner_references


def _adopted_taints(adoption: NodeUpdate, current: Node) -> tuple[Taint, ...]:
    """Taints that others took off or set since the node was read stay as they are now: a Ready node that gets
    not-ready:NoExecute back would lose its pods.
    """
    before, after = adoption.node.taints, adoption.taints
    kept = tuple(taint for taint in current.taints if taint in after or taint not in before)
    # The API server takes no two of one key and effect.
    present = {(taint.key, taint.effect) for taint in kept}
    new = (taint for taint in after if taint not in before and (taint.key, taint.effect) not in present)
    return (*kept, *new)
