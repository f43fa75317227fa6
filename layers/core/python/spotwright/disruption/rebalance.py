"""Nodes whose spot instances EC2 recommends to leave: which are replaced before an interruption, and with what.

A recommendation says that an interruption has become likely, not that it comes, and it comes for whole pools of
instances at once. It is acted on as the NodePool's annotation says, within the budgets of the NodePool whatever reasons
these name, and only so often, so that a storm of recommendations churns no fleet.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Final

import msgspec

from spotwright.aws.instance_types import interruption_history
from spotwright.decisions.decide import decide
from spotwright.decisions.decision import REBALANCED
from spotwright.disruption import cheaper_nodes, simulation
from spotwright.disruption.breaker import NOT_ADMITTED
from spotwright.disruption.candidates import Blocked, Candidate, build_candidates, marked_candidates
from spotwright.disruption.cheaper_nodes import Option, SpotPool
from spotwright.disruption.noticed import Noticed, as_blocked, close_nodes, within_all_budgets, within_limit
from spotwright.disruption.prices import Prices
from spotwright.disruption.simulation import Group, Simulation
from spotwright.model import labels
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import RebalancePolicy
from spotwright.model.kubernetes.node import instance_id
from spotwright.model.snapshot import OfferingHistory, Snapshot
from spotwright.scheduling.plan import NewNode, Plan

REASON: Final = REBALANCED
# What a better offering may cost more than the one that is left, in percent.
PRICE_MARGIN_PERCENT: Final = 10
# Of a cluster's nodes so many percent are replaced for recommendations in any hour, rounded up, and two at least.
SHARE_PERCENT: Final = 10
LEAST_NODES: Final = 2
WINDOW_MS: Final = 60 * 60 * 1000
# Others take the places of nodes for which nothing better is found in so many trials of an evaluation.
MAXIMUM_TRIALS: Final = 6
_TOO_MANY: Final = (
    "so many nodes were replaced for rebalance recommendations within the last hour that it has to wait"
    f" ({SHARE_PERCENT} % of the nodes, {LEAST_NODES} at least)"
)


class Replacement(msgspec.Struct, frozen=True):
    """What takes the place of nodes that go together."""

    candidates: tuple[str, ...]
    new_nodes: tuple[NewNode, ...]

    def describe(self, histories: Collection[str]) -> str:
        """For example: ``m5.large in z1 had 1 rebalance recommendation in 24 h: NodeClaim a is replaced with …``.

        ``histories``: what is said of the offerings of the candidates.
        """
        names = f"NodeClaim {self.candidates[0]} is"
        if len(self.candidates) > 1:
            names = f"NodeClaims {', '.join(self.candidates)} are"
        kinds = [
            f"{node.capacity_type} {node.instance_types[0]} at {cheaper_nodes.dollars(node.price_picousd_per_hour)}/h"
            for node in self.new_nodes
        ]
        what = f"replaced with {', '.join(kinds)}" if kinds else "removed: its pods have room on other nodes"
        return f"{'; '.join(sorted(histories))}: {names} {what}"


def nodes_per_hour(nodes: int) -> int:
    """How many of so many nodes may be replaced for recommendations within an hour."""
    return max(LEAST_NODES, -(-nodes * SHARE_PERCENT // 100))


def replace_recommended(
    snapshot: Snapshot,
    plan: Plan,
    catalog: Catalog,
    instances: Collection[str],
    *,
    locked: frozenset[str],
    maximum: int,
    admitted: int,
) -> Noticed:
    """Which of the nodes with these instances go now, ``maximum`` at most, and where their pods go.

    ``maximum``: how many nodes are left to the hour; ``admitted``: to the breaker.
    ``plan``: where pending pods go, without new nodes.
    """
    prices = Prices(snapshot, catalog)
    recommended = [
        claim for claim in snapshot.nodeclaims if _is_recommended(claim, instances) and claim.name not in locked
    ]
    built, blocked = build_candidates(snapshot, plan, recommended, prices.catalog)
    refusals = {candidate.name: refusal for candidate in built if (refusal := _refusal(candidate))}
    settled = close_nodes(simulation.settle(snapshot, plan), instances)
    left, waiting = _within_budgets(simulation.without(built, refusals), snapshot, locked, maximum, admitted)
    trials = 0
    while left:
        trial = simulation.simulate(settled, left, catalog)
        trials += 1
        replacements, why = _accept(trial, snapshot, prices)
        if not why:
            stays = (*blocked, *waiting, *as_blocked(refusals))
            plan = _plan_of(trial.plan, replacements)
            return Noticed(tuple(left), stays, trial.snapshot, plan, _sentences(replacements, left, snapshot))
        refusals |= why
        if trials < MAXIMUM_TRIALS:
            # Nodes that stay take no part of budgets and rate.
            left, waiting = _within_budgets(simulation.without(built, refusals), snapshot, locked, maximum, admitted)
        else:
            left = simulation.without(left, why)
    return Noticed(blocked=(*blocked, *waiting, *as_blocked(refusals)))


def judge_again(snapshot: Snapshot, catalog: Catalog, names: Collection[str]) -> tuple[Plan, tuple[str, ...]]:
    """Decide again on a stored snapshot: the plan, and those of its candidates that would stay now."""
    prices = Prices(snapshot, catalog)
    candidates = marked_candidates(snapshot, names, prices.catalog)
    trial = simulation.of_marked(snapshot, decide(snapshot, catalog), candidates)
    replacements, refused = _accept(trial, snapshot, prices)
    return _plan_of(trial.plan, replacements), tuple(sorted(refused))


def _sentences(
    replacements: Iterable[Replacement], candidates: Iterable[Candidate], snapshot: Snapshot
) -> dict[str, str]:
    """Why each candidate goes and what takes its place, by name."""
    histories, said = _by_pool(snapshot), dict[str, str]()
    for candidate in candidates:
        pool = _pool_of(candidate.claim)
        history = histories.get(pool, OfferingHistory(*pool, rebalances=1))
        said[candidate.name] = interruption_history.describe_notices(history)
    return {
        name: replacement.describe({said[other] for other in replacement.candidates})
        for replacement in replacements
        for name in replacement.candidates
    }


def _is_recommended(claim: NodeClaim, instances: Collection[str]) -> bool:
    return (
        claim.is_managed
        and claim.metadata.deletion_timestamp is None
        and instance_id(claim.provider_id) in instances
        and claim.metadata.labels.get(labels.CAPACITY_TYPE) == labels.SPOT
    )


def _refusal(candidate: Candidate) -> str:
    """Why a recommendation is not acted on, whatever else could be bought; "" = it may be."""
    pool = candidate.pool
    if pool.rebalance_policy == RebalancePolicy.IGNORE:
        return f"NodePool {pool.name} ignores rebalance recommendations ({labels.REBALANCE_RECOMMENDATION})"
    if pool.replicas is not None:
        return f"NodePool {pool.name} is static: its nodes are not replaced for rebalance recommendations"
    if pool.rebalance_policy == RebalancePolicy.REPLACE_WHEN_BETTER and candidate.price_picousd_per_hour is None:
        return "rebalance recommendation: the price of its offering is not known, so that none can be compared"
    return ""


def _within_budgets(
    candidates: Sequence[Candidate], snapshot: Snapshot, locked: frozenset[str], maximum: int, admitted: int
) -> tuple[list[Candidate], list[Blocked]]:
    """The first candidates that budgets, rate and breaker allow, and why the others wait."""
    allowed, waiting = within_all_budgets(candidates, snapshot, locked)
    why = NOT_ADMITTED if admitted < maximum else _TOO_MANY
    allowed, more = within_limit(allowed, min(maximum, admitted), why)
    return allowed, [*waiting, *more]


def _accept(trial: Simulation, snapshot: Snapshot, prices: Prices) -> tuple[list[Replacement], dict[str, str]]:
    """The groups of a simulation that may go, and why the candidates of the others stay."""
    replacements, refused = list[Replacement](), dict[str, str]()
    histories = _by_pool(snapshot)
    for group in trial.groups:
        failed = next((trial.failures[name] for name in group.names if name in trial.failures), "")
        new_nodes = failed or _replace(group, histories, prices)
        if isinstance(new_nodes, str):
            refused |= dict.fromkeys(group.names, new_nodes)
        else:
            replacements.append(Replacement(group.names, new_nodes))
    return replacements, refused


def _replace(group: Group, histories: Mapping[SpotPool, OfferingHistory], prices: Prices) -> tuple[NewNode, ...] | str:
    """The new nodes of a group, to be launched only in better pools; or why there are none."""
    left = {_pool_of(candidate.claim) for candidate in group.candidates}
    compares = any(candidate.pool.rebalance_policy != RebalancePolicy.REPLACE for candidate in group.candidates)
    least = max(1, min(_weight(pool, histories) for pool in left))
    planned = sum(node.price_picousd_per_hour for node in group.new_nodes)
    price = sum(candidate.price for candidate in group.candidates) * (100 + PRICE_MARGIN_PERCENT)

    def is_better(pool: SpotPool) -> bool:
        return pool not in left and (not compares or _weight(pool, histories) < least)

    replaced = list[NewNode]()
    for node in group.new_nodes:
        most = Fraction(price * node.price_picousd_per_hour, planned * 100) if planned else Fraction(price, 100)
        choices = [
            (elsewhere, options)
            for elsewhere in cheaper_nodes.in_pools(node, prices.types(node), is_better)
            if (options := _options(elsewhere, prices, most if compares else None))
        ]
        if not choices:
            return _nothing_better(compares)
        elsewhere, options = min(choices, key=lambda choice: (choice[1][0].best_price, -len(choice[1])))
        if lacking := cheaper_nodes.lacking_min_values(elsewhere, options):
            return f"rebalance recommendation: {lacking}"
        replaced.append(cheaper_nodes.restrict(elsewhere, options))
    return tuple(replaced)


def _options(node: NewNode, prices: Prices, most: Fraction | None) -> list[Option]:
    """What the node may be launched as on spot for ``most`` at most, cheapest first."""
    options = cheaper_nodes.launch_options(node, prices.types(node), (labels.SPOT,))
    return [option for option in options if most is None or option.worst_price <= most]


def _nothing_better(compares: bool) -> str:
    if compares:
        return (
            "rebalance recommendation: no spot offering with fewer notices in 24 h costs at most"
            f" {PRICE_MARGIN_PERCENT} % more"
        )
    return "rebalance recommendation: no other spot offering has room for its pods"


def _by_pool(snapshot: Snapshot) -> dict[SpotPool, OfferingHistory]:
    return {(history.instance_type, history.zone): history for history in snapshot.offering_histories}


def _weight(pool: SpotPool, histories: Mapping[SpotPool, OfferingHistory]) -> int:
    history = histories.get(pool)
    return interruption_history.weight(history) if history else 0


def _pool_of(claim: NodeClaim) -> SpotPool:
    return claim.metadata.labels.get(labels.INSTANCE_TYPE, ""), claim.metadata.labels.get(labels.ZONE, "")


def _plan_of(plan: Plan, replacements: Iterable[Replacement]) -> Plan:
    """The plan with the new nodes of the replacements, to be launched only in better pools."""
    ordered = sorted(replacements, key=lambda replacement: replacement.candidates)
    return msgspec.structs.replace(
        plan, new_nodes=tuple(node for replacement in ordered for node in replacement.new_nodes)
    )
