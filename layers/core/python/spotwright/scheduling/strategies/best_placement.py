"""Several attempts at placing the same pods, of which the best counts.

An attempt that packs all pods at once is quick and usually cheapest. Few pods are also placed in other ways: pods with
topology rules one by one, on the node to which they add least; the largest pods first on existing nodes; pods of
NodePools of lower weight first, so that other pods join nodes that these need anyway; and, where pods lack a host of a
pod that their affinity names, with the named pods spread over more hosts. Unplaced pods that could have had a node if
they had come first come first in another attempt.
"""

from collections.abc import Sequence
from functools import partial

from spotwright.model.kubernetes.pod import Pod
from spotwright.scheduling.capacity.weight_groups import LimitPolicy
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate
from spotwright.scheduling.inputs.pod_classes import group_pods
from spotwright.scheduling.placement.existing_node_filling import fill_existing_nodes_largest_first
from spotwright.scheduling.placement.placement import Placement
from spotwright.scheduling.placement.placement_passes import place_pods
from spotwright.scheduling.placement.planning_context import PlanningContext
from spotwright.scheduling.strategies import priority, retry_order

# Up to so many pods are placed in other ways too.
_FEW_PODS = 64
# Of many pods, the most classes that are placed pod by pod, because they found no node when all were packed at once.
_MAX_SEQUENTIAL_CLASSES = 100
# The most attempts in which unplaced pods, or pods their affinity names, come first.
_MAX_RETRIES = 3


def find_best_placement(
    context: PlanningContext,
    pods: Sequence[Pod],
    templates: Sequence[NodeClaimTemplate],
    limit_policy: LimitPolicy,
    budget: int,
) -> Placement:
    """The best placement on the nodes of these templates, all pods at once.

    ``budget``: units of work for packing, in each attempt.
    """
    placement = place_in_batches(context, [pods], templates, limit_policy, budget)
    return retry_unplaced_first(context, pods, templates, placement, limit_policy, budget)


def retry_unplaced_first(
    context: PlanningContext,
    pods: Sequence[Pod],
    templates: Sequence[NodeClaimTemplate],
    placement: Placement,
    limit_policy: LimitPolicy,
    budget: int,
) -> Placement:
    """Retry with unplaced pods (and the pods their affinity names) first, while that places more pods.

    ``budget``: units of work for packing, in each attempt.
    """
    ordered_pods, without_targets = pods, frozenset[str]()
    for _ in range(_MAX_RETRIES):
        order = retry_order.compute_retry_order(placement, ordered_pods, without_targets)
        if not order.first_pods:
            break
        first_keys = {pod.key for pod in order.first_pods}
        later_pods = [pod for pod in ordered_pods if pod.key not in first_keys]
        retry = place_in_batches(context, [order.first_pods, later_pods], templates, limit_policy, budget)
        work_units = placement.work_units + retry.work_units
        relaxed_targets = retry.unplaced_or_relaxed(order.affinity_targets.keys())
        better = not relaxed_targets and _places_more(retry, placement, ordered_pods)
        if better:
            placement, ordered_pods = retry, [*order.first_pods, *later_pods]
        placement.work_units = work_units
        # A preference we added must not be reported as one the user stated: retry without it.
        without_targets = without_targets.union(order.affinity_targets[key] for key in relaxed_targets)
        if not better and not relaxed_targets:
            break
    if ordered_pods is not pods:
        leave_last_of_equal_pods(context, pods, placement)
    return placement


def leave_last_of_equal_pods(context: PlanningContext, pods: Sequence[Pod], placement: Placement) -> None:
    """Swap equal pods so that the last in order of priority are unplaced, whatever order the retries placed them in."""
    ranks = {pod.key: priority.priority_key(pod) for pod in pods}
    unplaced, swaps = placement.unplaced_pods(), dict[str, str]()
    for pod_class in group_pods(pods, context.preference_policy):
        ordered = sorted(pod_class.pod_keys, key=lambda key: (ranks[key], key))
        last = set(ordered[len(ordered) - sum(1 for key in ordered if key in unplaced) :])
        to_place = [key for key in ordered if key in unplaced and key not in last]
        to_leave = [key for key in ordered if key in last and key not in unplaced]
        swaps |= dict(zip((*to_place, *to_leave), (*to_leave, *to_place), strict=True))
    placement.swap_pods(swaps)


def _places_more(retry: Placement, placement: Placement, pods: Sequence[Pod]) -> bool:
    """True when the retry leaves fewer pods, and none in favor of a pod of lower priority."""
    unplaced_now, unplaced_before = retry.unplaced_pods(), placement.unplaced_pods()
    lost, gained = unplaced_now - unplaced_before, unplaced_before - unplaced_now
    return len(lost) < len(gained) and not priority.violates_priority(
        [pod for pod in pods if pod.key in lost], (pod for pod in pods if pod.key in gained)
    )


def place_in_batches(
    context: PlanningContext,
    batches: Sequence[Sequence[Pod]],
    templates: Sequence[NodeClaimTemplate],
    limit_policy: LimitPolicy,
    budget: int,
    sequential_keys: frozenset[str] = frozenset(),
) -> Placement:
    """The best of several attempts that all place these batches of pods one after the other.

    ``budget``: units of work for packing, in each attempt; ``sequential_keys``: pods whose classes are placed one by
    one from the first attempt on.
    """
    pod_count = sum(map(len, batches))
    attempt = partial(Placement, context, batches, templates, limit_policy=limit_policy)
    best = attempt(sequential_keys=sequential_keys)
    complete = place_pods(best, budget, pack_together=True)
    while not complete and pod_count > _FEW_PODS and len(sequential_keys) < _MAX_SEQUENTIAL_CLASSES:
        sequential_keys = sequential_keys.union(best.unpacked_pods)
        best = attempt(sequential_keys=sequential_keys)
        complete = place_pods(best, budget, pack_together=True)
    if spread_targets := complete and best.lacks_affinity_hosts:
        spread = attempt(spread_targets=True, sequential_keys=sequential_keys)
        best = _better(best, spread, budget, pack_together=True)
    if complete and (pod_count > _FEW_PODS or not best.price()):
        return best
    if not complete or best.has_topology_rules:
        pod_by_pod = attempt(spread_targets=spread_targets)
        best = _better(best if complete else None, pod_by_pod, budget, pack_together=False)
    if pod_count <= _FEW_PODS and best.uses_existing_nodes and best.price():
        largest_first = attempt(spread_targets=spread_targets, fill=fill_existing_nodes_largest_first)
        best = _better(best, largest_first, budget, pack_together=True)
    if pod_count <= _FEW_PODS and len(batches) == 1 and len(by_pool := best.pods_by_weight_group(batches[0])) > 1:
        lighter_first = Placement(context, by_pool, templates, limit_policy=limit_policy)
        best = _better(best, lighter_first, budget, pack_together=True)
    return best


def _better(placement: Placement | None, attempt: Placement, budget: int, *, pack_together: bool) -> Placement:
    """Run the attempt; the better of the placement and the attempt, with the units of work of both."""
    complete = place_pods(attempt, budget, pack_together=pack_together)
    if placement is None:
        return attempt
    best = attempt if complete and attempt.is_better_than(placement) else placement
    best.work_units = placement.work_units + attempt.work_units
    return best
