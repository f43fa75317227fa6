"""Nodes that are replaced for what EC2 announces of their instances, while there is time: what both reasons share."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from spotwright.decisions.decision import DRIFTED, EMPTY, UNDERUTILIZED
from spotwright.disruption.candidates import Blocked, Candidate, within_budgets
from spotwright.model.kubernetes.node import instance_id
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan

# Budgets can name none but these; the strictest counts.
_BUDGET_REASONS: Final = (EMPTY, DRIFTED, UNDERUTILIZED)


class Noticed(msgspec.Struct, frozen=True):
    """``candidates``: nodes to replace now. ``blocked``: announced nodes that stay, and why.

    ``snapshot``: the cluster as if the candidates were being deleted; ``plan``: what is decided for it. ``sentences``:
    why each candidate goes and what takes its place, by name.
    """

    candidates: tuple[Candidate, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    snapshot: Snapshot | None = None
    plan: Plan = Plan()
    sentences: dict[str, str] = {}


def within_all_budgets(
    candidates: Sequence[Candidate], snapshot: Snapshot, locked: frozenset[str]
) -> tuple[list[Candidate], list[Blocked]]:
    """The candidates that the budgets of their NodePools allow for every reason, since none can name this one."""
    allowed, waiting = list(candidates), list[Blocked]()
    for reason in _BUDGET_REASONS:
        allowed, more = within_budgets(allowed, snapshot, reason, locked=locked, maximum=len(allowed))
        waiting += more
    return allowed, waiting


def within_limit(candidates: Sequence[Candidate], limit: int, why: str) -> tuple[list[Candidate], list[Blocked]]:
    """The first candidates up to a limit, and the others, which wait for it. ``why``: what the limit is."""
    return list(candidates[:limit]), [Blocked(candidate.name, why) for candidate in candidates[limit:]]


def close_nodes(snapshot: Snapshot, instances: Collection[str]) -> Snapshot:
    """Nodes of which EC2 announced something take no pods of others."""
    nodes = tuple(
        msgspec.structs.replace(node, unschedulable=True) if instance_id(node.provider_id) in instances else node
        for node in snapshot.nodes
    )
    return msgspec.structs.replace(snapshot, nodes=nodes)


def as_blocked(refusals: Mapping[str, str]) -> Iterable[Blocked]:
    return (Blocked(name, refusals[name]) for name in sorted(refusals))
