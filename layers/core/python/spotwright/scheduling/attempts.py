"""Several attempts at placing the same pods, of which the best counts.

All pods at once is quick and usually cheapest. Few pods are also placed in other orders: those with rules one by one,
on the nodes to which they add least; the largest first onto the nodes there are; those of lighter NodePools first, so
that others join the nodes these need anyway; and, where pods lack hosts of others they must be with, these spread over
more. Where pods are left that could have had a place if they had come first, they do.
"""

from collections.abc import Sequence

from spotwright.model.pod import Pod
from spotwright.scheduling import precedence, ranking
from spotwright.scheduling.classes import group
from spotwright.scheduling.placement import Placement, World
from spotwright.scheduling.rooms import occupy_largest_first
from spotwright.scheduling.templates import Template

# The search may cost more the more there is to save: so many units, and so many for every pod.
_LEAST_UNITS = 2000
_UNITS_PER_POD = 80
# Few pods are decided so quickly that a longer search goes unnoticed: it may cost this, divided by their number.
_UNITS_OVER_PODS = 1_000_000
# Up to so many pods are placed in other orders too.
_FEW_PODS = 64
# Of many pods, so many classes may be seated one by one, because they found no node when all were packed at once,
# before all are.
_SINGLY = 100
# So often others are served first for the sake of those who were left.
_TURNS = 3


def placed(world: World, pods: Sequence[Pod], templates: Sequence[Template]) -> Placement:
    """A complete attempt with the NodePools given. Where limits bind, those who come first are served first."""
    placement = _attempt(world, [pods], templates)
    held = set(placement.held_by_limits())
    if held:
        left = placement.left()
        ahead = [pod for pod in pods if pod.key in held]
        if ranking.overtaken(ahead, (pod for pod in pods if pod.key not in left)):
            return _attempt(world, ranking.bands(pods), templates)
    return _with_others_first(world, pods, templates, placement)


def _with_others_first(
    world: World, pods: Sequence[Pod], templates: Sequence[Template], placement: Placement
) -> Placement:
    """As long as fewer pods are left when some of them, or those they follow, are served first: that."""
    turned, alone = pods, frozenset[str]()
    for _ in range(_TURNS):
        ahead = precedence.first(placement, turned, alone)
        if not ahead.pods:
            break
        keys = {pod.key for pod in ahead.pods}
        others = [pod for pod in turned if pod.key not in keys]
        other = _attempt(world, [ahead.pods, others], templates)
        units = placement.units + other.units
        unwilling = other.unwilling(ahead.leaders.keys())
        fewer = not unwilling and _leaves_fewer(other, placement, turned)
        if fewer:
            placement, turned = other, [*ahead.pods, *others]
        placement.units = units
        # Nobody is told of a wish that was never theirs: without those who could not have it, once more.
        alone = alone.union(ahead.leaders[key] for key in unwilling)
        if not fewer and not unwilling:
            break
    if turned is not pods:
        _exchange_equals(world, pods, placement)
    return placement


def _exchange_equals(world: World, pods: Sequence[Pod], placement: Placement) -> None:
    """Of equal pods those are left that come last, whoever was served first: so the same ones are left in any case."""
    ranks = {pod.key: ranking.rank(pod) for pod in pods}
    left, names = placement.left(), dict[str, str]()
    for cls in group(pods, world.taste):
        ordered = sorted(cls.keys, key=lambda key: (ranks[key], key))
        last = set(ordered[len(ordered) - sum(1 for key in ordered if key in left) :])
        waits = [key for key in ordered if key in left and key not in last]
        takes = [key for key in ordered if key in last and key not in left]
        names |= dict(zip((*waits, *takes), (*takes, *waits), strict=True))
    placement.exchange(names)


def _leaves_fewer(other: Placement, placement: Placement, pods: Sequence[Pod]) -> bool:
    """True when another attempt leaves fewer pods, and nobody instead of one who comes later."""
    now, before = other.left(), placement.left()
    return len(now) < len(before) and not ranking.overtaken(
        [pod for pod in pods if pod.key in now - before], (pod for pod in pods if pod.key in before - now)
    )


def _attempt(world: World, bands: Sequence[Sequence[Pod]], templates: Sequence[Template]) -> Placement:
    pods = sum(map(len, bands))
    budget = min(world.settings.work_units, _units(pods))
    best, singly = Placement(world, bands, templates), frozenset[str]()
    complete = best.run(budget, at_once=True)
    while not complete and pods > _FEW_PODS and len(singly) < _SINGLY:
        singly = singly.union(best.stuck)
        best = Placement(world, bands, templates, singly=singly)
        complete = best.run(budget, at_once=True)
    if wide := complete and best.lacks_hosts:
        best = _better(best, Placement(world, bands, templates, wide=True, singly=singly), budget, at_once=True)
    if complete and (pods > _FEW_PODS or not best.price()):
        return best
    if not complete or best.has_rules:
        best = _better(best if complete else None, Placement(world, bands, templates, wide=wide), budget, at_once=False)
    if pods <= _FEW_PODS and best.fills_rooms and best.price():
        largest_first = Placement(world, bands, templates, wide=wide, occupy=occupy_largest_first)
        best = _better(best, largest_first, budget, at_once=True)
    if pods <= _FEW_PODS and len(bands) == 1 and len(by_pool := best.by_tier(bands[0])) > 1:
        best = _better(best, Placement(world, by_pool, templates), budget, at_once=True)
    return best


def _better(one: Placement | None, other: Placement, budget: int, *, at_once: bool) -> Placement:
    """The better of an attempt and of another that is yet to run; if there is none yet, the other."""
    complete = other.run(budget, at_once=at_once)
    if one is None:
        return other
    best = other if complete and other.betters(one) else one
    best.units = one.units + other.units
    return best


def _units(pods: int) -> int:
    """What the search for so many pods may cost: least at a few hundred, more for few and for many."""
    return max(_LEAST_UNITS + _UNITS_PER_POD * pods, _UNITS_OVER_PODS // max(pods, 1))
