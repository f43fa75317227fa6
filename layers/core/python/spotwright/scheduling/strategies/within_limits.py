"""The best placement within the limits of NodePools: the fewest pods left, higher priority first; then the least price.

Where the placement that ignores limits keeps them, it is the answer: limits that bind nobody change nothing. Otherwise
pods are placed under several prices for what counts against a limit (``offerings/limit_prices.py``): without a price
the cheapest nodes may use a limit up, with a high price the nodes hold as many pods per core that counts as they can.
Where pods are left all the same, smaller pods also come before larger ones, since more of them fit.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Final

from spotwright.model import resources
from spotwright.model.kubernetes.pod import Pod
from spotwright.scheduling.capacity.limit_shares import share_limits
from spotwright.scheduling.capacity.weight_groups import ENFORCED, IGNORED, LimitPolicy
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate
from spotwright.scheduling.placement.placement import Placement
from spotwright.scheduling.placement.planning_context import PlanningContext
from spotwright.scheduling.strategies import best_placement, priority

# What counts against a limit costs so many times what the same amount costs on the nodes planned without limits.
_PRESSURES: Final = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0, 10_000.0)
# Of more pods than these that cannot all fit into the limits, one order is tried: smaller before larger pods, as many
# first as request this share of what the limits leave.
_MANY_PODS: Final = 500
_USABLE_SHARE: Final = 0.95
# An attempt takes at most this part of the work that a plan may take; the best is made once more with all of it.
_ATTEMPT_SHARE: Final = 25
# Where minValues cannot be kept for some pods, this much of a NodePool's limits is withheld, until they are.
_WITHHELD_SHARES: Final = (0.25, 0.5, 0.75, 1.0)

type UnitPrices = dict[str, dict[str, float]]
"""NodePool → resource → picodollars per hour for a unit of it."""


def find_best_placement(
    context: PlanningContext, pods: Sequence[Pod], templates: Sequence[NodeClaimTemplate]
) -> Placement:
    """The best placement on the nodes of these templates."""
    if not any(template.nodepool.limits for template in templates):
        return best_placement.find_best_placement(context, pods, templates, ENFORCED)
    unlimited = best_placement.find_best_placement(context, pods, templates, IGNORED)
    unlimited.count_limits()
    if _keeps_limits(unlimited):
        return unlimited
    return _LimitSearch(context, pods, templates, unlimited).find()


def _keeps_limits(placement: Placement) -> bool:
    """Whether all planned nodes can be launched within the limits, with as many types as minValues ask for."""
    return all(share_limits(group, placement.planned_nodes_of(group)) is not None for group in placement.weight_groups)


class _Candidate:
    """A placement within limits: the batches of pods that were placed one after the other, and under which policy."""

    def __init__(
        self,
        placement: Placement,
        batches: Sequence[Sequence[Pod]],
        policy: LimitPolicy,
        rank: tuple[object, ...],
    ) -> None:
        self.placement = placement
        self.batches = batches
        self.policy = policy
        self.rank = rank


class _LimitSearch:
    """Placements of the same pods under several limit prices and in several orders. ``unlimited``: without limits."""

    def __init__(
        self,
        context: PlanningContext,
        pods: Sequence[Pod],
        templates: Sequence[NodeClaimTemplate],
        unlimited: Placement,
    ) -> None:
        self._context = context
        self._pods = pods
        self._templates = templates
        self._priorities = sorted({pod.priority for pod in pods}, reverse=True)
        self._requested = resources.add(*(pod.requests for pod in pods))
        self._unplaceable = unlimited.unplaced_pods()
        self._scarce = _unit_prices(unlimited, lambda times: float(times > 1))
        self._limited = _unit_prices(unlimited, lambda times: min(times, 1.0))
        self._work_units = unlimited.work_units
        self._most_work_units = self._work_units + context.settings.work_units
        self._best: _Candidate | None = None

    def find(self) -> Placement:
        ordered = sorted(self._pods, key=self._order_key)
        first = self._count_that_may_fit(ordered)
        if first < len(ordered) and len(ordered) > _MANY_PODS:
            budget = self._context.settings.work_units
            self._place([ordered[:first], ordered[first:]], _policy(self._scarce, 1.0), budget)
            if self._best is not None:
                return self._best_with_all_work()
        self._try_pressures()
        if not self._is_complete and self._has_time and self._limited != self._scarce:
            self._try([self._pods], _policy(self._limited, _PRESSURES[-1]))
        self._keep_min_values()
        if not self._is_complete:
            self._try_orders()
        return self._finished()

    @property
    def _is_complete(self) -> bool:
        """Whether some placement leaves no pod that has a place without limits."""
        return self._best is not None and self._places_all(self._best.placement)

    @property
    def _has_time(self) -> bool:
        return self._work_units < self._most_work_units

    def _try_pressures(self) -> None:
        """Find the lowest price for limits with which all pods have a place; without time for that, try the highest."""
        too_low, enough = -1, len(_PRESSURES)
        while enough - too_low > 1 and (self._has_time or enough == len(_PRESSURES)):
            tried = (too_low + enough) // 2 if self._has_time else len(_PRESSURES) - 1
            if self._places_all(self._try([self._pods], _policy(self._scarce, _PRESSURES[tried]))):
                enough = tried
            else:
                too_low = tried

    def _try(self, batches: Sequence[Sequence[Pod]], policy: LimitPolicy) -> Placement:
        """Place the batches with little work; the placement counts if it keeps the limits and is better than before."""
        return self._place(batches, policy, self._context.settings.work_units // _ATTEMPT_SHARE)

    def _place(self, batches: Sequence[Sequence[Pod]], policy: LimitPolicy, budget: int) -> Placement:
        placement = best_placement.place_in_batches(self._context, batches, self._templates, policy, budget)
        self._work_units += placement.work_units
        self._consider(placement, batches, policy)
        return placement

    def _consider(self, placement: Placement, batches: Sequence[Sequence[Pod]], policy: LimitPolicy) -> None:
        placement.count_limits()
        if _keeps_limits(placement):
            placement.plan_cheaper_types()
            best_placement.leave_last_of_equal_pods(self._context, self._pods, placement)
            candidate = _Candidate(placement, batches, policy, self._rank(placement))
            if self._best is None or candidate.rank < self._best.rank:
                self._best = candidate

    def _places_all(self, placement: Placement) -> bool:
        """Whether all pods that have a place without limits have one within them."""
        return placement.unplaced_pods() <= self._unplaceable and _keeps_limits(placement)

    def _violates_order(self, placement: Placement) -> bool:
        blocked, unplaced = set(placement.pods_blocked_by_limits()), placement.unplaced_pods()
        return bool(blocked) and priority.violates_priority(
            [pod for pod in self._pods if pod.key in blocked], (pod for pod in self._pods if pod.key not in unplaced)
        )

    def _rank(self, placement: Placement) -> tuple[object, ...]:
        """The smaller is better: pods left of each priority, younger pods before older ones, price."""
        unplaced = placement.unplaced_pods()
        left = Counter(pod.priority for pod in self._pods if pod.key in unplaced)
        return (
            tuple([left[priority] for priority in self._priorities]),
            self._violates_order(placement),
            placement.price(),
        )

    def _try_orders(self) -> None:
        """Pods without rules first; smaller pods first, as many as find a place together; and all in order of priority
        and age.
        """
        assert self._best is not None
        policy, ordered = self._best.policy, sorted(self._pods, key=self._order_key)
        ruled = [pod for pod in self._pods if _has_rules(pod)]
        if 0 < len(ruled) < len(self._pods) and self._has_time:
            # Pods placed one by one get a node of their size, which may be the last that a limit allows.
            self._try([[pod for pod in self._pods if not _has_rules(pod)], ruled], policy)
        sizes = {self._order_key(pod)[:3] for pod in ordered}
        placed, left = 0, len(ordered)
        while len(sizes) > 1 and left - placed > 1 and self._has_time:
            count = (placed + left) // 2
            unplaced = self._try([ordered[:count], ordered[count:]], policy).unplaced_pods() - self._unplaceable
            if any(pod.key in unplaced for pod in ordered[:count]):
                left = count
            else:
                placed = count
        for pressure in _PRESSURES[-1:-4:-2] if placed and self._has_time else ():
            self._try([ordered[:placed], ordered[placed:]], _policy(self._scarce, pressure))
        if self._violates_order(self._best.placement):
            self._try(priority.priority_batches(self._pods), policy)

    def _count_that_may_fit(self, ordered: Sequence[Pod]) -> int:
        """How many of the pods, in this order, request together no more than most of what all limits leave."""
        lefts = [
            ENFORCED.remaining(template, self._context.cluster_state.usage_by_nodepool.get(template.nodepool.name, {}))
            for template in self._templates
        ]
        names = {name for left in lefts for name in left if all(name in other for other in lefts)}
        most = {name: _USABLE_SHARE * sum(max(left[name], 0) for left in lefts) for name in names}
        total: Counter[str] = Counter()
        for count, pod in enumerate(ordered):
            for name in most:
                total[name] += pod.requests.get(name, 0)
            if any(total[name] > amount for name, amount in most.items()):
                return count
        return len(ordered)

    def _best_with_all_work(self) -> Placement:
        assert self._best is not None
        self._best.placement.work_units = max(self._best.placement.work_units, self._work_units)
        return self._best.placement

    def _order_key(self, pod: Pod) -> tuple[int, float, float, priority.PriorityKey, str]:
        """Higher priority first, then what takes the smaller share of what is scarce, then of what all request."""
        prices = self._limited.values()
        size = max(
            (sum(price * pod.requests.get(name, 0) for name, price in unit_prices.items()) for unit_prices in prices),
            default=0.0,
        )
        share = max((amount / self._requested[name] for name, amount in pod.requests.items() if amount), default=0.0)
        return -pod.priority, size, share, priority.priority_key(pod), pod.key

    def _keep_min_values(self) -> None:
        """Where no placement keeps minValues within the limits: with part of the limits withheld, at last all."""
        for share in _WITHHELD_SHARES:
            if self._best is not None:
                break
            self._try(
                [self._pods], LimitPolicy(prices={}, withheld=dict(_withheld(self._context, self._templates, share)))
            )

    def _finished(self) -> Placement:
        """The best placement, after unplaced pods were tried first; made once more with all the work allowed."""
        assert self._best is not None
        best, budget = self._best, self._context.settings.work_units // _ATTEMPT_SHARE
        if not self._violates_order(best.placement):
            placement = best_placement.retry_unplaced_first(
                self._context, self._pods, self._templates, best.placement, best.policy, budget
            )
            if placement is not best.placement:
                self._consider(placement, best.batches, best.policy)
        self._place(self._best.batches, self._best.policy, self._context.settings.work_units)
        return self._best_with_all_work()


def _has_rules(pod: Pod) -> bool:
    """Whether rules between pods may decide where it goes."""
    return bool(pod.topology_spread_constraints or pod.pod_affinity or pod.pod_anti_affinity)


def _policy(unit_prices: UnitPrices, pressure: float) -> LimitPolicy:
    """``unit_prices`` so many times as high."""
    prices = {
        pool: {name: pressure * price for name, price in of_pool.items()} for pool, of_pool in unit_prices.items()
    }
    return LimitPolicy(prices=prices)


def _unit_prices(unlimited: Placement, weigh: Callable[[float], float]) -> UnitPrices:
    """By NodePool, what a unit of each limited resource costs on the nodes planned without limits.

    ``weigh``: how much a resource counts, by how often what a limit leaves of it goes into what these nodes count.
    """
    used: Counter[str] = Counter()
    for group in unlimited.weight_groups:
        for node in unlimited.planned_nodes_of(group):
            pool_type = group.offering_index.pool_type_of[node.offering]
            for name in {name for left in group.initial_limits.by_template for name in left}:
                used[name] += pool_type.counted(name) * len(node.pods_by_node)
    total = unlimited.price()
    return {
        template.nodepool.name: {
            name: total / used[name] * weigh(used[name] / max(amount, 1)) for name, amount in left.items() if used[name]
        }
        for group in unlimited.weight_groups
        for template, left in zip(group.offering_index.templates, group.initial_limits.by_template, strict=True)
    }


def _withheld(
    context: PlanningContext, templates: Sequence[NodeClaimTemplate], share: float
) -> Iterator[tuple[str, Mapping[str, int]]]:
    for template in templates:
        pool = template.nodepool
        left = ENFORCED.remaining(template, context.cluster_state.usage_by_nodepool.get(pool.name, {}))
        yield pool.name, {name: int(max(amount, 0) * share) + (share == 1.0) for name, amount in left.items()}
