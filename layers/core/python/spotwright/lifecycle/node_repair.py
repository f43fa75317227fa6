"""Node repair: which Nodes were unhealthy for longer than is tolerated, and which of them may be replaced.

Source: Karpenter v1.14 ``pkg/controllers/node/health``; for instances that EC2 calls impaired, the AWS provider's
``pkg/controllers/interruption``, here under the same limit. Where more than a fifth of a NodePool's nodes are
unhealthy, something else than the nodes is at fault, and none of them is repaired. Unlike Karpenter: Nodes that share
an instance are left alone, and a condition must be seen twice, so that none is taken for lasting that nobody could
correct while the API server was out of reach.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Final

import msgspec

from spotwright.lifecycle.steps import Deletion
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.repair_policies import UnhealthyCondition, is_unhealthy, unhealthy_condition
from spotwright.model.kubernetes.meta import format_time, parse_time
from spotwright.model.kubernetes.node import Node, instance_id

ALLOWED_UNHEALTHY_PERCENT: Final = 20
# A condition is looked at for the first time this long before its toleration ends.
LOOK_AHEAD: Final = timedelta(seconds=60)
# A kubelet that reaches the API server again corrects its conditions within 10 s.
SECOND_LOOK: Final = timedelta(seconds=20)
# An older look says nothing: the API server may have been out of reach since.
LOOK_HOLDS: Final = timedelta(minutes=3)


class NodeRepair(msgspec.Struct, frozen=True):
    """A Node that is to be repaired now or within LOOK_AHEAD. ``obstacle``: why it may not be, "" = it may."""

    node: Node
    condition: UnhealthyCondition
    obstacle: str = ""

    @property
    def name(self) -> str:
        return self.node.name


def is_due(condition: UnhealthyCondition | None, now: datetime) -> bool:
    """Whether a Node is to be looked at for this condition: it is tolerated for LOOK_AHEAD at most."""
    return condition is not None and condition.repair_at - LOOK_AHEAD <= now


def node_repairs(
    nodes: Collection[Node],
    *,
    now: datetime,
    shifted_zones: Collection[str] = (),
    failing_checks: Mapping[str, UnhealthyCondition] = MappingProxyType({}),
    has_gate: bool = True,
) -> tuple[NodeRepair, ...]:
    """By name. ``nodes``: all of the cluster; ``shifted_zones``: what is reported of nodes in them proves nothing.

    ``failing_checks``: EC2's, by instance id. ``has_gate``: whether conditions of Nodes are a reason to repair them;
    they count against the repair of others in any case.
    """
    shared = Counter(node.provider_id for node in nodes)
    due = []
    for node in nodes:
        check = failing_checks.get(instance_id(node.provider_id))
        condition = _most_urgent(unhealthy_condition(node) if has_gate else None, check)
        is_alone = node.provider_id and shared[node.provider_id] == 1
        if condition is not None and is_due(condition, now) and is_alone and node.zone not in shifted_zones:
            due.append(NodeRepair(node, condition))
    unhealthy = {node.name for node in nodes if is_unhealthy(node) or instance_id(node.provider_id) in failing_checks}
    obstacles = {nodepool: _obstacle(nodes, unhealthy, nodepool) for nodepool in {each.node.nodepool for each in due}}
    return tuple(
        msgspec.structs.replace(repair, obstacle=obstacles[repair.node.nodepool])
        for repair in sorted(due, key=lambda repair: repair.name)
    )


def _most_urgent(*conditions: UnhealthyCondition | None) -> UnhealthyCondition | None:
    found = (condition for condition in conditions if condition is not None)
    return min(found, key=lambda condition: (condition.repair_at, condition.type), default=None)


def allowed_unhealthy(total: int) -> int:
    """So many of ``total`` nodes may be unhealthy while nodes are repaired; rounded up."""
    return -(-total * ALLOWED_UNHEALTHY_PERCENT // 100)


def _obstacle(nodes: Iterable[Node], unhealthy_names: Collection[str], nodepool: str) -> str:
    """Karpenter's words, and the numbers. ``nodepool`` "" = the nodes of the whole cluster count."""
    counted = [node for node in nodes if not nodepool or node.nodepool == nodepool]
    unhealthy = sum(node.name in unhealthy_names for node in counted)
    allowed = allowed_unhealthy(len(counted))
    if unhealthy <= allowed:
        return ""
    where = "the nodepool" if nodepool else "the cluster"
    return (
        f"more than {ALLOWED_UNHEALTHY_PERCENT}% nodes are unhealthy in {where}: {unhealthy} of {len(counted)}, and"
        f" nodes are repaired while at most {allowed} are"
    )


def deletion(condition: UnhealthyCondition) -> Deletion:
    return Deletion("unhealthy", description(condition))


def description(condition: UnhealthyCondition) -> str:
    minutes = int(condition.toleration.total_seconds() // 60)
    what = f"{condition.source} {condition.type} is {condition.status}"
    if not condition.is_timely:
        return f"{what} and was seen so for {minutes} minutes, for which it is tolerated"
    return f"{what} since {format_time(condition.since)}, which is tolerated for {minutes} minutes"


def look(condition: UnhealthyCondition, now: datetime) -> str:
    """What a look at a condition leaves on the NodeClaim: the condition, since when, and when it was looked at."""
    return f"{_subject(condition)}/{format_time(now)}"


def looked_at(claim: NodeClaim, condition: UnhealthyCondition, now: datetime) -> datetime | None:
    """When this very condition was looked at; None = never, or too long ago, or at a time to come.

    One whose transition proves nothing is tolerated from the first look on: then the look that counts is that which was
    due SECOND_LOOK before its toleration ends.
    """
    counted = timedelta(0) if condition.is_timely else condition.toleration - SECOND_LOOK
    subject, _, text = claim.metadata.annotations.get(labels.SEEN_UNHEALTHY, "").rpartition("/")
    at = parse_time(text)
    if subject != _subject(condition) or at is None or not timedelta(0) <= now - at <= counted + LOOK_HOLDS:
        return None
    return at + counted


def _subject(condition: UnhealthyCondition) -> str:
    return f"{condition.type}={condition.status}/{format_time(condition.since)}"
