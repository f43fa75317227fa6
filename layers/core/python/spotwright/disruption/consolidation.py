"""Which nodes are worth replacing or removing for their price, all of them in one plan.

The planner decides what becomes of the pods: nodes that are tried together may be replaced by any number of nodes. The
plan falls apart into groups that do not depend on each other; each of them is worth it or is left out. It is worth it
if what it saves in the time that its nodes still have is more than what its evictions cost, and what the new nodes cost
while the old ones still run. Since every step lowers that sum, no node goes back and forth while prices stay.

Source of gates, order and launch rules: Karpenter v1.14 ``pkg/controllers/disruption``. Its difference: it removes one
set of nodes for one new node at most, and any saving is enough.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Final

import msgspec

from spotwright.decisions.decide import decide
from spotwright.decisions.decision import UNDERUTILIZED
from spotwright.disruption import blockers, emptiness, removal_order, simulation
from spotwright.disruption.candidates import (
    Blocked,
    Candidate,
    build_candidates,
    marked_candidates,
    within_budgets,
)
from spotwright.disruption.consolidation_moves import EVICTION_PICOUSD, HORIZON, Move, accept, hours
from spotwright.disruption.consolidation_search import Search
from spotwright.disruption.prices import Prices
from spotwright.disruption.simulation import Simulation
from spotwright.model import labels
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes import eviction
from spotwright.model.plurals import counted
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan

REASON: Final = UNDERUTILIZED
# Nodes that are tried together at most, as with Karpenter.
MAXIMUM_CANDIDATES: Final = 100


class Consolidation(msgspec.Struct, frozen=True):
    """``moves``: what to do now. ``refused``: nodes that stay because of what it would cost, and why.

    ``blocked``: nodes that may not be disrupted now, whatever they cost.

    ``snapshot``: the cluster without the candidates of the moves; ``plan``: what is decided for it, with new nodes that
    are launched only as something cheaper.
    """

    moves: tuple[Move, ...] = ()
    refused: tuple[Blocked, ...] = ()
    blocked: tuple[Blocked, ...] = ()
    snapshot: Snapshot | None = None
    plan: Plan = Plan()


def find_candidates(
    snapshot: Snapshot, plan: Plan, catalog: Catalog, *, locked: frozenset[str]
) -> tuple[list[Candidate], list[Blocked], list[Blocked]]:
    """Nodes with pods that may be consolidated, the most dollars for unused room per disruption first; nodes that may
    not be disrupted; and nodes that may, but not for their price.

    ``catalog``: with overlays. ``locked``: claims that a command or notice holds.
    """
    pods = blockers.pods_by_node(snapshot.pods)
    with_pods = [
        claim
        for claim in sorted(snapshot.nodeclaims, key=lambda claim: claim.name)
        if claim.is_managed
        and claim.name not in locked
        and claim.metadata.deletion_timestamp is None
        and any(map(eviction.is_reschedulable, pods.get(claim.node_name, ())))
    ]
    built, blocked = build_candidates(snapshot, plan, with_pods, catalog)
    candidates, ineligible = list[Candidate](), list[Blocked]()
    for candidate in built:
        why = _ineligible(candidate, snapshot)
        if why:
            ineligible.append(Blocked(candidate.name, why))
        else:
            candidates.append(candidate)
    ordered = sorted(candidates, key=lambda found: (-found.unused_price / found.disruption_cost, found.name))
    return ordered, blocked, ineligible


def _ineligible(candidate: Candidate, snapshot: Snapshot) -> str:
    claim, pool = candidate.claim, candidate.pool
    if pool.consolidation_policy == "WhenEmpty":
        return f'NodePool "{pool.name}" has non-empty consolidation disabled'
    if why := emptiness.consolidate_after_reason(claim, pool, list(candidate.pods), snapshot.now):
        return why
    if candidate.price_picousd_per_hour is None:
        kind = claim.metadata.labels.get(labels.INSTANCE_TYPE, "")
        return f'instance type "{kind}" has no known price in its zone and capacity type'
    return ""


def consolidate(
    snapshot: Snapshot,
    plan: Plan,
    catalog: Catalog,
    *,
    locked: frozenset[str],
    maximum: int = MAXIMUM_CANDIDATES,
    most_evictions: int | None = None,
    has_time: Callable[[], bool] = lambda: True,
) -> Consolidation:
    """The moves that are worth it now. ``plan``: where pending pods go, without new nodes.

    ``maximum``: nodes that may go, 100 at most; ``most_evictions``: pods that may be evicted, None = any number.
    ``has_time``: asked before each trial; without time the best so far counts.
    """
    maximum = min(maximum, MAXIMUM_CANDIDATES)
    prices = Prices(snapshot, catalog)
    candidates, blocked, ineligible = find_candidates(snapshot, plan, prices.catalog, locked=locked)
    orders = [candidates]
    if most_evictions is not None:
        orders = removal_order.orders_by_surplus(
            candidates,
            simulation.settle(snapshot, plan),
            prices.catalog,
            eviction_price=float(EVICTION_PICOUSD / hours(HORIZON)),
            most_evictions=most_evictions,
        )
    allowed, waiting, too_many = _allowed(orders[0], snapshot, locked, maximum, most_evictions)
    others = [_allowed(ordered, snapshot, locked, maximum, most_evictions)[0] for ordered in orders[1:]]
    search = Search(snapshot, plan, catalog, prices, has_time)
    chosen = search.run([allowed, *others])
    found = judge(snapshot, plan, catalog, chosen)
    gone = {name for move in found.moves for name in move.candidates}
    reasons = {stays.claim: stays.reason for stays in (*ineligible, *too_many)} | search.refused
    reasons |= {stays.claim: stays.reason for stays in found.refused}
    refused = {name: reason for name, reason in reasons.items() if name not in gone}
    return msgspec.structs.replace(found, refused=_blocked(refused), blocked=(*blocked, *waiting))


def _allowed(
    ordered: Sequence[Candidate],
    snapshot: Snapshot,
    locked: frozenset[str],
    maximum: int,
    most_evictions: int | None,
) -> tuple[list[Candidate], list[Blocked], list[Blocked]]:
    """The first candidates that budgets, ``maximum`` and ``most_evictions`` allow; those that wait for budgets; and
    those with too many evictions.
    """
    # What has too many pods by itself takes no part of the budgets.
    few = [candidate for candidate in ordered if most_evictions is None or candidate.evictions <= most_evictions]
    within, waiting = within_budgets(few, snapshot, REASON, locked=locked, maximum=maximum)
    if most_evictions is None:
        return within, waiting, []
    allowed = _within_evictions(within, most_evictions)
    known = {candidate.name for candidate in allowed} | {stays.claim for stays in waiting}
    why = _describe_limit(most_evictions, snapshot.settings.max_evictions_per_hour)
    return allowed, waiting, [Blocked(candidate.name, why) for candidate in ordered if candidate.name not in known]


def _within_evictions(candidates: Iterable[Candidate], most: int | None) -> list[Candidate]:
    """The first candidates with so many evictions in all; None = any number."""
    if most is None:
        return list(candidates)
    allowed, left = list[Candidate](), most
    for candidate in candidates:
        if candidate.evictions <= left:
            left -= candidate.evictions
            allowed.append(candidate)
    return allowed


def _describe_limit(most: int, per_hour: int) -> str:
    why = f"no more than {counted(most, 'eviction')} may be made for the sake of price"
    return f"{why} now: setting MAX_EVICTIONS_PER_HOUR is {per_hour}" if per_hour else why


def still_allowed(
    snapshot: Snapshot,
    plan: Plan,
    catalog: Catalog,
    uids: Mapping[str, str],
    *,
    locked: frozenset[str],
    most_evictions: int | None = None,
) -> tuple[list[Candidate], list[Blocked]]:
    """Those of these claims, name → uid, that may be consolidated now, within their budgets and so many evictions; and
    why the others may not. Nothing is said of those that do not exist any more.
    """
    candidates, blocked, ineligible = find_candidates(snapshot, plan, Prices(snapshot, catalog).catalog, locked=locked)
    same = [candidate for candidate in candidates if uids.get(candidate.name) == candidate.claim.metadata.uid]
    within, waiting = within_budgets(same, snapshot, REASON, locked=locked, maximum=MAXIMUM_CANDIDATES)
    allowed = _within_evictions(within, most_evictions)
    reasons = {stays.claim: stays.reason for stays in (*blocked, *ineligible, *waiting)}
    names = {candidate.name for candidate in allowed}
    too_many = {candidate.name for candidate in within} - names
    if most_evictions is not None:
        why = _describe_limit(most_evictions, snapshot.settings.max_evictions_per_hour)
        reasons |= dict.fromkeys(too_many, why)
    left = [claim for claim in snapshot.nodeclaims if uids.get(claim.name) == claim.metadata.uid]
    return allowed, [
        Blocked(claim.name, reasons.get(claim.name) or _left_out(claim, locked))
        for claim in left
        if claim.name not in names
    ]


def _left_out(claim: NodeClaim, locked: frozenset[str]) -> str:
    """Why the claim is no candidate that could be blocked."""
    if claim.name in locked:
        return "another disruption or an interruption notice holds the node"
    if claim.metadata.deletion_timestamp is not None:
        return "node is deleting or marked for deletion"
    return "no pod of the node needs another one any more"


def judge(
    snapshot: Snapshot,
    plan: Plan,
    catalog: Catalog,
    chosen: Sequence[Candidate],
    *,
    has_time: Callable[[], bool] = lambda: True,
) -> Consolidation:
    """What is worth it of exactly these candidates, with the whole budget of the planner.

    ``has_time``: asked before each trial; without time nothing goes.
    """
    prices = Prices(snapshot, catalog)
    settled = simulation.close_idle_nodes(simulation.settle(snapshot, plan))
    refused: dict[str, str] = {}
    left = list(chosen)
    while left:
        if not has_time():
            refused |= {
                candidate.name: "no time was left to plan for its pods; tried again later" for candidate in left
            }
            break
        trial = simulation.simulate(settled, left, catalog)
        moves, why = accept(trial, snapshot, prices)
        refused |= why
        names = {name for move in moves for name in move.candidates}
        if len(names) == len(left):
            return Consolidation(tuple(moves), _blocked(refused), snapshot=trial.snapshot, plan=_plan_of(trial, moves))
        left = [candidate for candidate in left if candidate.name in names]
    return Consolidation(refused=_blocked(refused))


def judge_again(snapshot: Snapshot, catalog: Catalog, names: Collection[str]) -> tuple[Plan, tuple[str, ...]]:
    """Decide again on a stored snapshot: the plan, and those of its candidates that would stay now.

    ``snapshot``: as ``Consolidation`` has it; ``names``: of the candidates of all its moves.
    """
    prices = Prices(snapshot, catalog)
    trial = simulation.of_marked(
        snapshot, decide(snapshot, catalog), marked_candidates(snapshot, names, prices.catalog)
    )
    moves, refused = accept(trial, snapshot, prices)
    return _plan_of(trial, moves), tuple(sorted(refused))


def _plan_of(trial: Simulation, moves: Iterable[Move]) -> Plan:
    """The plan with the new nodes of the moves, to be launched only as something cheaper."""
    nodes = tuple(node for move in sorted(moves, key=lambda move: move.candidates) for node in move.new_nodes)
    return msgspec.structs.replace(trial.plan, new_nodes=nodes)


def _blocked(refused: dict[str, str]) -> tuple[Blocked, ...]:
    return tuple(Blocked(name, refused[name]) for name in sorted(refused))
