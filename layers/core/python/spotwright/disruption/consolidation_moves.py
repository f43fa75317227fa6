"""What becomes of groups of nodes that depend on each other: a move that is worth it, or why the nodes stay.

A move is worth it if what it saves in the time that its nodes still have is more than what its evictions cost, and what
the new nodes cost while the old ones still run.

Source of the launch rules: Karpenter v1.14 ``pkg/controllers/disruption/consolidation.go``.
"""

from datetime import datetime, timedelta
from fractions import Fraction
from typing import Final

import msgspec

from spotwright.disruption import blockers, cheaper_nodes, spot_return
from spotwright.disruption.candidates import Candidate, node_price
from spotwright.disruption.cheaper_nodes import SPOT_TO_SPOT_TYPES, Option
from spotwright.disruption.prices import Prices
from spotwright.disruption.simulation import Group, Simulation
from spotwright.model import labels
from spotwright.model.ec2.instance_type import PICOUSD
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.plurals import counted
from spotwright.model.snapshot import SPOT_TO_SPOT_CONSOLIDATION, Snapshot
from spotwright.scheduling.plan import NewNode

# What a node is expected to go on for, unless it expires earlier. Most clusters change within a day.
HORIZON: Final = timedelta(hours=24)
# What a pod's eviction counts as, times its eviction cost (1 for a pod without priority).
EVICTION_PICOUSD: Final = PICOUSD // 100
# How long a new node runs beside those that it replaces.
OVERLAP: Final = timedelta(minutes=6)
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


def accept(trial: Simulation, snapshot: Snapshot, prices: Prices) -> tuple[list[Move], dict[str, str]]:
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
    cost += bought * hours(OVERLAP)
    move = Move(
        candidates=group.names,
        new_nodes=new_nodes,
        evictions=sum(candidate.evictions for candidate in group.candidates),
        price_picousd_per_hour=price,
        saving_picousd_per_hour=price - bought,
        cost_picousd=int(cost),
        hours=min(hours(_lifetime(candidate.claim, snapshot.now)) for candidate in group.candidates),
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


def hours(duration: timedelta) -> Fraction:
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
