"""How many nodes of a NodePool may be disrupted now.

Source: Karpenter v1.14 ``NodePool.MustGetAllowedDisruptions`` and ``pkg/controllers/disruption/helpers.go``.
"""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from spotwright.disruption import cron
from spotwright.model.karpenter.nodeclaim import NodeClaim, nodes_of_claims
from spotwright.model.karpenter.nodepool import Budget, NodePool
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.kubernetes.node import Node
from spotwright.model.quoting import quote

UNLIMITED: Final = 2**31 - 1

_NODES: Final = re.compile(r"^(100%|[0-9]{1,2}%|[0-9]+)$")
# A window is no longer: within eight years and a day every schedule that ever begins has begun (29 February).
_LONGEST_WINDOW: Final = timedelta(days=2923)
_DURATION: Final = re.compile(r"^(?:(\d+)h)?(?:(\d+)m)?(?:0s)?$")


def allowed_disruptions(pool: NodePool, reason: str, total: int, now: datetime) -> int:
    """How many of ``total`` nodes may be disrupted for ``reason``; an invalid budget allows none.

    A percentage is rounded up. Budgets outside their window, or for other reasons, do not count.
    """
    if any(budget_error(budget) for budget in pool.budgets):
        return 0
    limits = (
        _node_count(budget.nodes, total)
        for budget in pool.budgets
        if (not budget.reasons or reason in budget.reasons) and is_active(budget, now)
    )
    return min(limits, default=UNLIMITED)


def allows_all(pool: NodePool, reason: str, claims: Iterable[NodeClaim], now: datetime) -> bool:
    """Whether all nodes of the NodePool may be disrupted for ``reason`` at once."""
    total = sum(claim.nodepool == pool.name for claim in claims)
    return allowed_disruptions(pool, reason, total, now) >= total


def budget_error(budget: Budget) -> str:
    """What is invalid in a budget; "" = it is valid."""
    if not _NODES.match(budget.nodes):
        return f"nodes: {quote(budget.nodes)} is neither a count nor a percentage up to 100%"
    if bool(budget.schedule) != bool(budget.duration):
        return "schedule and duration must be given together"
    if not budget.schedule:
        return ""
    if _parse_duration(budget.duration) is None:
        return f"duration: {quote(budget.duration)} is not hours and minutes such as 8h or 1h30m"
    try:
        cron.parse(budget.schedule)
    except cron.CronError as error:
        return f"schedule: {error}"
    return ""


def is_active(budget: Budget, now: datetime) -> bool:
    """Whether ``now`` is in a window of the budget: it begins with the schedule and lasts for the duration."""
    if not budget.schedule:
        return True
    window = _parse_duration(budget.duration)
    second = now.replace(microsecond=0)
    return (
        window is not None
        and cron.parse(budget.schedule).last_activation(after=second - window, until=second) is not None
    )


def remaining_disruptions(
    pool: NodePool,
    reason: str,
    claims: Iterable[NodeClaim],
    nodes: Iterable[Node],
    *,
    locked: frozenset[str],
    now: datetime,
) -> int:
    """How many more nodes may be disrupted. ``locked``: claims that a command holds.

    Initialized nodes whose instance is not terminating count; a node that is not ready, deleting or locked counts as
    disrupted.
    """
    of_pool = [claim for claim in claims if claim.nodepool == pool.name]
    of_claims = nodes_of_claims(of_pool, nodes)
    total = disrupting = 0
    for claim in of_pool:
        if not claim.is_condition_true("Initialized"):
            continue
        terminating = find_condition(claim.conditions, "InstanceTerminating")
        if terminating is not None and terminating.status == "True":
            continue
        total += 1
        node = next(iter(of_claims.get(claim.name, ())), None)
        is_leaving = claim.metadata.deletion_timestamp is not None or claim.name in locked
        disrupting += is_leaving or node is None or not node.is_ready or node.metadata.deletion_timestamp is not None
    return max(allowed_disruptions(pool, reason, total, now) - disrupting, 0)


def _node_count(text: str, total: int) -> int:
    # A Decimal is read from any number of digits, an int is not.
    return -(-int(text[:-1]) * total // 100) if text.endswith("%") else int(min(Decimal(text), Decimal(UNLIMITED)))


def _parse_duration(text: str) -> timedelta | None:
    parsed = _DURATION.match(text)
    if parsed is None or not (parsed[1] or parsed[2]):
        return None
    seconds = Decimal(parsed[1] or 0) * 3600 + Decimal(parsed[2] or 0) * 60
    return timedelta(seconds=int(min(seconds, Decimal(_LONGEST_WINDOW.total_seconds()))))
