"""A packing problem over one market, and what an answer to it looks like."""

from collections.abc import Mapping, Sequence
from typing import Final

from spotwright.model import resources
from spotwright.model.instancetype import PICOUSD
from spotwright.scheduling.bonds import Bond, Household, agree
from spotwright.scheduling.market import Market, bits
from spotwright.scheduling.openkeys import FREE, Company, OpenKeys
from spotwright.scheduling.packing import Items, Rules

# What a node costs beside its instance: a root volume and what is licensed or watched per host. USD per hour.
NODE_FEE: Final = 3 * PICOUSD // 1000


class Batch:
    """``copies`` equal nodes: a choice of the market, and pods per class on each of them."""

    __slots__ = ("choice", "copies", "pods")

    def __init__(self, choice: int, copies: int, pods: dict[int, int]) -> None:
        self.choice = choice
        self.copies = copies
        self.pods = pods


class Allowance:
    """What limits and reservations leave. ``left``: per template, only its limited resources; ``reserved``: instances
    by reservation."""

    __slots__ = ("left", "reserved")

    def __init__(self, left: Sequence[dict[str, int]], reserved: Mapping[str, int]) -> None:
        self.left = [dict(one) for one in left]
        self.reserved = dict(reserved)

    def copy(self) -> "Allowance":
        return Allowance(self.left, self.reserved)

    def copies(self, market: Market, choice: int, wanted: int) -> int:
        """How many nodes of a choice are still allowed, up to ``wanted``."""
        goods = market.goods_of[choice]
        for name, amount in self.left[goods.template].items():
            size = 1 if name == resources.NODES else goods.type.capacity.get(name, 0)
            if size > 0:
                wanted = min(wanted, amount // size)
            elif amount < 0:
                wanted = 0
        if market.reservations[choice]:
            wanted = min(wanted, self.reserved.get(market.reservations[choice], 0))
        return max(wanted, 0)

    def open(self, market: Market) -> int:
        """Choices of which at least one node is allowed."""
        mask = 0
        for left, ours in zip(self.left, market.of_template, strict=True):
            mask |= ours if not left else self._open_of(market, ours, left)
        for choice in bits(mask & market.reserved):
            if not self.copies(market, choice, 1):
                mask &= ~(1 << choice)
        return mask

    @staticmethod
    def _open_of(market: Market, ours: int, left: Mapping[str, int]) -> int:
        """Choices of one pool within its limits, reservations aside."""
        mask = ours
        for name, amount in left.items():
            if name != resources.NODES:
                mask &= market.within(name, amount)
            elif amount < 1:
                mask = 0
        return mask | ours & market.only_reserved

    def spend(self, market: Market, choice: int, copies: int) -> None:
        goods = market.goods_of[choice]
        left = self.left[goods.template]
        for name in left:
            left[name] -= copies * (1 if name == resources.NODES else goods.type.capacity.get(name, 0))
        if market.reservations[choice]:
            self.reserved[market.reservations[choice]] -= copies


class Problem:
    """Classes that may share nodes, and the choices open to each.

    ``fields``: see ``openkeys``; ``bonds``: rules between pods of one node.
    """

    __slots__ = ("bonded", "bonds", "fields", "items", "keys", "market", "masks")

    def __init__(
        self,
        market: Market,
        items: Items,
        masks: Sequence[int],
        fields: Sequence[int],
        keys: OpenKeys,
        bonds: Sequence[Bond | None],
    ) -> None:
        self.market = market
        self.items = items
        self.masks = masks
        self.fields = fields
        self.keys = keys
        self.bonds = bonds
        self.bonded = any(bonds)

    def part(self, numbers: Sequence[int]) -> "Problem":
        """The problem of these classes alone, renumbered in this order."""
        return Problem(
            self.market,
            Items([self.items.sizes[j] for j in numbers]),
            [self.masks[j] for j in numbers],
            [self.fields[j] for j in numbers],
            self.keys,
            [self.bonds[j] for j in numbers],
        )

    def rules(self, choice: int) -> Rules | None:
        """What a new node of a choice must heed while it is filled."""
        company = Company(self.keys, self.fields, self.keys.start(choice)) if self.keys else None
        return Household(self.bonds, company) if self.bonded else company


class Answer:
    """Nodes to make, the pods per class that are left over, and the work it took."""

    __slots__ = ("allowance", "batches", "left", "units")

    def __init__(self, batches: list[Batch], left: list[int], allowance: Allowance, units: int) -> None:
        self.batches = batches
        self.left = left
        self.allowance = allowance
        self.units = units

    def cost(self, market: Market) -> int:
        return sum((market.prices[one.choice] + NODE_FEE) * one.copies for one in self.batches)


def shapes(problem: Problem, counts: Sequence[int], allowance: Allowance, size: int) -> list[int]:
    """Choices worth trying: open, within ``size`` millicores where that is possible, and not dominated."""
    market, allowed, left = problem.market, 0, allowance.open(problem.market)
    for j, mask in enumerate(problem.masks):
        if counts[j]:
            fitting = mask & left & market.fitting(problem.items.sizes[j])
            fitting = fitting & market.plain or fitting
            bounded = fitting & up_to(market.ranks, size)
            allowed |= bounded or fitting & up_to(market.ranks, _smallest(market.ranks, fitting))
    # When a pool with limits is full, another pool's choices must still be there.
    limited = (mask for left_of, mask in zip(allowance.left, market.of_template, strict=True) if left_of)
    return skyline(market, allowed, (*problem.masks, *problem.keys.kinds(), *limited))


def holding(problem: Problem, pods: Mapping[int, int], allowed: int) -> int:
    """Choices among ``allowed`` that hold so many pods of each class, plain ones unless none is."""
    used, asked = [0] * len(problem.market.dimensions), FREE
    if problem.bonded and not agree(problem.bonds, pods):
        return 0
    for j, count in pods.items():
        allowed &= problem.masks[j]
        asked &= problem.fields[j]
        for d, amount in problem.items.needs[j]:
            used[d] += amount * count
    mask = problem.keys.narrow(allowed & problem.market.fitting(used), asked)
    mask = problem.market.enough(mask)
    return mask & problem.market.plain or mask


def skyline(market: Market, allowed: int, masks: Sequence[int]) -> list[int]:
    """Choices that no cheaper one replaces for every class: with as much room, and open to all it is open to."""
    kept = []
    distinct = sorted(set(masks))
    while allowed:
        choice = (allowed & -allowed).bit_length() - 1
        kept.append(choice)
        replaced = market.dominated(market.goods_of[choice].room)
        for mask in distinct:
            if not mask >> choice & 1:
                replaced &= ~mask
        allowed &= ~(replaced | 1 << choice)
    return kept


def up_to(ranks: Sequence[tuple[int, int]], size: int) -> int:
    """Choices of at most so many millicores."""
    mask = 0
    for cores, choices in ranks:
        if cores > size:
            break
        mask |= choices
    return mask


def _smallest(ranks: Sequence[tuple[int, int]], mask: int) -> int:
    return next((cores for cores, choices in ranks if choices & mask), 0)
