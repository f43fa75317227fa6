"""Node repair: the NodeClaims of Nodes that stay unhealthy are deleted, and their pods without their budgets' leave.

All Nodes are looked at together, since too many unhealthy ones keep each other from being repaired. Before a NodeClaim
is deleted its Node is read again by name.
"""

import math
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from spotwright.errors import Conflict, NotFound
from spotwright.lifecycle import node_repair
from spotwright.lifecycle.node_repair import LOOK_AHEAD, SECOND_LOOK, NodeRepair
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.repair_policies import UnhealthyCondition, unhealthy_condition
from spotwright.model.kubernetes.meta import parse_time
from spotwright.model.kubernetes.node import Node
from spotwright.model.snapshot import NODE_REPAIR
from spotwright.telemetry import events, log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.lifecycle.actions import delete_claim, for_each, log, request_planning, ring_lifecycle
from spotwright.workflows.lifecycle.nodes import claims_of_node
from spotwright.workflows.lifecycle.zonal_shifts import shifted_zones
from spotwright.workflows.ports.bundles import LifecyclePorts

# So many Nodes of a NodePool are told that their repair is blocked; the others wait for the same reason.
NODES_TOLD: Final = 20


def repair_nodes(ports: LifecyclePorts, *, now: datetime) -> None:
    """Repair every Node that is due and may be repaired, and ring for those that are due soon.

    Nothing is done without the feature gate, nor while the cluster is paused, when nothing would be launched instead.
    """
    if NODE_REPAIR not in ports.settings.feature_gates or ports.state.cluster().paused:
        return
    repairs = node_repair.node_repairs(ports.cluster.nodes(), now=now, shifted_zones=shifted_zones(ports))
    _report_blocked(ports, [repair for repair in repairs if repair.obstacle], now)
    waits: list[timedelta] = []

    def step(repair: NodeRepair) -> None:
        try:
            waits.append(_step(ports, repair, now))
        except (Conflict, NotFound) as lost:
            log_line(log, log_lines.CHANGED_CONCURRENTLY, kind="node", object=repair.name, conflict=str(lost))

    try:
        for_each("node", [repair for repair in repairs if not repair.obstacle], step)
    finally:
        soon = [wait for wait in waits if timedelta(0) < wait <= LOOK_AHEAD]
        if soon:
            ring_lifecycle(ports, "repair", [""], delay_seconds=math.ceil(min(soon).total_seconds()))


def _report_blocked(ports: LifecyclePorts, blocked: Iterable[NodeRepair], now: datetime) -> None:
    """An event on the first Nodes of each NodePool and on the NodePool itself, and a line."""
    told: Counter[str] = Counter()
    obstacles: dict[str, str] = {}
    for repair in blocked:
        nodepool = repair.node.nodepool
        told[nodepool] += 1
        obstacles[nodepool] = repair.obstacle
        if told[nodepool] <= NODES_TOLD:
            event = events.NODE_REPAIR_BLOCKED(reason=repair.obstacle)
            ports.cluster.record_event("nodes", repair.node.metadata, event, now=now)
    for name, reason in sorted(obstacles.items()):
        log_line(log, log_lines.NODE_REPAIR_BLOCKED, nodepool=name, nodes=told[name], reason=reason)
        nodepool_object = ports.cluster.nodepool(name) if name else None
        if nodepool_object is not None:
            event = events.NODE_REPAIR_BLOCKED(reason=reason)
            ports.cluster.record_event("nodepools", nodepool_object.metadata, event, now=now)


def _step(ports: LifecyclePorts, repair: NodeRepair, now: datetime) -> timedelta:
    """Repair the Node if its condition is the same on a second look; how long to wait for that, zero = not at all."""
    node = ports.cluster.node(repair.name)
    if node is None or node.metadata.uid != repair.node.metadata.uid:
        return timedelta(0)
    condition, claim = unhealthy_condition(node), _claim_of(ports, node)
    if condition is None or claim is None or not node_repair.is_due(node, now):
        return timedelta(0)
    if claim.metadata.deletion_timestamp is not None and _ends_now(claim, now):
        return timedelta(0)
    looked_at = node_repair.looked_at(claim, condition, now)
    if looked_at is None:
        change = {"annotations": {labels.SEEN_UNHEALTHY: node_repair.look(condition, now)}}
        ports.cluster.patch_metadata("nodeclaims", claim.metadata.without_resource_version(), change)
    wait = max((looked_at or now) + SECOND_LOOK, condition.repair_at) - now
    if wait <= timedelta(0):
        _repair(ports, node, claim, condition, now)
    return wait


def _claim_of(ports: LifecyclePorts, node: Node) -> NodeClaim | None:
    """The NodeClaim that the Node belongs to, if it is only one, and the one that says so too.

    A Node may state the provider id of another one's instance; NodeClaims that share an instance are left alone.
    """
    claims = claims_of_node(ports, node)
    if len(claims) != 1 or not claims[0].is_managed or claims[0].node_name != node.name:
        return None
    return claims[0]


def _repair(ports: LifecyclePorts, node: Node, claim: NodeClaim, condition: UnhealthyCondition, now: datetime) -> None:
    """Delete the claim, then let its termination end at once: who dies in between finds the Node still unhealthy.

    The other way round, a Node that recovers in between would keep an annotation by which a later drain is forced.
    """
    if claim.metadata.deletion_timestamp is None:
        deletion = node_repair.deletion(condition)
        log_line(
            log, log_lines.DELETING_UNHEALTHY_NODE,
            node=node.name, nodeclaim=claim.name, nodepool=claim.nodepool,
            condition=condition.type, status=condition.status, details=deletion.message,
        )  # fmt: skip
        delete_claim(ports, claim, deletion)
        for kind, metadata in (("nodes", node.metadata), ("nodeclaims", claim.metadata)):
            ports.cluster.record_event(kind, metadata, events.UNHEALTHY(details=deletion.message), now=now)
        request_planning(ports)
    if not _ends_now(claim, now):
        change = {"annotations": {labels.TERMINATION_TIMESTAMP: now.strftime("%Y-%m-%dT%H:%M:%SZ")}}
        ports.cluster.patch_metadata("nodeclaims", claim.metadata.without_resource_version(), change)


def _ends_now(claim: NodeClaim, now: datetime) -> bool:
    """Whether its termination has to end by now: a kubelet that does not answer cannot stop pods."""
    end = parse_time(claim.metadata.annotations.get(labels.TERMINATION_TIMESTAMP, ""))
    return end is not None and end <= now
