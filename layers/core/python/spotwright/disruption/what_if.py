"""What would be disrupted now, for every reason, and what that would save: nothing is changed."""

from collections.abc import Collection
from typing import Final

import msgspec

from spotwright.disruption import consolidation, drift, emptiness, rollouts, static_drift
from spotwright.disruption.candidates import Blocked, Candidate, node_price
from spotwright.disruption.rollouts import Phase
from spotwright.model.ec2.instance_type import PICOUSD, Catalog
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import NewNode, Plan

# Hours of a month, as in AWS' price calculator.
MONTH_HOURS: Final = 730
NOBODY: Final[frozenset[str]] = frozenset()


class PossibleMove(msgspec.Struct, frozen=True):
    """Nodes that would go together. ``reason``: Empty, Drifted or Underutilized. Prices: picodollars per hour.

    ``nodes``: names of their Nodes, in the order of ``claims``.
    """

    reason: str
    claims: tuple[str, ...]
    nodes: tuple[str, ...]
    new_nodes: tuple[NewNode, ...]
    evictions: int
    price_picousd_per_hour: int

    @property
    def saving_picousd_per_hour(self) -> int:
        """Less than zero where what comes is dearer."""
        return self.price_picousd_per_hour - sum(node.price_picousd_per_hour for node in self.new_nodes)

    @property
    def dollars_per_month(self) -> float:
        return self.saving_picousd_per_hour * MONTH_HOURS / PICOUSD


class PoolRollout(msgspec.Struct, frozen=True):
    """How far a NodePool's roll-out is, which replaces its drifted nodes in steps; in a sentence."""

    nodepool: str
    message: str


class WhatIf(msgspec.Struct, frozen=True):
    """``stays``: NodeClaims that stay, and why; ``nodes_needed``: for pending pods, which come before everything.

    ``rollouts``: of NodePools whose drifted nodes do not all go at once, ordered by name.
    """

    moves: tuple[PossibleMove, ...] = ()
    stays: tuple[Blocked, ...] = ()
    nodes_needed: int = 0
    rollouts: tuple[PoolRollout, ...] = ()


def disrupt_if_asked(
    snapshot: Snapshot,
    plan: Plan,
    catalog: Catalog,
    *,
    with_drift: bool,
    with_consolidation: bool,
    most_evictions: int | None = None,
) -> WhatIf:
    """What ``disrupt`` would do at this moment, within budgets. ``plan``: what is decided for the pending pods.

    Empty nodes go with consolidation, and before all others, drifted nodes next, as the cluster would have it; each is
    shown for itself, as if nothing else went; of a roll-out, all that budgets allow once its canary has proved itself.
    ``most_evictions``: for the sake of price, None = as many as the settings allow in an hour.
    """
    if plan.new_nodes:
        return WhatIf(nodes_needed=len(plan.new_nodes))
    moves, stays, stepwise = list[PossibleMove](), dict[str, str](), tuple[PoolRollout, ...]()
    if with_consolidation:
        empty = emptiness.find_empty_nodes(snapshot, plan, locked=NOBODY)
        claims = {claim.name: claim for claim in snapshot.nodeclaims}
        moves += [_empty(claims[name], catalog) for name in empty.claims]
        stays |= {blocked.claim: blocked.reason for blocked in empty.blocked}
        stays |= dict.fromkeys(empty.waiting, "empty, and waits for the budgets of its NodePool")
    gone = frozenset(name for move in moves for name in move.claims)
    if with_drift:
        replaced = drift.replace_drifted(snapshot, plan, catalog, locked=gone)
        taking = static_drift.replacements(replaced.candidates, replaced.plan.new_nodes)
        moves += [_drifted(candidate, taking[candidate.name]) for candidate in replaced.candidates]
        stays |= {blocked.claim: blocked.reason for blocked in replaced.blocked}
        stepwise = _stepwise(snapshot, {node.nodepool for node in replaced.plan.new_nodes})
        gone |= frozenset(candidate.name for candidate in replaced.candidates)
    if with_consolidation:
        if most_evictions is None:
            most_evictions = snapshot.settings.max_evictions_per_hour or None
        found = consolidation.consolidate(snapshot, plan, catalog, locked=gone, most_evictions=most_evictions)
        nodes = {claim.name: claim.node_name for claim in snapshot.nodeclaims}
        moves += [
            PossibleMove(
                consolidation.REASON,
                move.candidates,
                tuple(nodes[name] for name in move.candidates),
                move.new_nodes,
                move.evictions,
                move.price_picousd_per_hour,
            )
            for move in found.moves
        ]
        stays |= {blocked.claim: blocked.reason for blocked in (*found.blocked, *found.refused)}
    going = {name for move in moves for name in move.claims}
    kept = tuple(Blocked(name, stays[name]) for name in sorted(stays) if name not in going)
    return WhatIf(tuple(moves), kept, rollouts=stepwise)


def _stepwise(snapshot: Snapshot, buying: Collection[str]) -> tuple[PoolRollout, ...]:
    """The roll-outs that a new node must prove first. ``buying``: NodePools of which nodes are bought.

    Commands of the last day are not known here: a replacement that failed does not count.
    """
    found = rollouts.find_rollouts(snapshot, (), NOBODY)
    return tuple(
        PoolRollout(name, found[name].message)
        for name in sorted(found)
        if name in buying and found[name].phase != Phase.REPLACING
    )


def _empty(claim: NodeClaim, catalog: Catalog) -> PossibleMove:
    price = node_price(claim, catalog) or 0
    return PossibleMove(emptiness.REASON, (claim.name,), (claim.node_name,), (), 0, price)


def _drifted(candidate: Candidate, taking: tuple[NewNode, ...]) -> PossibleMove:
    """``taking``: the new nodes that any of its pods goes to, which others may use as well, and its replacement."""
    return PossibleMove(
        drift.REASON, (candidate.name,), (candidate.node.name,), taking, candidate.evictions, candidate.price
    )
