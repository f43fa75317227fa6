"""Nodes with pods that may be disrupted for the sake of drift or price: what they cost, and what moving them costs.

Source: Karpenter v1.14 ``pkg/controllers/disruption/types.go`` and ``helpers.go``.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from fractions import Fraction
from functools import cached_property

import msgspec

from spotwright.disruption import blockers, budgets
from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import Catalog, find_instance_type
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes import eviction
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan


class Candidate(msgspec.Struct, frozen=True, dict=True):
    """A node that may be disrupted. ``pods``: all that run on it.

    ``price_picousd_per_hour``: of its offering, whether it is available now or not; None = it is not known.
    """

    claim: NodeClaim
    node: Node
    pool: NodePool
    pods: tuple[Pod, ...] = ()
    price_picousd_per_hour: int | None = None

    @property
    def name(self) -> str:
        return self.claim.name

    @property
    def price(self) -> int:
        """Picodollars per hour, 0 = not known."""
        return self.price_picousd_per_hour or 0

    @cached_property
    def moving_pods(self) -> tuple[Pod, ...]:
        """Those that need another node when this one goes."""
        return tuple(filter(eviction.is_reschedulable, self.pods))

    @property
    def evictions(self) -> int:
        return len(self.moving_pods)

    @property
    def disruption_cost(self) -> Fraction:
        """Karpenter's RescheduleDisruptionCost: 1, and the costs of its evictions."""
        return 1 + self.eviction_cost

    @property
    def unused_price(self) -> Fraction:
        """What is paid for room that no pod has, in picodollars per hour: by the resource that is used most."""
        shares = [
            Fraction(sum(pod.requests.get(name, 0) for pod in self.pods), self.node.allocatable[name])
            for name in (resources.CPU, resources.MEMORY)
            if self.node.allocatable.get(name)
        ]
        return self.price * (1 - min(max(shares, default=Fraction(0)), Fraction(1)))

    @cached_property
    def eviction_cost(self) -> Fraction:
        costs = Counter(map(eviction.eviction_cost, self.moving_pods))
        return sum((cost * count for cost, count in costs.items() if cost > 0), start=Fraction(0))


class Blocked(msgspec.Struct, frozen=True):
    """A node that may not be disrupted, and why."""

    claim: str
    reason: str


def build_candidates(
    snapshot: Snapshot,
    plan: Plan,
    claims: Iterable[NodeClaim],
    catalog: Catalog,
    *,
    ignores_pods_with_grace_period: bool = False,
) -> tuple[list[Candidate], list[Blocked]]:
    """Which of these claims may be disrupted. ``plan``: where pending pods would go; ``catalog``: with its overlays.

    ``ignores_pods_with_grace_period``: pods that may not be evicted do not keep the node of a claim with a
    terminationGracePeriod, since they have to go in the end.
    """
    nominated = frozenset(node.name for node in plan.existing_nodes)
    pools = {pool.name: pool for pool in snapshot.nodepools}
    nodes, pods = blockers.nodes_by_provider_id(snapshot.nodes), blockers.pods_by_node(snapshot.pods)
    candidates, blocked = list[Candidate](), list[Blocked]()
    for claim in claims:
        node, pool = nodes.get(claim.provider_id), pools.get(claim.nodepool)
        node_pods = pods.get(node.name, []) if node else []
        counted = node_pods
        if ignores_pods_with_grace_period and claim.termination_grace_period_seconds is not None:
            counted = []
        why = blockers.blocking_reason(claim, node, counted, pool, snapshot, nominated)
        if why or node is None or pool is None:
            blocked.append(Blocked(claim.name, why))
        else:
            price = node_price(claim, catalog)
            candidates.append(Candidate(claim, node, pool, tuple(node_pods), price))
    return candidates, blocked


def marked_candidates(snapshot: Snapshot, names: Collection[str], catalog: Catalog) -> list[Candidate]:
    """The candidates of a snapshot that is stored as if they were being deleted. ``catalog``: with overlays."""
    pools = {pool.name: pool for pool in snapshot.nodepools}
    nodes, pods = blockers.nodes_by_provider_id(snapshot.nodes), blockers.pods_by_node(snapshot.pods)
    marked = list[Candidate]()
    for claim in snapshot.nodeclaims:
        node, pool = nodes.get(claim.provider_id), pools.get(claim.nodepool)
        if claim.name in names and node is not None and pool is not None:
            marked.append(Candidate(claim, node, pool, tuple(pods.get(node.name, ())), node_price(claim, catalog)))
    return marked


def node_price(claim: NodeClaim, catalog: Catalog) -> int | None:
    """What the claim's instance costs, in picodollars per hour; None when the catalog does not know its offering."""
    own: Mapping[str, str] = claim.metadata.labels
    zone, capacity_type = own.get(labels.ZONE, ""), own.get(labels.CAPACITY_TYPE, "")
    reservation = own.get(labels.RESERVATION_ID, "")
    types = catalog.instance_types(claim.node_class_ref.name, claim.nodepool)
    name = own.get(labels.INSTANCE_TYPE, "")
    instance_type = find_instance_type(types, name, zone=zone, capacity_type=capacity_type, reservation=reservation)
    if instance_type is None:
        return None
    prices = [
        offering.price_picousd_per_hour
        for offering in instance_type.offerings
        if (offering.zone, offering.capacity_type) == (zone, capacity_type)
        and (not reservation or offering.requirements.get(labels.RESERVATION_ID).sole_value == reservation)
        and not offering.lacks_price
    ]
    return min(prices, default=None)


def from_another(ordered: Sequence[Candidate], now: datetime) -> list[Candidate]:
    """The candidates from another one on each minute, so that those without a replacement never keep all others."""
    first = int(now.timestamp()) // 60 % max(1, len(ordered))
    return [*ordered[first:], *ordered[:first]]


def within_budgets(
    candidates: Iterable[Candidate], snapshot: Snapshot, reason: str, *, locked: frozenset[str], maximum: int
) -> tuple[list[Candidate], list[Blocked]]:
    """The first candidates that the budgets of their NodePools allow, ``maximum`` at most; and those that wait."""
    left: dict[str, int] = {}
    allowed, waiting = list[Candidate](), list[Blocked]()
    for candidate in candidates:
        pool = candidate.pool
        if pool.name not in left:
            left[pool.name] = budgets.remaining_disruptions(
                pool, reason, snapshot.nodeclaims, snapshot.nodes, locked=locked, now=snapshot.now
            )
        if left[pool.name] > 0 and len(allowed) < maximum:
            left[pool.name] -= 1
            allowed.append(candidate)
        else:
            waiting.append(Blocked(candidate.name, f"the budgets of NodePool {pool.name} allow no further disruption"))
    return allowed, waiting
