"""Why the limits of a NodePool leave no node for a pod."""

from collections.abc import Mapping
from typing import NamedTuple

from spotwright.model import quantity, resources
from spotwright.scheduling.explain.reasons import Nearness, PoolOfGroup, PoolReason
from spotwright.scheduling.placement.node_options import PodNeeds


def explain_limit(needs: PodNeeds, pool: PoolOfGroup, fitting: int) -> PoolReason | None:
    """The limit that leaves no room for even the smallest node that fits; None if there is none."""
    for name, left in sorted(pool.group.limits.by_template[pool.number].items()):
        smallest = min(
            (pool_type for pool_type in pool.index.pool_types if pool_type.offerings & fitting),
            key=lambda pool_type: (
                pool_type.instance_type.capacity.get(name, 0),
                (pool_type.offerings & fitting) & -(pool_type.offerings & fitting),
            ),
        ).instance_type
        size = 1 if name == resources.NODES else smallest.capacity.get(name, 0)
        if size > left:
            details = {
                "resource": name,
                "limit": quantity.text(name, pool.template.nodepool.limits[name]),
                "left": quantity.text(name, max(left, 0)),
                "smallestInstanceType": smallest.name,
                "smallestCounts": quantity.text(name, size),
            }
            need = len(needs.pending_class.pod_keys) * needs.pending_class.pod_class.requests.get(name, 0)
            amounts = _amounts(name, pool, left, size, need)
            text = f"{_describe_limit(name, pool, amounts, smallest.name)}{_describe_need(needs, amounts)}"
            return PoolReason("LimitReached", text, Nearness.SOME_FIT, name, details)
    return None


class _Amounts(NamedTuple):
    """The amounts of a sentence about a limit: the limit in the unit that fits it, the others in one unit.

    ``left``: "" where nothing is; ``counted``: by a node that is too large for what is left; ``needed``: by pods, ""
    where they do not ask for what is limited.
    """

    limit: str
    left: str
    counted: str
    needed: str


def _amounts(name: str, pool: PoolOfGroup, left: int, counted: int, needed: int = 0) -> _Amounts:
    sizes = (max(left, 0), counted, needed)
    others = (text if size else "" for text, size in zip(quantity.texts(name, sizes), sizes, strict=True))
    # Beside 0, a limit of a few bytes is not rounded to 0.
    limit, _ = quantity.texts(name, (pool.template.nodepool.limits[name], 0))
    return _Amounts(limit, *others)


def _describe_limit(name: str, pool: PoolOfGroup, amounts: _Amounts, smallest: str) -> str:
    """What uses a limit, and what is too large for the rest of it. ``smallest``: the type that counts least."""
    used, rest = _describe_rest(name, pool, amounts)
    if used and not amounts.left:
        return f"limit {name} {amounts.limit} is used up by {used}"
    return f"{rest}: the smallest instance type that fits ({smallest}) counts {amounts.counted}"


def _describe_rest(name: str, pool: PoolOfGroup, amounts: _Amounts) -> tuple[str, str]:
    """What uses a limit, "" where nothing does; and what is left of it."""
    before = pool.group.initial_limits.by_template[pool.number][name]
    users = [
        "nodes that exist or are in flight" if before < pool.template.nodepool.limits[name] else "",
        f"{pool.new_nodes} new node{'' if pool.new_nodes == 1 else 's'} of this plan" if pool.new_nodes else "",
    ]
    used = " and ".join(filter(None, users))
    limit = f"limit {name} {amounts.limit}"
    if not used:
        return used, f"{limit} is too small"
    return used, f"of {limit}, {used} leave{'s' if pool.new_nodes == 1 and not users[0] else ''} {amounts.left or 0}"


def _describe_need(needs: PodNeeds, amounts: _Amounts) -> str:
    """``; 14 pods need 14 more``; "" where pods do not ask for what is limited."""
    pods = len(needs.pending_class.pod_keys)
    return f"; {pods} pod{'s need' if pods > 1 else ' needs'} {amounts.needed} more" if amounts.needed else ""


def explain_min_values_within_limits(pool: PoolOfGroup, fitting: int) -> PoolReason | None:
    """The minValues that the fitting types within what the limits leave do not keep; None if they keep all.

    A node counts the largest of the types that it lists, so all types that minValues need must be within the limits.
    """
    min_values, by_label = pool.index.min_values[pool.number], pool.index.by_label
    lefts = {name: left for name, left in pool.group.limits.by_template[pool.number].items() if name != resources.NODES}
    within = _within(pool, fitting, lefts)
    for key, least in min_values.items():
        kept = by_label.count_values(key, within, at_most=least)
        if kept < least:
            smallest = {name: _smallest_listing(pool, fitting, name) for name in lefts}
            name = max(lefts, key=lambda name: (smallest[name] / max(lefts[name], 1), name))
            details = {
                "key": key,
                "minValues": str(least),
                "resource": name,
                "limit": quantity.text(name, pool.template.nodepool.limits[name]),
                "left": quantity.text(name, max(lefts[name], 0)),
                "smallestCounts": quantity.text(name, smallest[name]),
            }
            asks = f"minValues asks for {least} different values of {key}"
            if smallest[name] <= lefts[name]:
                text = f"its limits together are too small: {asks}, and the instance types within them have {kept}"
            else:
                text = _describe_min_values(name, pool, asks, _amounts(name, pool, lefts[name], smallest[name]))
            return PoolReason("MinValuesExceedLimit", text, Nearness.SOME_FIT, name, details)
    return None


def _within(pool: PoolOfGroup, offerings: int, most: Mapping[str, int]) -> int:
    """The offerings of the NodePool whose types count no more than this."""
    return offerings & sum(
        pool_type.offerings
        for pool_type in pool.index.pool_types
        if pool_type.template_index == pool.number
        and all(pool_type.counted(name) <= amount for name, amount in most.items())
    )


def _smallest_listing(pool: PoolOfGroup, fitting: int, name: str) -> int:
    """What the largest type counts where a NodeClaim lists the smallest types that keep minValues."""
    sizes = {pool_type.counted(name) for pool_type in pool.index.pool_types if pool_type.offerings & fitting}
    return next(size for size in sorted(sizes) if pool.index.keep_min_values(_within(pool, fitting, {name: size})))


def _describe_min_values(name: str, pool: PoolOfGroup, asks: str, amounts: _Amounts) -> str:
    """``asks``: what minValues asks for, as a sentence."""
    _, rest = _describe_rest(name, pool, amounts)
    return (
        f"{rest}: {asks}; the smallest instance types that fit and have so many count up to {amounts.counted}, and a"
        " node counts the largest of its types"
    )
