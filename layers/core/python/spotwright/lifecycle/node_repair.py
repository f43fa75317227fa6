"""Node repair: which Nodes were unhealthy for longer than is tolerated, and which of them may be replaced.

Source: Karpenter v1.14 ``pkg/controllers/node/health``. Where more than a fifth of a NodePool's nodes are unhealthy,
something else than the nodes is at fault, and none of them is repaired. Unlike Karpenter: Nodes that share an instance
are left alone, and a condition must be seen twice, so that one is not taken for lasting that nobody could correct while
the API server was out of reach.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.lifecycle.steps import Deletion
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.repair_policies import UnhealthyCondition, is_unhealthy, unhealthy_condition
from spotwright.model.kubernetes.meta import parse_time
from spotwright.model.kubernetes.node import Node

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


def is_due(node: Node, now: datetime) -> bool:
    """Whether the Node is to be looked at: one of its conditions is tolerated for LOOK_AHEAD at most."""
    condition = unhealthy_condition(node)
    return condition is not None and condition.repair_at - LOOK_AHEAD <= now


def node_repairs(
    nodes: Collection[Node], *, now: datetime, shifted_zones: Collection[str] = ()
) -> tuple[NodeRepair, ...]:
    """By name. ``nodes``: all of the cluster; ``shifted_zones``: what is reported of nodes in them proves nothing."""
    shared = Counter(node.provider_id for node in nodes)
    due = [
        NodeRepair(node, condition)
        for node in nodes
        if (condition := unhealthy_condition(node)) is not None
        and is_due(node, now)
        and node.provider_id
        and shared[node.provider_id] == 1
        and node.zone not in shifted_zones
    ]
    obstacles = {nodepool: _obstacle(nodes, nodepool) for nodepool in {repair.node.nodepool for repair in due}}
    return tuple(
        msgspec.structs.replace(repair, obstacle=obstacles[repair.node.nodepool])
        for repair in sorted(due, key=lambda repair: repair.name)
    )


def allowed_unhealthy(total: int) -> int:
    """So many of ``total`` nodes may be unhealthy while nodes are repaired; rounded up."""
    return -(-total * ALLOWED_UNHEALTHY_PERCENT // 100)


def _obstacle(nodes: Iterable[Node], nodepool: str) -> str:
    """Karpenter's words, and the numbers. ``nodepool`` "" = the nodes of the whole cluster count."""
    counted = [node for node in nodes if not nodepool or node.nodepool == nodepool]
    unhealthy, allowed = sum(map(is_unhealthy, counted)), allowed_unhealthy(len(counted))
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
    return (
        f"condition {condition.type} is {condition.status} since {_text(condition.since)}, which is tolerated for"
        f" {minutes} minutes"
    )


def look(condition: UnhealthyCondition, now: datetime) -> str:
    """What a look at a condition leaves on the NodeClaim: the condition, since when, and when it was looked at."""
    return f"{_subject(condition)}/{_text(now)}"


def looked_at(claim: NodeClaim, condition: UnhealthyCondition, now: datetime) -> datetime | None:
    """When this very condition was looked at; None = never, or too long ago, or at a time to come."""
    subject, _, text = claim.metadata.annotations.get(labels.SEEN_UNHEALTHY, "").rpartition("/")
    at = parse_time(text)
    if subject != _subject(condition) or at is None or not timedelta(0) <= now - at <= LOOK_HOLDS:
        return None
    return at


def _subject(condition: UnhealthyCondition) -> str:
    return f"{condition.type}={condition.status}/{_text(condition.since)}"


def _text(at: datetime) -> str:
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")
