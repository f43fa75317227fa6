"""One step for a Node that changed: its claim takes a step; a Node without a claim is drained before it goes."""

from datetime import datetime, timedelta
from typing import Final

from spotwright.lifecycle import node_repair
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.repair_policies import unhealthy_condition
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.kubernetes.node import Node, NodeWithVolumes, instance_id
from spotwright.model.snapshot import NODE_REPAIR
from spotwright.telemetry import events
from spotwright.workflows.lifecycle.actions import (
    claims_by_name,
    claims_of_instance,
    expected_node,
    is_anothers,
    note_other_node,
    report_duplicate_claims,
    ring_lifecycle,
)
from spotwright.workflows.lifecycle.joining.registration import SeenNode
from spotwright.workflows.lifecycle.nodeclaims import step_claim
from spotwright.workflows.lifecycle.other_provisioners import is_left_alone, runs_now
from spotwright.workflows.lifecycle.termination.drain import empty_nodes
from spotwright.workflows.lifecycle.termination.instances import InstanceTermination
from spotwright.workflows.lifecycle.termination.orphans import find_orphan, is_owned
from spotwright.workflows.lifecycle.termination.removal import remove_node
from spotwright.workflows.ports.bundles import LifecyclePorts

# How often a Node without a claim is looked at while it is drained and its instance terminates.
LOOK_SECONDS: Final = 5
# A Node is gone with its instance when EC2 does not find the id and the kubelet was silent for this long.
SILENT: Final = timedelta(seconds=60)


def step_node(ports: LifecyclePorts, name: str, to_terminate: list[InstanceTermination], *, now: datetime) -> None:
    """A node changed: its claim takes a step, which deletes the claim of a Node that is being deleted."""
    node = ports.cluster.node_with_volumes(name)
    if node is None or not node.provider_id:
        return
    claims = claims_of_node(ports, node)
    if len(claims) > 1:
        report_duplicate_claims(ports, (node,), claims, now=now)
    if NODE_REPAIR in ports.settings.feature_gates and node_repair.is_due(unhealthy_condition(node), now):
        ring_lifecycle(ports, "repair", [""])
    seen = SeenNode(node, tuple(claims))
    for claim in claims:
        step_claim(ports, _with_other_node(ports, claim, node, now), to_terminate, now=now, seen=seen)
    if claims or labels.FINALIZER not in node.metadata.finalizers or _has_owner(ports, node):
        return
    if not runs_now(ports, now=now):
        _step_unclaimed(ports, node, to_terminate, now)


def _has_owner(ports: LifecyclePorts, node: Node) -> bool:
    """Whether the NodeClaim that the Node was registered with exists: it may state the provider id of another instance,
    and goes with its own claim, not with that instance.
    """
    owners = {owner.uid: owner.name for owner in node.metadata.owner_references}
    claims = claims_by_name(ports, owners.values())
    return any(claim.metadata.uid in owners for claim in claims.values())


def _with_other_node(ports: LifecyclePorts, claim: NodeClaim, node: Node, now: datetime) -> NodeClaim:
    """The claim with the name of a Node that is not the one it is registered with, or expects, and has its instance.

    The claim says so from then on: while it has two, it is registered with the one that has the name of its instance,
    or with none, and both are drained before the instance is terminated. A Node that another claim owns is reported
    only.
    """
    expected = expected_node(claim)
    first = ports.cluster.node(expected) if expected not in ("", node.name) else None
    if first is None or not (claim.node_name or first.provider_id == node.provider_id):
        return claim
    event = events.DUPLICATE_NODES(names=", ".join(sorted((node.name, first.name))))
    ports.cluster.record_event("nodes", node.metadata, event, now=now)
    if is_anothers(claim, node) or not claim.is_managed or is_left_alone(ports, claim, now=now):
        return claim
    return note_other_node(ports, claim, node.name)


def claims_of_node(ports: LifecyclePorts, node: Node) -> list[NodeClaim]:
    """The claims with the node's provider id: the owner of a registered node, and those that its instance labels.

    A list by label makes the API server look at all claims, while pods come and go on hundreds of nodes: the registered
    owner is enough, since another claim of the instance is found when one is to be registered, or goes. A claim without
    the label may have the node all the same: before the node counts as unclaimed, all are listed.
    """
    owners = (owner.name for owner in node.metadata.owner_references if owner.kind == "NodeClaim")
    claims = claims_by_name(ports, owners)
    if not any(
        claim.provider_id == node.provider_id and claim.is_condition_true("Registered") for claim in claims.values()
    ):
        labeled = claims_of_instance(ports, instance_id(node.provider_id), cached=True)
        claims |= claims_by_name(ports, {claim.name for claim in labeled} - claims.keys())
    of_node = [claims[name] for name in sorted(claims) if claims[name].provider_id == node.provider_id]
    if of_node or labels.FINALIZER not in node.metadata.finalizers:
        return of_node
    return [claim for claim in ports.cluster.nodeclaims() if claim.provider_id == node.provider_id]


def _step_unclaimed(
    ports: LifecyclePorts, node: NodeWithVolumes, to_terminate: list[InstanceTermination], now: datetime
) -> None:
    """A Node with Spotwright's finalizer whose claim is gone: drained while its instance runs, if it is being deleted.

    Source: Karpenter v1.14 ``pkg/controllers/node/termination``, which goes on without a NodeClaim as well.
    """
    id = instance_id(node.provider_id)
    instance = ports.ec2.instance(id) if id else None
    is_gone = instance is None or instance.state == "terminated"
    if id and is_gone and (instance is not None or _is_silent(node, now)):
        # Before it is let go: one that is not deleted then would be nobody's.
        ports.cluster.delete("nodes", node.metadata)
        remove_node(ports, node)
        return
    if node.metadata.deletion_timestamp is None:
        return
    if empty_nodes(ports, None, (node,), None, now).wait is None:
        if instance is None or not is_owned(ports, instance):
            # There is nothing to terminate: the Node only waits to be let go.
            remove_node(ports, node)
            return
        orphan = find_orphan(ports, id, now, drained=True)
        to_terminate += [InstanceTermination(orphan.id, orphan.zone)] if orphan else []
    ring_lifecycle(ports, "node", [node.name], delay_seconds=LOOK_SECONDS)


def _is_silent(node: Node, now: datetime) -> bool:
    ready = find_condition(node.conditions, "Ready")
    if ready is None or ready.status == "True":
        return ready is None
    return ready.last_transition_time is None or now - ready.last_transition_time >= SILENT
