"""Several attempts at placing the same pods, of which the best counts.

All pods at once is quick and usually cheapest. Few pods are also placed in other orders: those with rules one by one,
on the nodes to which they add least; the largest first onto the nodes there are; those of lighter NodePools first, so
that others join the nodes these need anyway; and, where pods lack hosts of others they must be with, these spread over
more. Where pods are left that could have had a place if they had come first, they do.
"""

from collections.abc import Sequence

from spotwright.model.kubernetes.pod import Pod
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate
from spotwright.scheduling.inputs.pod_classes import group_pods
from spotwright.scheduling.placement.existing_node_filling import fill_existing_nodes_largest_first
from spotwright.scheduling.placement.placement import Placement
from spotwright.scheduling.placement.placement_passes import place_pods
from spotwright.scheduling.placement.planning_context import PlanningContext
from spotwright.scheduling.strategies import priority, retry_order

# Up to so many pods are placed in other orders too.
_FEW_PODS = 64
# Of many pods, so many classes may be seated one by one, because they found no node when all were packed at once,
# before all are.
_SINGLY = 100
# So often others are served first for the sake of those who were left.
_TURNS = 3


def find_best_placement(
    world: PlanningContext, pods: Sequence[Pod], templates: Sequence[NodeClaimTemplate]
) -> Placement:
    """A complete attempt with the NodePools given. Where limits bind, those who come first are served first."""
    placement = _attempt(world, [pods], templates)
    held = set(placement.pods_blocked_by_limits())
    if held:
        left = placement.unplaced_pods()
        ahead = [pod for pod in pods if pod.key in held]
        if priority.violates_priority(ahead, (pod for pod in pods if pod.key not in left)):
            return _attempt(world, priority.priority_batches(pods), templates)
    return _with_others_first(world, pods, templates, placement)


def _with_others_first(
    world: PlanningContext, pods: Sequence[Pod], templates: Sequence[NodeClaimTemplate], placement: Placement
) -> Placement:
    """As long as fewer pods are left when some of them, or those they follow, are served first: that."""
    turned, alone = pods, frozenset[str]()
    for _ in range(_TURNS):
        ahead = retry_order.compute_retry_order(placement, turned, alone)
        if not ahead.first_pods:
            break
        keys = {pod.key for pod in ahead.first_pods}
        other_pods = [pod for pod in turned if pod.key not in keys]
        other_placement = _attempt(world, [ahead.first_pods, other_pods], templates)
        units = placement.work_units + other_placement.work_units
        unwilling = other_placement.unplaced_or_relaxed(ahead.affinity_targets.keys())
        fewer = not unwilling and _leaves_fewer(other_placement, placement, turned)
        if fewer:
            placement, turned = other_placement, [*ahead.first_pods, *other_pods]
        placement.work_units = units
        # Nobody is told of a wish that was never theirs: without those who could not have it, once more.
        alone = alone.union(ahead.affinity_targets[key] for key in unwilling)
        if not fewer and not unwilling:
            break
    if turned is not pods:
        _exchange_equals(world, pods, placement)
    return placement


def _exchange_equals(world: PlanningContext, pods: Sequence[Pod], placement: Placement) -> None:
    """Of equal pods those are left that come last, whoever was served first: so the same ones are left in any case."""
    ranks = {pod.key: priority.priority_key(pod) for pod in pods}
    left, names = placement.unplaced_pods(), dict[str, str]()
    for cls in group_pods(pods, world.preference_policy):
        ordered = sorted(cls.pod_keys, key=lambda key: (ranks[key], key))
        last = set(ordered[len(ordered) - sum(1 for key in ordered if key in left) :])
        waits = [key for key in ordered if key in left and key not in last]
        takes = [key for key in ordered if key in last and key not in left]
        names |= dict(zip((*waits, *takes), (*takes, *waits), strict=True))
    placement.swap_pods(names)


def _leaves_fewer(other_placement: Placement, placement: Placement, pods: Sequence[Pod]) -> bool:
    """True when another attempt leaves fewer pods, and nobody instead of one who comes later."""
    now, before = other_placement.unplaced_pods(), placement.unplaced_pods()
    return len(now) < len(before) and not priority.violates_priority(
        [pod for pod in pods if pod.key in now - before], (pod for pod in pods if pod.key in before - now)
    )


def _attempt(
    world: PlanningContext, bands: Sequence[Sequence[Pod]], templates: Sequence[NodeClaimTemplate]
) -> Placement:
    pods = sum(map(len, bands))
    budget = world.settings.work_units
    best, singly = Placement(world, bands, templates), frozenset[str]()
    complete = place_pods(best, budget, pack_together=True)
    while not complete and pods > _FEW_PODS and len(singly) < _SINGLY:
        singly = singly.union(best.unpacked_pods)
        best = Placement(world, bands, templates, sequential_keys=singly)
        complete = place_pods(best, budget, pack_together=True)
    if wide := complete and best.lacks_affinity_hosts:
        best = _better(
            best,
            Placement(world, bands, templates, spread_targets=True, sequential_keys=singly),
            budget,
            pack_together=True,
        )
    if complete and (pods > _FEW_PODS or not best.price()):
        return best
    if not complete or best.has_topology_rules:
        best = _better(
            best if complete else None,
            Placement(world, bands, templates, spread_targets=wide),
            budget,
            pack_together=False,
        )
    if pods <= _FEW_PODS and best.uses_existing_nodes and best.price():
        largest_first = Placement(world, bands, templates, spread_targets=wide, fill=fill_existing_nodes_largest_first)
        best = _better(best, largest_first, budget, pack_together=True)
    if pods <= _FEW_PODS and len(bands) == 1 and len(by_pool := best.pods_by_weight_group(bands[0])) > 1:
        best = _better(best, Placement(world, by_pool, templates), budget, pack_together=True)
    return best


def _better(placement: Placement | None, other_placement: Placement, budget: int, *, pack_together: bool) -> Placement:
    """The better of an attempt and of another that is yet to run; if there is none yet, the other."""
    complete = place_pods(other_placement, budget, pack_together=pack_together)
    if placement is None:
        return other_placement
    best = other_placement if complete and other_placement.is_better_than(placement) else placement
    best.work_units = placement.work_units + other_placement.work_units
    return best
