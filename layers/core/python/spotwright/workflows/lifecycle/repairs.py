"""Node repair: NodeClaims of Nodes or instances that stay unhealthy are deleted, their pods without asking budgets.

All Nodes are looked at together, since too many unhealthy ones keep each other from being repaired. Before a NodeClaim
is deleted its Node is read again by name.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.aws.interruption_messages import NoticeKind
from spotwright.errors import Conflict, NotFound
from spotwright.lifecycle import instance_health, node_repair
from spotwright.lifecycle.node_repair import LOOK_AHEAD, SECOND_LOOK, NodeRepair
from spotwright.model import labels
from spotwright.model.ec2.instance_status import InstanceStatus, ScheduledEvent
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.repair_policies import UnhealthyCondition, unhealthy_condition
from spotwright.model.kubernetes.meta import format_time, parse_time
from spotwright.model.kubernetes.node import Node, instance_id
from spotwright.model.snapshot import NODE_REPAIR
from spotwright.telemetry import events, log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.lifecycle.actions import (
    delete_claim,
    for_each,
    log,
    log_claim,
    other_claims,
    request_planning,
    ring_lifecycle,
    ring_notices,
)
from spotwright.workflows.lifecycle.nodes import claims_of_node
from spotwright.workflows.lifecycle.zonal_shifts import shifted_zones
from spotwright.workflows.ports.bundles import LifecyclePorts
from spotwright.workflows.ports.rows import NoticeRow, epoch_ms

# So many Nodes of a NodePool are told that their repair is blocked; the others wait for the same reason.
NODES_TOLD: Final = 20


def repair_nodes(ports: LifecyclePorts, *, now: datetime) -> None:
    """Repair every Node that is due and may be repaired, and ring for those that are due soon.

    Nothing is repaired while the cluster is paused or another provisioner runs, when nothing would be launched instead.
    While EC2 does not say how instances are, what Nodes say of themselves counts alone.
    """
    if ports.state.cluster().held_by:
        return
    nodes = ports.cluster.nodes()
    statuses: tuple[InstanceStatus, ...] = ()
    try:
        statuses = ports.ec2.unhealthy_instances()
        _report_statuses(ports, nodes, statuses, now)
    finally:
        _repair_due(ports, nodes, statuses, now)


def _repair_due(
    ports: LifecyclePorts, nodes: Collection[Node], statuses: Iterable[InstanceStatus], now: datetime
) -> None:
    repairs = node_repair.node_repairs(
        nodes,
        now=now,
        shifted_zones=shifted_zones(ports),
        failing_checks=instance_health.failing_checks(statuses),
        has_gate=NODE_REPAIR in ports.settings.feature_gates,
    )
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


def _report_statuses(
    ports: LifecyclePorts, nodes: Iterable[Node], statuses: Iterable[InstanceStatus], now: datetime
) -> None:
    """An event for volumes in trouble, and a notice for what EC2 has scheduled, as if its message had arrived.

    A notice that cannot be written does not keep the others.
    """
    by_instance = {
        instance_id(node.provider_id): node for node in nodes if labels.FINALIZER in node.metadata.finalizers
    }
    status_by_node = {
        node.name: status for status in statuses if (node := by_instance.get(status.instance_id)) is not None
    }

    def report(node: Node) -> None:
        status = status_by_node[node.name]
        since = instance_health.volumes_impaired_since(status, now)
        if since is not None:
            event = events.VOLUMES_IMPAIRED(instance=status.instance_id, since=format_time(since))
            ports.cluster.record_event("nodes", node.metadata, event, now=now)
        scheduled = status.earliest_event
        if scheduled is not None:
            _give_notice(ports, node, status.instance_id, scheduled, now)

    for_each("node", [node for node in by_instance.values() if node.name in status_by_node], report)


def _give_notice(ports: LifecyclePorts, node: Node, instance: str, scheduled: ScheduledEvent, now: datetime) -> None:
    """Once for each time that EC2 names, unless an earlier notice of the instance is at least as urgent."""
    row = NoticeRow(
        instance_id=instance,
        cluster=ports.cluster.name,
        kind=NoticeKind.SCHEDULED_CHANGE,
        deadline=scheduled.deadline_ms,
        created=epoch_ms(now),
        due=epoch_ms(now),
    )
    existing = ports.state.notice(instance)
    if existing is not None and not _gives_way(existing, row):
        return
    if existing is not None:
        ports.state.save(msgspec.structs.replace(row, version=existing.version))
    if existing is not None or ports.state.create(row):
        not_before = scheduled.not_before.isoformat() if scheduled.not_before else ""
        log_line(
            log, log_lines.INSTANCE_HAS_EVENT,
            instance=instance, node=node.name, code=scheduled.code, not_before=not_before,
        )  # fmt: skip
        ring_notices(ports, [instance])


def _gives_way(existing: NoticeRow, row: NoticeRow) -> bool:
    """Whether a notice is replaced by that of an event: a mere recommendation, a later event, and what has ended
    without that anything was done about it. What was done about the same event is not done again."""
    if existing.kind == NoticeKind.REBALANCE_RECOMMENDATION:
        return True
    if existing.kind == NoticeKind.SCHEDULED_CHANGE:
        is_another = existing.deadline != row.deadline
        return is_another if existing.phase == "done" else row.deadline < existing.deadline
    return existing.phase == "done" and not existing.claim


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
    condition, claim = _current_condition(repair, node), _claim_of(ports, node)
    if condition is None or claim is None or not node_repair.is_due(condition, now):
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


def _current_condition(repair: NodeRepair, node: Node) -> UnhealthyCondition | None:
    """What EC2 said is as new as the Node; a condition of the Node may have cleared since all were listed."""
    is_of_ec2 = repair.condition.type in instance_health.REPAIRED_CHECKS
    return repair.condition if is_of_ec2 else unhealthy_condition(node)


def _claim_of(ports: LifecyclePorts, node: Node) -> NodeClaim | None:
    """The NodeClaim that the Node belongs to, if it is only one, and the one that says so too.

    A Node may state the provider id of another one's instance; NodeClaims that share an instance are left alone. Of a
    registered Node only the owner was looked for.
    """
    claims = claims_of_node(ports, node)
    if len(claims) != 1 or not claims[0].is_managed or claims[0].node_name != node.name:
        return None
    return claims[0] if not other_claims(ports, claims[0]) else None


def _repair(ports: LifecyclePorts, node: Node, claim: NodeClaim, condition: UnhealthyCondition, now: datetime) -> None:
    """Delete the claim, then let its termination end at once: who dies in between finds the Node still unhealthy.

    The other way round, a Node that recovers in between would keep an annotation by which a later drain is forced.
    """
    if claim.metadata.deletion_timestamp is None:
        deletion = node_repair.deletion(condition)
        with log_claim(claim):
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
        change = {"annotations": {labels.TERMINATION_TIMESTAMP: format_time(now)}}
        ports.cluster.patch_metadata("nodeclaims", claim.metadata.without_resource_version(), change)


def _ends_now(claim: NodeClaim, now: datetime) -> bool:
    """Whether its termination has to end by now: a kubelet that does not answer cannot stop pods."""
    end = parse_time(claim.metadata.annotations.get(labels.TERMINATION_TIMESTAMP, ""))
    return end is not None and end <= now
