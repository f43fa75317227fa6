"""The best placement within the limits of NodePools: the fewest pods left, higher priority first; then the least price.

Where the placement that ignores limits keeps them, it is the answer: limits that bind nobody change nothing. Otherwise
pods are placed under several prices for what counts against a limit (``offerings/limit_prices.py``): without a price
the cheapest nodes may use a limit up, with a high price the nodes hold as many pods per core that counts as they can.
Where pods are left all the same, smaller pods also come before larger ones, since more of them fit.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from spotwright.model.kubernetes.pod import Pod
from spotwright.scheduling.capacity.limit_shares import share_limits
from spotwright.scheduling.capacity.weight_groups import ENFORCED, IGNORED, LimitPolicy
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate
from spotwright.scheduling.placement.placement import Placement
from spotwright.scheduling.placement.planning_context import PlanningContext
from spotwright.scheduling.strategies import best_placement, priority

# What counts against a limit costs so many times what the same amount costs on the nodes planned without limits.
_PRESSURES: Final = (1.0, 10.0, 0.0, 100.0, 0.1, 3.0, 0.3)
# In how many steps the number of pods that come first, smaller before larger, is found.
_BISECTIONS: Final = 6
# Where minValues cannot be kept for some pods, this much of a NodePool's limits is withheld, until they are.
_WITHHELD_SHARES: Final = (0.25, 0.5, 0.75, 1.0)


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
    """A placement within limits, with the policy it was made under."""

    def __init__(self, placement: Placement, policy: LimitPolicy, rank: tuple[object, ...]) -> None:
        self.placement = placement
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
        self._unplaceable = unlimited.unplaced_pods()
        self._unit_prices = _unit_prices(unlimited)
        self._work_units = unlimited.work_units
        self._best: _Candidate | None = None

    def find(self) -> Placement:
        for pressure in _PRESSURES:
            self._try([self._pods], self._policy(pressure))
            if self._work_units > 2 * self._context.settings.work_units and pressure != _PRESSURES[0]:
                break
        self._keep_min_values()
        if self._best is not None and self._left(self._best.placement):
            self._try_orders(self._best.policy)
        return self._finished()

    def _policy(self, pressure: float) -> LimitPolicy:
        if not pressure:
            return ENFORCED
        prices = {
            pool: {name: pressure * price for name, price in unit_prices.items()}
            for pool, unit_prices in self._unit_prices.items()
        }
        return LimitPolicy(prices=prices)

    def _try(self, batches: Sequence[Sequence[Pod]], policy: LimitPolicy) -> Placement:
        """Place the batches; the placement counts if it keeps the limits and is better than all before."""
        placement = best_placement.place_in_batches(self._context, batches, self._templates, policy)
        self._work_units += placement.work_units
        self._consider(placement, policy)
        return placement

    def _consider(self, placement: Placement, policy: LimitPolicy) -> None:
        placement.count_limits()
        if _keeps_limits(placement):
            best_placement.leave_last_of_equal_pods(self._context, self._pods, placement)
            candidate = _Candidate(placement, policy, self._rank(placement))
            if self._best is None or candidate.rank < self._best.rank:
                self._best = candidate

    def _left(self, placement: Placement) -> list[Pod]:
        """The pods without a place that would have one without limits."""
        unplaced = placement.unplaced_pods() - self._unplaceable
        return [pod for pod in self._pods if pod.key in unplaced]

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

    def _try_orders(self, policy: LimitPolicy) -> None:
        """Smaller pods first, as many as find a place together; and all in order of priority and age."""
        ordered = sorted(self._pods, key=self._order_key)
        first, last = 0, len(ordered)
        for _ in range(_BISECTIONS if len({self._order_key(pod)[:2] for pod in ordered}) > 1 else 0):
            if last - first < 2:
                break
            count = (first + last) // 2
            placement = self._try([ordered[:count], ordered[count:]], policy)
            unplaced = placement.unplaced_pods() - self._unplaceable
            if any(pod.key in unplaced for pod in ordered[:count]):
                last = count
            else:
                first = count
        if self._best is not None and self._violates_order(self._best.placement):
            self._try(priority.priority_batches(self._pods), policy)

    def _order_key(self, pod: Pod) -> tuple[int, float, priority.PriorityKey, str]:
        """Higher priority first, then what takes the smaller share of what is scarce."""
        prices = self._unit_prices.values()
        size = max(
            (sum(price * pod.requests.get(name, 0) for name, price in unit_prices.items()) for unit_prices in prices),
            default=0.0,
        )
        return -pod.priority, size, priority.priority_key(pod), pod.key

    def _keep_min_values(self) -> None:
        """Where no placement keeps minValues within the limits: with part of the limits withheld, at last all."""
        for share in _WITHHELD_SHARES:
            if self._best is not None:
                break
            self._try([self._pods], LimitPolicy(withheld=dict(_withheld(self._context, self._templates, share))))

    def _finished(self) -> Placement:
        """The best placement, after unplaced pods were tried first."""
        best = self._best
        assert best is not None
        placement = best.placement
        if not self._violates_order(placement):
            placement = best_placement.retry_unplaced_first(
                self._context, self._pods, self._templates, placement, best.policy
            )
            placement.count_limits()
            if not _keeps_limits(placement):
                placement = best.placement
        placement.work_units = max(placement.work_units, self._work_units)
        return placement


def _unit_prices(unlimited: Placement) -> dict[str, dict[str, float]]:
    """By NodePool, what a unit of each limited resource costs on the nodes planned without limits.

    A resource counts in full where these nodes take more of it than a limit leaves, and little where they take little.
    """
    used: Counter[str] = Counter()
    for group in unlimited.weight_groups:
        for node in unlimited.planned_nodes_of(group):
            pool_type = group.offering_index.pool_type_of[node.offering]
            for name in {name for left in group.initial_limits.by_template for name in left}:
                used[name] += pool_type.counted(name) * len(node.pods_by_node)
    total = unlimited.price()
    prices: dict[str, dict[str, float]] = {}
    for group in unlimited.weight_groups:
        for template, left in zip(group.offering_index.templates, group.initial_limits.by_template, strict=True):
            prices[template.nodepool.name] = {
                name: total / used[name] * min(used[name] / max(amount, 1), 1) ** 4
                for name, amount in left.items()
                if used[name]
            }
    return prices


def _withheld(
    context: PlanningContext, templates: Sequence[NodeClaimTemplate], share: float
) -> Iterator[tuple[str, Mapping[str, int]]]:
    for template in templates:
        pool = template.nodepool
        left = ENFORCED.remaining(template, context.cluster_state.usage_by_nodepool.get(pool.name, {}))
        yield pool.name, {name: int(max(amount, 0) * share) + (share == 1.0) for name, amount in left.items()}
