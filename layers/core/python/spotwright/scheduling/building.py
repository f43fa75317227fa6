"""One greedy construction: node after node, each the shape that packs most for its price."""

from collections.abc import Callable, Iterable, Sequence
from operator import mul
from typing import Final

from spotwright.scheduling import prices
from spotwright.scheduling.market import Vector, bits
from spotwright.scheduling.packing import CPU, MEMORY, Lanes, Node, fill
from spotwright.scheduling.problem import NODE_FEE, Allowance, Answer, Batch, Problem, holding

# A shape that packs this share of what the best could is taken at once; of many pods the choice among close ones pays.
_GOOD_ENOUGH: Final = 0.985
_GOOD_ENOUGH_FOR_MANY: Final = 0.995
_MANY_PODS: Final = 500
_REPRICE_EVERY: Final = 4
_SHORT_LIST: Final = 6
# What setting up a shape costs in units, beside one for each class.
_NEW_LANES: Final = 8
# What it takes to work out what the pods left would cost without a node's.
_PRICING: Final = 10
# Lanes are cleared when one in so many of their classes has run out.
_STALE: Final = 8
# Pods with a bound per host go first when they need this share of the nodes that resources alone would need.
_URGENT: Final = 0.5


class Build:
    """``tilt``: a factor for each shape's bound, to look at other shapes first than the obvious ones.

    Many pods are built with foresight: what a node is worth depends on what it leaves to the next ones.
    """

    def __init__(
        self,
        problem: Problem,
        counts: Sequence[int],
        allowance: Allowance,
        shapes: Sequence[int],
        tilt: Callable[[], float] | None = None,
    ) -> None:
        self.problem = problem
        self.market = problem.market
        self.items = problem.items
        self.left = list(counts)
        many = sum(counts) > _MANY_PODS
        self.enough = _GOOD_ENOUGH_FOR_MANY if many else _GOOD_ENOUGH
        self.foresight = many and tilt is None
        self.allowance = allowance.copy()
        self.lanes: dict[int, Lanes] = {}
        # How many classes have run out, and how many had when a shape's lanes were last cleared of them.
        self.empty = 0
        self.cleared: dict[int, int] = {}
        self.open = allowance.open(problem.market)
        self.units = 0
        self.demand = self._demanded(range(len(self.left)))
        self.caps = [(j, bond.most) for j, bond in enumerate(problem.bonds) if bond is not None and bond.most]
        self._look_again()
        self.shapes = list(shapes)
        self.tilt = tilt

    def answer(self) -> Answer:
        batches: list[Batch] = []
        while any(self.left) and self.shapes:
            made = self._round()
            if not made:
                break
            batches += made
        return Answer(batches, self.left, self.allowance, self.units)

    def _round(self) -> list[Batch]:
        """A few nodes at the same resource prices; none when nothing fits any more."""
        self._forget_empty()
        self.widest, self.most = self._widest()
        self._appraise()
        ranked = self._ranked()
        enough = ranked[0][0] * self.enough
        short: list[tuple[float, int]] = []
        made: list[Batch] = []
        while len(made) < _REPRICE_EVERY and any(self.left):
            found = self._best(short or ranked, enough)
            if found is None:
                if not short:
                    break
                short = []
                continue
            tried, batch = found
            # What no shape packed just now, none will pack next.
            enough = min(enough, max(value for value, _, _ in tried))
            # A few good shapes serve for the next nodes too; if the very first was good, all stay in play.
            if not short and len(tried) > _SHORT_LIST:
                short = sorted(
                    ((bound, kind) for _, bound, kind in sorted(tried, reverse=True)[:_SHORT_LIST]), reverse=True
                )
            if self._commit(batch):
                made.append(batch)
            else:
                self.shapes = [i for i in self.shapes if self.allowance.copies(self.market, i, 1)]
                return made if made or not self.shapes else self._round()
        return made

    def _ranked(self) -> list[tuple[float, int]]:
        """Kinds of nodes by what they could pack for their price, with the place of each."""
        self._sort_out()
        ranked = sorted(((self._bound(one[0]), -place) for place, one in enumerate(self.kinds)), reverse=True)
        if self.tilt is not None:
            ranked = sorted(((bound * self.tilt(), place) for bound, place in ranked), reverse=True)
        return [(bound, -place) for bound, place in ranked]

    def _sort_out(self) -> None:
        """Shapes that differ in their zone alone are one kind: of these, the one is tried that most waits for.

        ``awaited``: what the pods are worth that may go to some shapes only, by the choices open to them.
        """
        kinds: dict[tuple[int, int], list[int]] = {}
        every = 0
        for i in self.shapes:
            kinds.setdefault((id(self.market.goods_of[i]), self.market.prices[i]), []).append(i)
            every |= 1 << i
        self.kinds = list(kinds.values())
        alike = len(kinds) < len(self.shapes)
        partly = (mask for mask in self.asked if alike and mask & every and every & ~mask)
        self.awaited = {mask: self._worth_of(mask) for mask in partly}

    def _worth_of(self, mask: int) -> float:
        """What the pods are worth that may go to these choices."""
        worth: float = sum(map(mul, self.mixture.worth, self.asked[mask]))
        return worth

    def _most_awaited(self, shapes: Sequence[int]) -> int:
        """Of the shapes of one kind, the one that most waits for; the first of several."""
        if len(shapes) == 1 or not self.awaited:
            return shapes[0]
        return max(shapes, key=lambda i: sum([worth for mask, worth in self.awaited.items() if mask >> i & 1]))

    def _forget_empty(self) -> None:
        """Once half of the classes are placed, lanes without them are quicker."""
        if sum(map(bool, self.left)) * 2 < self.alive:
            self._look_again()

    def _look_again(self) -> None:
        """Which classes are in play, and which of them may go where; those that go to the same places together."""
        self.lanes.clear()
        alike: dict[int, list[int]] = {}
        for j, mask in enumerate(self.problem.masks):
            if self.left[j]:
                alike.setdefault(mask, []).append(j)
        self.alike = sorted(alike.items())
        self.asked = {mask: self._demanded(ours) for mask, ours in self.alike}
        self.alive = sum(map(bool, self.left))

    def _widest(self) -> tuple[int, int]:
        """The class that needs most hosts, and how many of it one may hold; (-1, 1) if hosts hold any number."""
        _, j, most = max(((self.left[j] / most, -j, most) for j, most in self.caps if self.left[j]), default=(0, 1, 1))
        return -j, most

    def _appraise(self) -> None:
        """What the pods left are worth, and which nodes they need.

        ``mixture``: of their resources, and at last the hosts; ``needed``: nodes by room and price.
        """
        # Zones seldom differ in either.
        offered = list(dict.fromkeys((self.market.goods_of[i].room, self._price(i)) for i in self.shapes))
        self.mixture = prices.Mixture(
            [*self.demand, self._hosts()], [(*room, 1) for room, _ in offered], [price for _, price in offered]
        )
        self.needed = {offered[k]: nodes for k, nodes in self.mixture.nodes.items()}

    def _needed(self, choice: int) -> float:
        """How many nodes like this one the cheapest mixture for the pods left has."""
        return self.needed.get((self.market.goods_of[choice].room, self._price(choice)), 0.0)

    def _hosts(self) -> int:
        """How many hosts the class needs that needs most."""
        return -(-self.left[self.widest] // self.most) if self.widest >= 0 else 0

    def _demanded(self, classes: Iterable[int]) -> list[int]:
        """What the pods of these classes that are left ask for together."""
        demand = [0] * len(self.market.dimensions)
        for j in classes:
            for d, amount in self.problem.items.needs[j]:
                demand[d] += amount * self.left[j]
        return demand

    def _price(self, choice: int) -> float:
        return float(self.market.prices[choice] + NODE_FEE)

    def _bound(self, choice: int) -> float:
        room = self.market.goods_of[choice].room
        packs: float = sum(map(mul, self.mixture.worth, (*room, 1)))
        return packs / self._price(choice)

    def _best(
        self, ranked: Sequence[tuple[float, int]], enough: float
    ) -> tuple[list[tuple[float, float, int]], Batch] | None:
        """The shape that packs most for its price; with value, bound and kind of those tried."""
        best, found = 0.0, None
        tried = []
        for bound, kind in ranked:
            if bound <= best or best >= enough:
                break
            shape = self._most_awaited(self.kinds[kind])
            node = self._filled(shape)
            if not node.taken or not self._keeps_enough(node, shape):
                continue
            value = self._packed(node, shape)
            tried.append((value, bound, kind))
            if value > best:
                best, found = value, Batch(shape, 1, node.taken)
        return (tried, found) if found is not None else None

    def _keeps_enough(self, node: Node, choice: int) -> bool:
        """False when the pods leave fewer kinds of instances than the NodePool's minValues ask."""
        template = self.market.goods_of[choice].template
        if not self.market.least[template]:
            return True
        return bool(holding(self.problem, node.taken, self.market.of_template[template]))

    def _packed(self, node: Node, choice: int) -> float:
        """What a node's pods are worth for its price: by how much it lowers the least cost of the pods left."""
        room = self.market.goods_of[choice].room
        used = [r - f for r, f in zip(room, node.free, strict=True)]
        hosts = min(node.taken.get(self.widest, 0) / self.most, 1)
        # While the pods left need more such nodes, they are worth the same after it as before.
        if self.foresight and self._needed(choice) < 1:
            before = [*self.demand, self._hosts()]
            after = [amount - packed for amount, packed in zip(before, (*used, hosts), strict=True)]
            self.units += _PRICING
            saved = self.mixture.cost(before) - self.mixture.cost(after)
            if saved > 0:
                return saved / self._price(choice)
        worth = self.mixture.worth
        value = sum(map(mul, worth, used)) + worth[-1] * hosts
        return (value or float(sum(node.taken.values()))) / self._price(choice)

    def _filled(self, choice: int) -> Node:
        lanes = self.lanes.get(choice)
        goods = self.market.goods_of[choice]
        if lanes is not None and (self.empty - self.cleared[choice]) * _STALE > self.alive:
            lanes.forget(self.left)
            self.cleared[choice] = self.empty
        if lanes is None:
            takes = {j for mask, ours in self.alike if mask >> choice & 1 for j in ours if self.left[j]}
            lanes = self.lanes[choice] = Lanes(self.items, goods.room, takes, self._first(goods.room))
            self.units += _NEW_LANES + self.alive
            self.cleared[choice] = self.empty
        node = Node(goods.room, self.problem.rules(choice))
        self.units += fill(node, lanes, self.items, self.left)
        return node

    def _first(self, room: Vector) -> list[int]:
        """Classes of which a host may hold so few that they decide how many nodes there will be."""
        if not self.caps:
            return []
        nodes = max(self.demand[d] / room[d] for d in (CPU, MEMORY) if room[d])
        urgent = [(-self.left[j] / most, j) for j, most in self.caps if self.left[j] >= _URGENT * most * nodes]
        return [j for _, j in sorted(urgent)]

    def _commit(self, batch: Batch) -> bool:
        """Make the node as often as its pods last and limits allow, as the cheapest choice that does."""
        batch.choice = self._smallest(batch)
        times = min(self.left[j] // count for j, count in batch.pods.items())
        times = self.allowance.copies(self.market, batch.choice, times)
        if times:
            batch.copies = times
            self.allowance.spend(self.market, batch.choice, times)
            for j, count in batch.pods.items():
                self.left[j] -= count * times
                self.empty += not self.left[j]
                asked = self.asked[self.problem.masks[j]]
                for d, amount in self.problem.items.needs[j]:
                    self.demand[d] -= amount * count * times
                    asked[d] -= amount * count * times
            for mask in {self.problem.masks[j] for j in batch.pods}.intersection(self.awaited):
                self.awaited[mask] = self._worth_of(mask)
        return times > 0

    def _smallest(self, batch: Batch) -> int:
        """The cheapest choice that holds the pods and counts no more against the limits."""
        cheaper = self.open & ((1 << batch.choice) - 1)
        for choice in bits(holding(self.problem, batch.pods, cheaper)):
            if self._counts_no_more(choice, batch.choice):
                return choice
        return batch.choice

    def _counts_no_more(self, choice: int, other: int) -> bool:
        ours, theirs = self.market.goods_of[choice], self.market.goods_of[other]
        limited = self.allowance.left[ours.template]
        if self.market.reservations[choice] or (limited and ours.template != theirs.template):
            return self.allowance.copies(self.market, choice, 1) > 0
        return all(ours.type.capacity.get(name, 0) <= theirs.type.capacity.get(name, 0) for name in limited)
