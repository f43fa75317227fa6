"""The order in which nodes are tried: by what they cost beyond the worth of their room, for each disruption.

What room is worth is found on the problem in which nodes and pods can be divided: ``max Σ p·d - Σ c·x`` where
``Σ a·d ≤ free + Σ A·x``, ``Σ e·d ≤ E``, ``0 ≤ d ≤ 1`` and ``x ≥ 0``. Part ``d`` of a node of price ``p``, room ``a``
and ``e`` evictions goes; ``x`` nodes of a type of price ``c`` and room ``A`` come. Its dual has a price for each
resource, μ, and for an eviction, ν. It is descended along one of them at a time, and along all prices of resources
together: each such step is exact.

In the dual, a node goes if ``p - μ·a - ν·e`` is above zero; and no type has more room than it costs: ``μ·A ≤ c``.
"""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from operator import itemgetter, mul
from typing import Final

import msgspec

from spotwright.disruption.candidates import Candidate
from spotwright.model import resources
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.inputs.cluster_state import build_cluster_state
from spotwright.scheduling.inputs.daemonset_pods import build_daemonset_pods
from spotwright.scheduling.inputs.nodepools import build_templates
from spotwright.scheduling.packing.fractional_lp import compute_shadow_prices

RESOURCES: Final = (resources.CPU, resources.MEMORY, resources.PODS)
ROUNDS: Final = 12
# Pods do not fill nodes to the last byte: room is worth so much more than if they did.
FILLED: Final = 0.97
# What is free on a node is counted in pods so much smaller than the average: there are some of these for most gaps.
SMALL_POD: Final = Fraction(1, 4)


class Removable(msgspec.Struct, frozen=True):
    """A node: its price, its room for pods by resource of ``RESOURCES``, and what evicting its pods counts as."""

    price: float
    room: tuple[int, ...]
    evictions: float


class Shape(msgspec.Struct, frozen=True):
    """A type that may be bought: its price, and its room for pods."""

    price: float
    room: tuple[int, ...]


class Worth(msgspec.Struct, frozen=True):
    """What a unit of each resource is worth, and an eviction."""

    resources: tuple[float, ...]
    eviction: float

    def surplus(self, node: Removable) -> float:
        """What the node costs beyond the worth of its room."""
        return node.price - _product(self.resources, node.room)


def orders_by_surplus(
    candidates: Sequence[Candidate],
    snapshot: Snapshot,
    catalog: Catalog,
    *,
    eviction_price: float,
    most_evictions: float,
) -> list[list[Candidate]]:
    """The candidates, the most surplus for a disruption first: the order for nodes whose free room is in small pieces,
    and the order for large ones.

    ``snapshot``: with pods where they are planned; ``catalog``: with overlays. ``eviction_price``: what an eviction of
    cost 1 counts as, in picodollars per hour.
    """
    free, shapes = find_free_room(snapshot, catalog), list(_shapes(snapshot, catalog, FILLED))

    def order(amounts: Mapping[str, Sequence[int]]) -> list[Candidate]:
        nodes, spare = _divide(candidates, amounts)
        worth = find_worth(nodes, spare, shapes, eviction_price=eviction_price, most=most_evictions)
        ranked = [
            (-worth.surplus(node) / (1 + node.evictions), candidate.name, candidate)
            for candidate, node in zip(candidates, nodes, strict=True)
        ]
        return [candidate for _, _, candidate in sorted(ranked, key=itemgetter(0, 1))]

    return [order(_in_whole_pods(free, candidates)), order(free)]


def build_problem(
    candidates: Sequence[Candidate],
    snapshot: Snapshot,
    catalog: Catalog,
    *,
    filled: float = FILLED,
    in_whole_pods: bool = True,
) -> tuple[list[Removable], list[int], list[Shape]]:
    """The candidates as nodes that can be divided, what is free in the cluster in all, and what may be bought.

    ``filled``: the share of a new node's room that pods fill. ``in_whole_pods``: free is only what small pods fit into,
    on each node by itself.
    """
    free = find_free_room(snapshot, catalog)
    nodes, spare = _divide(candidates, _in_whole_pods(free, candidates) if in_whole_pods else free)
    return nodes, spare, list(_shapes(snapshot, catalog, filled))


def find_free_room(snapshot: Snapshot, catalog: Catalog) -> dict[str, list[int]]:
    """What is free on each node, by name."""
    state = build_cluster_state(snapshot, catalog, build_daemonset_pods(snapshot))
    return {node.name: [max(0, node.free_capacity.get(name, 0)) for name in RESOURCES] for node in state.nodes}


def _in_whole_pods(free: Mapping[str, Sequence[int]], candidates: Iterable[Candidate]) -> dict[str, list[int]]:
    small_pod = _small_pod(candidates)
    return {name: _whole_pods(amounts, small_pod) for name, amounts in free.items()}


def _divide(candidates: Iterable[Candidate], free: Mapping[str, Sequence[int]]) -> tuple[list[Removable], list[int]]:
    """The candidates as nodes that can be divided, and what is free in all."""
    nothing = [0] * len(RESOURCES)
    nodes = [_removable(candidate, free.get(candidate.node.name, nothing)) for candidate in candidates]
    return nodes, [sum(amounts) for amounts in zip(*free.values(), strict=True)] or nothing


def _small_pod(candidates: Iterable[Candidate]) -> list[Fraction]:
    """A part of what a pod requests on average, by resource of ``RESOURCES``; more than nothing of each."""
    pods = [pod for candidate in candidates for pod in candidate.moving_pods]
    count = max(1, len(pods))
    requested = (sum(pod.requests.get(name, 0) for pod in pods) for name in RESOURCES)
    return [max(Fraction(1), SMALL_POD * amount / count) for amount in requested]


def _whole_pods(amounts: Sequence[int], small_pod: Sequence[Fraction]) -> list[int]:
    """Of these amounts, as much as small pods fit into them."""
    count = min(int(amount / share) for amount, share in zip(amounts, small_pod, strict=True))
    return [int(count * share) for share in small_pod]


def _removable(candidate: Candidate, free: Sequence[int]) -> Removable:
    """With the room that its pods have, which move, and what is free."""
    moving = candidate.moving_pods
    used = [
        len(moving) if name == resources.PODS else sum(pod.requests.get(name, 0) for pod in moving)
        for name in RESOURCES
    ]
    room = tuple(had + left for had, left in zip(used, free, strict=True))
    return Removable(float(candidate.price), room, float(candidate.eviction_cost))


def _shapes(snapshot: Snapshot, catalog: Catalog, filled: float) -> Iterable[Shape]:
    """What may be bought for pods, at its lowest price in each NodePool."""
    daemonset_pods = build_daemonset_pods(snapshot)
    for template in build_templates(snapshot, catalog)[0]:
        types = template.compatible_instance_types()
        for instance_type, overhead in zip(types, template.daemon_overheads(types, daemonset_pods), strict=True):
            prices = [
                offering.price_picousd_per_hour
                for offering in instance_type.offerings
                if offering.available and template.allows(offering)
            ]
            left = resources.subtract(instance_type.allocatable, overhead)
            room = tuple(int(left.get(name, 0) * filled) for name in RESOURCES)
            if prices and min(room) > 0:
                yield Shape(float(min(prices)), room)


def find_worth(
    nodes: Sequence[Removable], spare: Sequence[int], shapes: Sequence[Shape], *, eviction_price: float, most: float
) -> Worth:
    """The prices at which what goes has room in what stays, and in what is bought. ``spare``: what is free in all.

    ``most``: of evictions. Close to the best prices, not always the best.
    """
    demand = [max(0, sum(node.room[d] for node in nodes) - spare[d]) for d in range(len(spare))]
    bought = compute_shadow_prices(demand, [shape.room for shape in shapes], [shape.price for shape in shapes])
    if not shapes:
        bought = [0.0] * len(spare)
    prices, eviction_worth = list(bought), eviction_price
    for _ in range(ROUNDS):
        before = (*prices, eviction_worth)
        prices = _scaled(nodes, spare, bought if any(bought) else prices, prices, eviction_worth)
        for d in range(len(prices)):
            prices[d] = _resource_price(nodes, spare, shapes, prices, eviction_worth, d)
        offers = [(_surplus(prices, node) / node.evictions, node.evictions) for node in nodes if node.evictions]
        eviction_worth = max(eviction_price, _clearing(offers, most))
        if (*prices, eviction_worth) == before:
            break
    return Worth(tuple(prices), eviction_worth)


def _scaled(
    nodes: Sequence[Removable], spare: Sequence[int], bought: Sequence[float], prices: list[float], eviction: float
) -> list[float]:
    """The best share of what room costs where it is bought, if that is better than these prices."""
    offers = [
        ((node.price - eviction * node.evictions) / worth, worth)
        for node in nodes
        if (worth := _product(bought, node.room)) > 0
    ]
    share = min(1.0, _clearing(offers, _product(bought, spare)))
    scaled = [price * share for price in bought]
    return min(prices, scaled, key=lambda each: _dual(nodes, spare, each, eviction))


def _resource_price(
    nodes: Sequence[Removable],
    spare: Sequence[int],
    shapes: Sequence[Shape],
    prices: Sequence[float],
    eviction: float,
    d: int,
) -> float:
    """The best price of one resource, the others being what they are."""
    others = [0.0 if place == d else price for place, price in enumerate(prices)]
    offers = [
        ((_surplus(others, node) - eviction * node.evictions) / node.room[d], float(node.room[d]))
        for node in nodes
        if node.room[d]
    ]
    highest = min(
        ((shape.price - _product(others, shape.room)) / shape.room[d] for shape in shapes), default=float("inf")
    )
    return max(0.0, min(_clearing(offers, float(spare[d])), highest))


def _clearing(offers: Iterable[tuple[float, float]], supply: float) -> float:
    """The price above which no more is asked for than there is. ``offers``: up to which price how much is asked for."""
    asked = 0.0
    for price, amount in sorted(offers, reverse=True):
        asked += amount
        if asked > supply or price <= 0:
            return max(0.0, price)
    return 0.0


def _dual(nodes: Sequence[Removable], spare: Sequence[int], prices: Sequence[float], eviction: float) -> float:
    return _product(prices, spare) + sum(max(0.0, _surplus(prices, node) - eviction * node.evictions) for node in nodes)


def _surplus(prices: Sequence[float], node: Removable) -> float:
    return node.price - _product(prices, node.room)


def _product(prices: Sequence[float], amounts: Sequence[int]) -> float:
    return float(sum(map(mul, prices, amounts)))
