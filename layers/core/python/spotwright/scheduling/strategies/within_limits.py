"""The best placement within the limits of NodePools: the fewest pods left, higher priority first; then the least price.

Where the placement that ignores limits keeps them, it is the answer: limits that bind nobody change nothing. Otherwise
pods are placed under several prices for what counts against a limit (``offerings/limit_prices.py``): without a price
the cheapest nodes may use a limit up, with a high price the nodes hold as many pods per core that counts as they can.
Where pods are left all the same, what is reserved is not used first, and smaller pods also come before larger ones,
since more of them fit.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from typing import Final

import msgspec

from spotwright.model import resources
from spotwright.model.ec2.instance_type import drop_reserved_offerings
from spotwright.model.kubernetes.pod import Pod
from spotwright.scheduling.capacity.limit_shares import share_limits
from spotwright.scheduling.capacity.planned_nodes import PlannedNode
from spotwright.scheduling.capacity.weight_groups import ENFORCED, IGNORED, LimitPolicy
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate
from spotwright.scheduling.offerings.bit_sets import iterate_bits
from spotwright.scheduling.placement.placement import Placement
from spotwright.scheduling.placement.planning_context import PlanningContext
from spotwright.scheduling.strategies import best_placement, priority
from spotwright.scheduling.strategies.fewest_left import count_fewest_left

# What counts against a limit costs so many times what the same amount costs on the nodes planned without limits.
_PRESSURES: Final = (0.0, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0, 10_000.0)
_FIRST_PRESSURE: Final = 3
# Of more pods than these, smaller ones come first so many times at most.
_MANY_PODS: Final = 500
_MAX_ORDERS: Final = 4
# An attempt takes at most this part of the work that a plan may take; the best is made once more with what is left.
_ATTEMPT_SHARE: Final = 100
# Where minValues cannot be kept for some pods, this much of a NodePool's limits is withheld, until they are.
_WITHHELD_SHARES: Final = (0.25, 0.5, 0.75, 1.0)

type UnitPrices = dict[str, dict[str, float]]
"""NodePool → resource → picodollars per hour for a unit of it."""


def find_best_placement(
    context: PlanningContext, pods: Sequence[Pod], templates: Sequence[NodeClaimTemplate]
) -> Placement:
    """The best placement on the nodes of these templates.

    Where what the pods request in sum says that limits leave some of them, what all would cost without limits is only
    asked for the price of what is scarce, with little work.
    """
    work_units = context.settings.work_units
    if not any(template.nodepool.limits for template in templates):
        return best_placement.find_best_placement(context, pods, templates, ENFORCED, work_units)
    if _requests_exceed_limits(context, pods, templates):
        unlimited = best_placement.find_best_placement(context, pods, templates, IGNORED, work_units // _ATTEMPT_SHARE)
        limit_search = _LimitSearch(context, pods, templates, unlimited)
        if limit_search.leaves_pods:
            return limit_search.find()
    unlimited = best_placement.find_best_placement(context, pods, templates, IGNORED, work_units)
    unlimited.count_limits()
    if _keeps_limits(unlimited):
        return unlimited
    return _LimitSearch(context, pods, templates, unlimited).find()


def _requests_exceed_limits(
    context: PlanningContext, pods: Sequence[Pod], templates: Sequence[NodeClaimTemplate]
) -> bool:
    """Whether limits leave no room for the sum of what those pods request for which there is a type."""
    placement = Placement(context, [pods], templates)
    placeable = {
        key
        for pending_class in placement.pending
        if pending_class.can_be_placed and placement.has_offerings(pending_class)
        for key in pending_class.pod_keys
    }
    placeable_pods = [pod for pod in pods if pod.key in placeable]
    return count_fewest_left(placement.weight_groups, context.cluster_state.nodes, placeable_pods) > 0


def _keeps_limits(placement: Placement) -> bool:
    """Whether all planned nodes can be launched within the limits, with as many types as minValues ask for."""
    return all(share_limits(group, placement.planned_nodes_of(group)) is not None for group in placement.weight_groups)


class _Candidate:
    """A placement within limits: the batches of pods that were placed one after the other, and under which policy.

    ``budget``: units of work that it might take.
    """

    def __init__(
        self,
        placement: Placement,
        batches: Sequence[Sequence[Pod]],
        policy: LimitPolicy,
        rank: tuple[object, ...],
        budget: int,
    ) -> None:
        self.placement = placement
        self.batches = batches
        self.policy = policy
        self.rank = rank
        self.budget = budget
        self.work_units = placement.work_units


class _LimitSearch:
    """Placements of the same pods under several limit prices and in several orders. ``unlimited``: without limits."""

    def __init__(
        self,
        context: PlanningContext,
        pods: Sequence[Pod],
        templates: Sequence[NodeClaimTemplate],
        unlimited: Placement,
    ) -> None:
        unlimited.count_limits()
        self._context = context
        self._pods = pods
        self._templates = templates
        self._priorities = sorted({pod.priority for pod in pods}, reverse=True)
        self._requested = resources.add(*(pod.requests for pod in pods))
        self._unlimited_price = unlimited.price()
        self._unplaceable = unlimited.unplaced_pods()
        self._fewest_left = count_fewest_left(
            unlimited.weight_groups,
            context.cluster_state.nodes,
            [pod for pod in pods if pod.key not in self._unplaceable],
        )
        self._scarce = _unit_prices(unlimited, lambda times: float(times > 1))
        self._limited = _unit_prices(unlimited, lambda times: min(times, 1.0))
        self._policies: dict[float, LimitPolicy] = {}
        # The pods without a place of the attempts that were made; and their policies, so that ids stay their own.
        self._attempts: dict[object, tuple[LimitPolicy, Set[str]]] = {}
        # What an attempt with all pods at once had to place one by one: under another price the next one does too.
        self._sequential_keys = frozenset[str]()
        self._has_reservations = any(group.offering_index.reserved_offerings for group in unlimited.weight_groups)
        self._work_units = unlimited.work_units
        self._most_work_units = max(context.settings.work_units, 2 * self._work_units)
        self._best: _Candidate | None = None

    def find(self) -> Placement:
        """The best placement; where it leaves pods, with what is reserved or as if nothing were."""
        placement = self._search()
        if self._is_settled or not self._has_reservations:
            return placement
        other = self._without_reservations()
        other_placement = other.find()
        best = other_placement if other.best_rank < self.best_rank else placement
        best.work_units = placement.work_units + other_placement.work_units
        return best

    def _without_reservations(self) -> "_LimitSearch":
        templates = [
            template.with_instance_types(drop_reserved_offerings(template.instance_types))
            for template in self._templates
        ]
        budget = self._context.settings.work_units // _ATTEMPT_SHARE
        unlimited = best_placement.find_best_placement(self._context, self._pods, templates, IGNORED, budget)
        return _LimitSearch(self._context, self._pods, templates, unlimited)

    def _search(self) -> Placement:
        self._try_pressures()
        if not self._is_settled and self._has_time and self._limited != self._scarce:
            self._try([self._pods], _policy(self._limited, _PRESSURES[-1]))
        self._keep_min_values()
        if not self._is_settled and self._has_reservations:
            self._weigh_reservations()
        if not self._is_settled and any(map(_has_preferences, self._pods)):
            self._give_up_preferences()
        if not self._is_settled:
            self._retry_unplaced_first()
        if not self._is_settled:
            self._try_orders()
        return self._finished()

    @property
    def best_rank(self) -> tuple[object, ...]:
        assert self._best is not None
        return self._best.rank

    @property
    def leaves_pods(self) -> bool:
        """Whether limits leave pods without a place whichever nodes there are."""
        return self._fewest_left > 0

    @property
    def _is_settled(self) -> bool:
        """Whether no placement leaves fewer pods, or leaves pods of a lower priority instead of these."""
        if self._best is None:
            return False
        left = self._best.placement.unplaced_pods() - self._unplaceable
        return len(left) <= self._fewest_left and (
            {pod.priority for pod in self._pods if pod.key in left} <= set(self._priorities[-1:])
            and not self._violates_order(self._best.placement)
        )

    @property
    def _best_count(self) -> int:
        """How many pods the best placement so far places."""
        return len(self._pods) - len(self._best.placement.unplaced_pods()) if self._best else 0

    @property
    def _is_cheapest(self) -> bool:
        """Whether some placement is settled at the price of the nodes without limits."""
        return self._best is not None and self._is_settled and self._best.placement.price() <= self._unlimited_price

    @property
    def _has_time(self) -> bool:
        return self._work_units < self._most_work_units

    def _policy(self, pressure: float) -> LimitPolicy:
        """Prices for what is scarce, so many times as high."""
        if pressure not in self._policies:
            self._policies[pressure] = _policy(self._scarce, pressure)
        return self._policies[pressure]

    def _try_pressures(self) -> None:
        """Find the lowest price for limits with which all pods have a place. Where the highest is too low, one between
        is tried: it may leave fewer pods.
        """
        too_low, enough = -1, _FIRST_PRESSURE
        if not self._is_enough(_FIRST_PRESSURE):
            too_low, enough = _FIRST_PRESSURE, len(_PRESSURES) - 1
            if not self._is_settled and not self._is_enough(enough):
                too_low = enough - 1
                if not self._is_settled and self._has_time:
                    self._is_enough((_FIRST_PRESSURE + enough) // 2)
        while enough - too_low > 1 and self._has_time and not self._is_cheapest:
            tried = (too_low + enough) // 2
            if self._is_enough(tried):
                enough = tried
            else:
                too_low = tried

    def _is_enough(self, pressure: int) -> bool:
        """Whether all pods have a place with the price for limits of this place in the list."""
        return self._try([self._pods], self._policy(_PRESSURES[pressure])) <= self._unplaceable

    def _try(self, batches: Sequence[Sequence[Pod]], policy: LimitPolicy) -> Set[str]:
        """Place the batches with little work; the placement counts if it keeps the limits and is better than before.

        The pods without a place, by key; all pods where the placement does not keep the limits.
        """
        return self._place(batches, policy, self._context.settings.work_units // _ATTEMPT_SHARE)

    def _place(self, batches: Sequence[Sequence[Pod]], policy: LimitPolicy, budget: int) -> Set[str]:
        is_whole = len(batches) == 1
        keys = self._sequential_keys if is_whole else frozenset[str]()
        # The order in which the pods of a batch are listed means nothing.
        attempt = (tuple([frozenset([pod.key for pod in batch]) for batch in batches]), id(policy), budget, keys)
        if attempt in self._attempts:
            return self._attempts[attempt][1]
        placement = best_placement.place_in_batches(self._context, batches, self._templates, policy, budget, keys)
        if is_whole:
            self._sequential_keys = frozenset(placement.sequential_keys)
        self._work_units += placement.work_units
        keeps_limits = self._consider(placement, batches, policy, budget)
        unplaced = placement.unplaced_pods() if keeps_limits else {pod.key for pod in self._pods}
        self._attempts[attempt] = policy, unplaced
        return unplaced

    def _weigh_reservations(self) -> None:
        """What is reserved may use up a limit for few pods: then it is left where other nodes hold more of them."""
        assert self._best is not None
        for policy in (self._best.policy, self._policy(_PRESSURES[-1])):
            if not self._is_settled and self._has_time:
                self._try([self._pods], msgspec.structs.replace(policy, reserved_first=False))

    def _give_up_preferences(self) -> None:
        """Without preferences, such as zones to spread over, pods need fewer nodes."""
        assert self._best is not None
        for policy in (self._best.policy, self._policy(_PRESSURES[-1])):
            if not self._is_settled and self._has_time:
                self._try([self._pods], msgspec.structs.replace(policy, respects_preferences=False))

    def _consider(
        self, placement: Placement, batches: Sequence[Sequence[Pod]], policy: LimitPolicy, budget: int
    ) -> bool:
        """Whether the placement keeps the limits: then it is the best so far, if it is better than those before."""
        placement.count_limits()
        keeps_limits = _keeps_limits(placement)
        if keeps_limits:
            placement.plan_cheaper_types()
            best_placement.leave_last_of_equal_pods(self._context, self._pods, placement)
            candidate = _Candidate(placement, batches, policy, self._rank(placement, policy), budget)
            if self._best is None or candidate.rank < self._best.rank:
                self._best = candidate
        return keeps_limits

    def _violates_order(self, placement: Placement) -> bool:
        blocked, unplaced = set(placement.pods_blocked_by_limits()), placement.unplaced_pods()
        return bool(blocked) and priority.violates_priority(
            [pod for pod in self._pods if pod.key in blocked], (pod for pod in self._pods if pod.key not in unplaced)
        )

    def _rank(self, placement: Placement, policy: LimitPolicy) -> tuple[object, ...]:
        """The smaller is better: pods left of each priority, younger pods before older ones, preferences, price."""
        unplaced = placement.unplaced_pods()
        left = Counter(pod.priority for pod in self._pods if pod.key in unplaced)
        return (
            tuple([left[priority] for priority in self._priorities]),
            self._violates_order(placement),
            not policy.respects_preferences,
            placement.price(),
        )

    def _try_orders(self) -> None:
        """Pods without rules first; smaller pods first, as many as find a place together; and all in order of priority
        and age.
        """
        assert self._best is not None
        policy = self._best.policy
        ruled = [pod for pod in self._pods if _has_rules(pod)]
        if 0 < len(ruled) < len(self._pods) and self._has_time:
            # Pods placed one by one get a node of their size, which may be the last that a limit allows.
            self._try([[pod for pod in self._pods if not _has_rules(pod)], ruled], policy)
        for ordered in self._smaller_first():
            self._try_smaller_first(ordered, policy)
        if self._violates_order(self._best.placement):
            self._try(priority.priority_batches(self._pods), policy)

    def _try_smaller_first(self, ordered: Sequence[Pod], policy: LimitPolicy) -> None:
        """Place the first of the pods in this order before all others: as many as find a place together; of many pods,
        as many as the limits could have room for, then fewer of those that no placement had room for so far.
        """
        assert self._best is not None
        if len(ordered) > _MANY_PODS:
            self._try_most_first(ordered, policy)
        else:
            self._find_most_first(ordered, policy)
        batches = self._best.batches
        for pressure in _PRESSURES[-1:-4:-2] if len(batches) > 1 else ():
            if self._has_time and not self._is_settled:
                self._try(batches, self._policy(pressure))

    def _find_most_first(self, ordered: Sequence[Pod], policy: LimitPolicy) -> None:
        """Find how many of the first pods find a place together, by bisection."""
        placed, too_many = 0, len(ordered) - self._fewest_left + 1
        while too_many - placed > 1 and self._has_time and not self._is_settled:
            count = (placed + too_many) // 2
            if self._places_first(ordered, count, policy):
                placed = count
            else:
                too_many = count

    def _try_most_first(self, ordered: Sequence[Pod], policy: LimitPolicy) -> None:
        count = len(ordered) - self._fewest_left
        for _ in range(_MAX_ORDERS):
            if count <= self._best_count or not self._has_time or self._is_settled:
                break
            self._try([ordered[:count], ordered[count:]], policy)
            count = (self._best_count + count) // 2

    def _places_first(self, ordered: Sequence[Pod], count: int, policy: LimitPolicy) -> bool:
        """Whether so many of the first pods all have a place where they come before all others."""
        unplaced = self._try([ordered[:count], ordered[count:]], policy) - self._unplaceable
        return not any(pod.key in unplaced for pod in ordered[:count])

    def _best_with_all_work(self) -> Placement:
        assert self._best is not None
        self._best.placement.work_units = max(self._best.placement.work_units, self._work_units)
        return self._best.placement

    def _smaller_first(self) -> Iterator[list[Pod]]:
        """Orders of the pods in which smaller ones of a priority come first: by what is scarce in any NodePool, then in
        each, since what is small for one with another limit may be large.
        """
        known = list[list[str]]()
        for prices in ([*self._limited.values()], *([of_pool] for of_pool in self._limited.values())):
            key_of = {pod.key: self._order_key(pod, prices) for pod in self._pods}
            ordered = sorted(self._pods, key=lambda pod: key_of[pod.key])
            keys = [pod.key for pod in ordered]
            if len({key[:3] for key in key_of.values()}) > 1 and keys not in known:
                known.append(keys)
                yield ordered

    def _order_key(
        self, pod: Pod, prices: Sequence[Mapping[str, float]]
    ) -> tuple[int, float, float, priority.PriorityKey, str]:
        """Higher priority first, then what takes the smaller share of what is scarce, then of what all request.

        ``prices``: what a unit of each limited resource costs, by NodePool.
        """
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

    def _retry_unplaced_first(self) -> None:
        """Place the pods first that the best placement leaves."""
        assert self._best is not None
        best, budget = self._best, self._context.settings.work_units // _ATTEMPT_SHARE
        if not self._violates_order(best.placement):
            placement = best_placement.retry_unplaced_first(
                self._context, self._pods, self._templates, best.placement, best.policy, budget
            )
            self._work_units += placement.work_units - best.work_units
            if placement is not best.placement:
                self._consider(placement, best.batches, best.policy, budget)

    def _finished(self) -> Placement:
        """The best placement; made once more with the work that is left, where more work might make it cheaper."""
        assert self._best is not None
        budget = self._most_work_units - self._work_units
        if self._best.work_units >= self._best.budget < budget:
            self._place(self._best.batches, self._best.policy, budget)
        return self._best_with_all_work()


def _has_rules(pod: Pod) -> bool:
    """Whether rules between pods may decide where it goes."""
    return bool(pod.topology_spread_constraints or pod.pod_affinity or pod.pod_anti_affinity)


def _has_preferences(pod: Pod) -> bool:
    return bool(
        pod.preferred_node_affinity
        or pod.preferred_pod_affinity
        or pod.preferred_pod_anti_affinity
        or any(not constraint.do_not_schedule for constraint in pod.topology_spread_constraints)
    )


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
    limited = {name for group in unlimited.weight_groups for left in group.initial_limits.by_template for name in left}
    for node in unlimited.planned_nodes:
        pool_type = node.weight_group.offering_index.pool_type_of[node.offering]
        for name in limited:
            used[name] += pool_type.counted(name) * len(node.pods_by_node)
    total = unlimited.price() + sum(map(_reserved_discount, unlimited.planned_nodes))
    return {
        template.nodepool.name: {
            name: total / used[name] * weigh(used[name] / max(amount, 1)) for name, amount in left.items() if used[name]
        }
        for group in unlimited.weight_groups
        for template, left in zip(group.offering_index.templates, group.initial_limits.by_template, strict=True)
    }


def _reserved_discount(node: PlannedNode) -> int:
    """What the nodes that count on a reservation would cost more if they were bought."""
    index, offering = node.weight_group.offering_index, node.offering
    bought = index.pool_type_of[offering].offerings & ~index.reserved_offerings
    if not index.reservation_ids[offering] or not bought:
        return 0
    cheapest = next(iterate_bits(bought))
    return (index.prices[cheapest] - index.prices[offering]) * len(node.pods_by_node)


def _withheld(
    context: PlanningContext, templates: Sequence[NodeClaimTemplate], share: float
) -> Iterator[tuple[str, Mapping[str, int]]]:
    for template in templates:
        pool = template.nodepool
        left = ENFORCED.remaining(template, context.cluster_state.usage_by_nodepool.get(pool.name, {}))
        yield pool.name, {name: int(max(amount, 0) * share) + (share == 1.0) for name, amount in left.items()}
