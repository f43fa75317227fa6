"""Which nodes are worth replacing or removing for their price, all of them in one plan.

The planner decides what becomes of the pods: nodes that are tried together may be replaced by any number of nodes. The
plan falls apart into groups that do not depend on each other; each of them is worth it or is left out. It is worth it
if what it saves in the time that its nodes still have is more than what its evictions cost, and what the new nodes cost
while the old ones still run. Since every step lowers that sum, no node goes back and forth while prices stay.

Source of gates, order and launch rules: Karpenter v1.14 ``pkg/controllers/disruption``. Its difference: it removes one
set of nodes for one new node at most, and any saving is enough.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from fractions import Fraction
from typing import Final

import msgspec

from spotwright.decisions.decide import decide
from spotwright.decisions.decision import UNDERUTILIZED
from spotwright.disruption import blockers, cheaper_nodes, emptiness, removal_order, simulation, spot_return
from spotwright.disruption.candidates import (
    Blocked,
    Candidate,
    build_candidates,
    marked_candidates,
    node_price,
    within_budgets,
)
from spotwright.disruption.cheaper_nodes import SPOT_TO_SPOT_TYPES, Option
from spotwright.disruption.prices import Prices
from spotwright.disruption.simulation import Group, Simulation
from spotwright.model import labels
from spotwright.model.ec2.instance_type import PICOUSD, Catalog
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes import eviction
from spotwright.model.plurals import counted
from spotwright.model.snapshot import SPOT_TO_SPOT_CONSOLIDATION, Snapshot
from spotwright.scheduling.plan import NewNode, Plan

REASON: Final = UNDERUTILIZED
# Nodes that are tried together at most, as with Karpenter.
MAXIMUM_CANDIDATES: Final = 100
# Nodes that are tried alone in an evaluation; the next one begins with others.
MAXIMUM_SINGLE: Final = 20
# What a node is expected to go on for, unless it expires earlier. Most clusters change within a day.
HORIZON: Final = timedelta(hours=24)
# What a pod's eviction counts as, times its eviction cost (1 for a pod without priority).
EVICTION_PICOUSD: Final = PICOUSD // 100
# How long a new node runs beside those that it replaces.
OVERLAP: Final = timedelta(minutes=6)
# Units of work of the planner in a trial; what is proposed is planned with all of them.
TRIAL_WORK_UNITS: Final = 15_000
# Karpenter's for Balanced: the share of the saving is at least this share of the disruption.
BALANCED_RATIO: Final = Fraction(1, 2)


class Move(msgspec.Struct, frozen=True):
    """Nodes that go together, and what takes their place; a move depends on no other one. Prices: picodollars per hour.

    ``cost_picousd``: of its evictions and of running both for a while. ``hours``: how long the saving is expected to
    last.
    """

    candidates: tuple[str, ...]
    new_nodes: tuple[NewNode, ...]
    evictions: int
    price_picousd_per_hour: int
    saving_picousd_per_hour: int
    cost_picousd: int
    hours: Fraction

    @property
    def value_picousd(self) -> Fraction:
        """What it is worth in all."""
        return self.saving_picousd_per_hour * self.hours - self.cost_picousd

    def describe(self) -> str:
        """For example: ``saves $0.0770/h; 5 evictions and the overlap count as $0.06, earned back in 47 minutes``."""
        minutes = -(-self.cost_picousd * 60 // self.saving_picousd_per_hour)
        saving, evictions = cheaper_nodes.dollars(self.saving_picousd_per_hour), counted(self.evictions, "eviction")
        cost = f"${self.cost_picousd / PICOUSD:.2f}"
        return f"saves {saving}/h; {evictions} and the overlap count as {cost}, earned back in " + counted(
            minutes, "minute"
        )


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
    if most_evictions is not None:
        candidates = _by_surplus(candidates, snapshot, plan, prices, most_evictions)
    allowed, waiting, too_many = _allowed(candidates, snapshot, locked, maximum, most_evictions)
    search = _Search(snapshot, plan, catalog, prices, has_time)
    chosen = search.run(allowed)
    found = judge(snapshot, plan, catalog, chosen)
    gone = {name for move in found.moves for name in move.candidates}
    reasons = {stays.claim: stays.reason for stays in (*ineligible, *too_many)} | search.refused
    reasons |= {stays.claim: stays.reason for stays in found.refused}
    refused = {name: reason for name, reason in reasons.items() if name not in gone}
    return msgspec.structs.replace(found, refused=_blocked(refused), blocked=(*blocked, *waiting))


def _by_surplus(
    candidates: Sequence[Candidate], snapshot: Snapshot, plan: Plan, prices: Prices, most_evictions: int
) -> list[Candidate]:
    return removal_order.order_by_surplus(
        candidates,
        simulation.settle(snapshot, plan),
        prices.catalog,
        eviction_price=float(EVICTION_PICOUSD / _hours(HORIZON)),
        most_evictions=most_evictions,
    )


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
) -> list[Candidate]:
    """Those of these claims, name → uid, that may be consolidated now, within their budgets and so many evictions."""
    candidates, _, _ = find_candidates(snapshot, plan, Prices(snapshot, catalog).catalog, locked=locked)
    same = [candidate for candidate in candidates if uids.get(candidate.name) == candidate.claim.metadata.uid]
    within, _ = within_budgets(same, snapshot, REASON, locked=locked, maximum=MAXIMUM_CANDIDATES)
    return _within_evictions(within, most_evictions)


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
        moves, why = _accept(trial, snapshot, prices)
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
    moves, refused = _accept(trial, snapshot, prices)
    return _plan_of(trial, moves), tuple(sorted(refused))


def _plan_of(trial: Simulation, moves: Iterable[Move]) -> Plan:
    """The plan with the new nodes of the moves, to be launched only as something cheaper."""
    nodes = tuple(node for move in sorted(moves, key=lambda move: move.candidates) for node in move.new_nodes)
    return msgspec.structs.replace(trial.plan, new_nodes=nodes)


def _blocked(refused: dict[str, str]) -> tuple[Blocked, ...]:
    return tuple(Blocked(name, refused[name]) for name in sorted(refused))


class _Search:
    """Trials of several candidates at once, then of single ones. ``refused``: why a candidate was left out last."""

    def __init__(
        self, snapshot: Snapshot, plan: Plan, catalog: Catalog, prices: Prices, has_time: Callable[[], bool]
    ) -> None:
        units = min(TRIAL_WORK_UNITS, snapshot.settings.work_units)
        settings = msgspec.structs.replace(snapshot.settings, work_units=units)
        self._snapshot = msgspec.structs.replace(snapshot, settings=settings)
        self._settled = simulation.close_idle_nodes(simulation.settle(self._snapshot, plan))
        self._catalog = catalog
        self._prices = prices
        self._has_time = has_time
        self.refused: dict[str, str] = {}

    def run(self, candidates: Sequence[Candidate]) -> list[Candidate]:
        best, value = list[Candidate](), Fraction(0)
        for count in _prefix_lengths(len(candidates)):
            if not self._has_time():
                break
            moves = self._try(candidates[:count])
            worth = sum((move.value_picousd for move in moves), start=Fraction(0))
            if worth > value:
                best, value = self._of(moves, candidates), worth
        for candidate in self._singles(candidates, best):
            if not self._has_time():
                break
            moves = self._try([*best, candidate])
            worth = sum((move.value_picousd for move in moves), start=Fraction(0))
            if worth > value:
                best, value = self._of(moves, candidates), worth
        return best

    def _singles(self, candidates: Sequence[Candidate], taken: Sequence[Candidate]) -> list[Candidate]:
        """Some of the candidates that are left; in the next minute others."""
        names = {candidate.name for candidate in taken}
        left = simulation.without(candidates, names)
        if len(left) <= MAXIMUM_SINGLE:
            return left
        first = int(self._snapshot.now.timestamp()) // 60 * MAXIMUM_SINGLE % len(left)
        return [*left[first:], *left[:first]][:MAXIMUM_SINGLE]

    def _of(self, moves: Iterable[Move], candidates: Iterable[Candidate]) -> list[Candidate]:
        names = {name for move in moves for name in move.candidates}
        return [candidate for candidate in candidates if candidate.name in names]

    def _try(self, candidates: Sequence[Candidate]) -> list[Move]:
        """The moves of these candidates; those whose pods have no place are left out, and the others tried again."""
        trial = simulation.simulate(self._settled, candidates, self._catalog)
        if trial.failures and len(trial.failures) < len(candidates):
            self.refused |= trial.failures
            trial = simulation.simulate(
                self._settled, simulation.without(candidates, trial.failures.keys()), self._catalog
            )
        moves, refused = _accept(trial, self._snapshot, self._prices)
        self.refused |= refused
        return moves


def _prefix_lengths(count: int) -> Iterator[int]:
    while count:
        yield count
        count //= 2


def _accept(trial: Simulation, snapshot: Snapshot, prices: Prices) -> tuple[list[Move], dict[str, str]]:
    """The groups of a simulation that are worth it, and why the candidates of the others stay."""
    moves, refused = list[Move](), dict[str, str]()
    for group in trial.groups:
        failed = next((trial.failures[name] for name in group.names if name in trial.failures), "")
        move = failed or _move(group, snapshot, prices)
        if isinstance(move, str):
            refused |= dict.fromkeys(group.names, move)
        else:
            moves.append(move)
    return moves, refused


def _move(group: Group, snapshot: Snapshot, prices: Prices) -> Move | str:
    """The group as a move, or why it is not worth it."""
    new_nodes = _replacements(group, snapshot, prices)
    if isinstance(new_nodes, str):
        return new_nodes
    price = sum(candidate.price for candidate in group.candidates)
    bought = sum(node.price_picousd_per_hour for node in new_nodes)
    cost = sum((candidate.eviction_cost for candidate in group.candidates), start=Fraction(0)) * EVICTION_PICOUSD
    cost += bought * _hours(OVERLAP)
    move = Move(
        candidates=group.names,
        new_nodes=new_nodes,
        evictions=sum(candidate.evictions for candidate in group.candidates),
        price_picousd_per_hour=price,
        saving_picousd_per_hour=price - bought,
        cost_picousd=int(cost),
        hours=min(_hours(_lifetime(candidate.claim, snapshot.now)) for candidate in group.candidates),
    )
    if move.saving_picousd_per_hour <= 0:
        return "Can't replace with a cheaper node"
    if move.value_picousd <= 0:
        return f"Can't replace with a node so much cheaper that it pays: it {move.describe()}"
    return _unbalanced(group, move, snapshot, prices) or move


def _replacements(group: Group, snapshot: Snapshot, prices: Prices) -> tuple[NewNode, ...] | str:
    """The new nodes of a group, to be launched only as what is cheaper in any case; or why they are not."""
    price = sum(candidate.price for candidate in group.candidates)
    planned = sum(node.price_picousd_per_hour for node in group.new_nodes)
    if not group.new_nodes:
        return ()
    if planned >= price:
        return "Can't replace with a cheaper node"
    are_spot = all(
        candidate.claim.metadata.labels.get(labels.CAPACITY_TYPE) == labels.SPOT for candidate in group.candidates
    )
    restricted = list[NewNode]()
    for node in group.new_nodes:
        # Each may cost more than planned by its share of the saving, so that all together stay cheaper.
        most = Fraction(price * node.price_picousd_per_hour, planned) if planned else Fraction(price)
        if not are_spot:
            node = spot_return.in_healthy_pools(node, prices.types(node), snapshot)
        options = cheaper_nodes.launch_options(node, prices.types(node))
        becomes_spot = any(option.capacity_type == labels.SPOT for option in options)
        options = [option for option in options if option.worst_price < most]
        if are_spot and becomes_spot:
            narrowed = _spot_to_spot(group, node, options, snapshot)
            if isinstance(narrowed, str):
                return narrowed
            options = narrowed
        if not options:
            held_back = "" if are_spot else spot_return.describe_trouble(group.new_nodes, snapshot)
            return f"Can't replace with a cheaper node{held_back}"
        if lacking := cheaper_nodes.lacking_min_values(node, options):
            return f"Can't replace with a cheaper node: {lacking}"
        restricted.append(cheaper_nodes.restrict(node, options))
    return tuple(restricted)


def _spot_to_spot(group: Group, node: NewNode, options: list[Option], snapshot: Snapshot) -> list[Option] | str:
    """What spot nodes may be replaced with; Karpenter asks for fifteen cheaper types where one replaces one."""
    if SPOT_TO_SPOT_CONSOLIDATION not in snapshot.settings.feature_gates:
        return "SpotToSpotConsolidation is disabled, can't replace a spot node with a spot node"
    options = [option for option in options if option.capacity_type == labels.SPOT]
    if len(group.candidates) > 1 or len(group.new_nodes) > 1:
        return options
    if len(options) < SPOT_TO_SPOT_TYPES:
        return (
            f"SpotToSpotConsolidation requires {SPOT_TO_SPOT_TYPES} cheaper instance type options than the current"
            f" candidate to consolidate, got {len(options)}"
        )
    return cheaper_nodes.fewest_spot_types(node, options)


def _lifetime(claim: NodeClaim, now: datetime) -> timedelta:
    """How long the node would go on: until it expires, a day at most."""
    if claim.expire_after_seconds is None or claim.metadata.creation_timestamp is None:
        return HORIZON
    expires = claim.metadata.creation_timestamp + timedelta(seconds=claim.expire_after_seconds)
    return max(timedelta(0), min(HORIZON, expires - now))


def _hours(duration: timedelta) -> Fraction:
    return Fraction(int(duration.total_seconds()), 3600)


def _unbalanced(group: Group, move: Move, snapshot: Snapshot, prices: Prices) -> str:
    """Why a NodePool with the policy Balanced does not agree; "" = each of them does."""
    pools: dict[str, NodePool] = {candidate.pool.name: candidate.pool for candidate in group.candidates}
    for name, pool in sorted(pools.items()):
        if pool.consolidation_policy != "Balanced":
            continue
        own = [candidate for candidate in group.candidates if candidate.pool.name == name]
        share = Fraction(sum(candidate.price for candidate in own), move.price_picousd_per_hour)
        total_price, total_disruption = _pool_totals(pool, snapshot, prices)
        if not total_price or not total_disruption:
            return f"NodePool {name} has no price to compare the saving with"
        saving = move.saving_picousd_per_hour * share / total_price
        disruption = sum((candidate.disruption_cost for candidate in own), start=Fraction(0)) / total_disruption
        if saving < BALANCED_RATIO * disruption:
            return (
                f"consolidationPolicy Balanced: it saves {float(saving):.1%} of the price of NodePool {name} for"
                f" {float(disruption):.1%} of its disruption"
            )
    return ""


def _pool_totals(pool: NodePool, snapshot: Snapshot, prices: Prices) -> tuple[int, Fraction]:
    """What all nodes of a pool cost, in picodollars per hour, and what disrupting all of them would."""
    pods = blockers.pods_by_node(snapshot.pods)
    nodes = blockers.nodes_by_provider_id(snapshot.nodes)
    price, disruption = 0, Fraction(0)
    for claim in snapshot.nodeclaims:
        node = nodes.get(claim.provider_id)
        if claim.nodepool == pool.name and node is not None:
            price += node_price(claim, prices.catalog) or 0
            disruption += Candidate(claim, node, pool, tuple(pods.get(node.name, ()))).disruption_cost
    return price, disruption
