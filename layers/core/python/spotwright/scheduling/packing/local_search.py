"""Saving on a set of nodes: a few are taken apart and their pods packed anew, and kept so if that is cheaper.

First pairs of nodes become one where one is cheaper; then small groups, most often of nodes that are poorly used, are
rebuilt with the shapes tried in another order ("ruin and recreate": Schrimpf et al., "Record breaking optimization
results using the ruin and recreate principle", 2000). The order is drawn from the problem itself, so that equal
problems end equally.
"""

from collections.abc import Iterator, Sequence
from operator import mul
from typing import Final

from spotwright.scheduling.offerings.offering_index import Vector, iterate_bits
from spotwright.scheduling.packing import fractional_lp
from spotwright.scheduling.packing.greedy import GreedyPacker
from spotwright.scheduling.packing.problem import (
    PER_NODE_COST_PICOUSD_PER_HOUR,
    PackedNodes,
    Packing,
    PackingProblem,
    RemainingLimits,
    candidate_offerings,
    offerings_that_fit,
)

# A group is rebuilt from nodes of up to this many millicores; a merged node is no larger either.
_SIZE: Final = 48_000
_TILT: Final = 0.08
_GROUP: Final = (2, 3, 5, 8)
_DRAWS: Final = 3
# Trials in a row without a saving after which there is little left to save.
_PATIENCE: Final = 100
_TRIAL: Final = 20
# Of the budget, pairs may take one part of so many.
_MERGING: Final = 2


class LinearCongruentialGenerator:
    """A reproducible sequence of numbers (Knuth's MMIX linear congruence)."""

    __slots__ = ("_state",)

    def __init__(self, seed: int) -> None:
        self._state = seed

    def below(self, limit: int) -> int:
        self._state = (self._state * 6364136223846793005 + 1442695040888963407) % 2**64
        return (self._state >> 33) % limit

    def share(self) -> float:
        """From 0 up to 1."""
        return self.below(2**20) / 2**20


def improve(problem: PackingProblem, answer: Packing, budget: int) -> int:
    """Make an answer cheaper while the budget lasts; the units it took."""
    if sum(packed_nodes.node_count for packed_nodes in answer.nodes) < 2:
        return 0
    work = _Work(problem, answer)
    # What is reserved may all be used.
    if not work.shapes:
        return 0
    work.merge(budget // _MERGING)
    work.rebuild(budget)
    answer.nodes[:] = [packed_nodes for packed_nodes in work.batches if packed_nodes.node_count]
    answer.limits = work.allowance
    return work.units


class _Work:
    def __init__(self, problem: PackingProblem, answer: Packing) -> None:
        self.problem = problem
        self.market = problem.offering_index
        self.batches = list(answer.nodes)
        self.allowance = answer.limits
        self.units = 0
        counts = [1] * len(problem.offerings)
        self.shapes: list[int] = candidate_offerings(
            problem,
            counts,
            RemainingLimits([{} for _ in answer.limits.by_template], answer.limits.by_reservation),
            _SIZE,
        )

        rooms = [self.market.pool_type_of[choice].free_capacity for choice in self.shapes]
        self.largest = [max(sizes) for sizes in zip(*rooms, strict=True)]
        self.worth = self._worth(rooms) if rooms else []

    def _worth(self, rooms: Sequence[Vector]) -> list[float]:
        """What a unit of each resource is worth while all pods are packed."""
        demand = [0] * len(self.market.dimensions)
        for packed_nodes in self.batches:
            for d, amount in enumerate(self._used(packed_nodes)):
                demand[d] += amount * packed_nodes.node_count
        offered = dict.fromkeys(zip(rooms, map(self._price, self.shapes), strict=True))
        return fractional_lp.compute_shadow_prices(
            demand, [room for room, _ in offered], [float(price) for _, price in offered]
        )

    def _price(self, choice: int) -> int:
        return self.market.prices[choice] + PER_NODE_COST_PICOUSD_PER_HOUR

    def merge(self, budget: int) -> None:
        """Put two nodes into one as long as that saves."""
        while self.units < budget:
            found = self._merged(budget)
            if found is None:
                return
            self._apply(*found)

    def _merged(self, budget: int) -> tuple[list[PackedNodes], list[PackedNodes], int] | None:
        """The pair whose merger saves most, what it becomes, and how often.

        Nodes that cost much more than their pods are worth come first: a merger saves no more than both waste.
        """
        best, found = 0.0, None
        wasting = [(self._waste(one), one, self._used(one)) for one in self._sorted()]
        wasting.sort(key=lambda each: -each[0])
        for (waste, packed_nodes, used), (more_waste, other_packed_nodes, more) in _pairs(wasting):
            self.units += 1
            if waste + more_waste <= best or self.units > budget:
                break
            if any(size + extra > most for size, extra, most in zip(used, more, self.largest, strict=True)):
                continue
            self.units += _TRIAL
            before = self._price(packed_nodes.offering) + self._price(other_packed_nodes.offering)
            choice = self._cheapest_holding(
                _together(packed_nodes, other_packed_nodes), before - int(best), (packed_nodes, other_packed_nodes)
            )
            if choice >= 0:
                best = before - self._price(choice)
                found = (
                    [packed_nodes, other_packed_nodes],
                    [PackedNodes(choice, 1, _together(packed_nodes, other_packed_nodes))],
                    min(packed_nodes.node_count, other_packed_nodes.node_count),
                )
        return found

    def _waste(self, batch: PackedNodes) -> float:
        """What a node costs above what its pods are worth."""
        return self._price(batch.offering) * (1 - self._use(batch))

    def _used(self, batch: PackedNodes) -> list[int]:
        """What the pods of one node ask for, per dimension."""
        used = [0] * len(self.market.dimensions)
        for j, count in batch.pod_counts.items():
            for d, amount in self.problem.items.needs[j]:
                used[d] += amount * count
        return used

    def _sorted(self) -> list[PackedNodes]:
        return sorted(
            (packed_nodes for packed_nodes in self.batches if packed_nodes.node_count),
            key=lambda packed_nodes: (packed_nodes.offering, sorted(packed_nodes.pod_counts.items())),
        )

    def _cheapest_holding(self, pods: dict[int, int], below: int, instead: Sequence[PackedNodes]) -> int:
        """A choice under this price that holds the pods and keeps bound and limits; -1 if there is none."""
        cores = max(_SIZE, *(self._cores(packed_nodes.offering) for packed_nodes in instead))
        for choice in iterate_bits(offerings_that_fit(self.problem, pods, self.market.all_offerings)):
            if self._price(choice) >= below:
                return -1
            if self._cores(choice) <= cores and self._returned(instead).max_nodes(self.market, choice, 1):
                return choice
        return -1

    def _cores(self, choice: int) -> int:
        return self.market.pool_type_of[choice].instance_type.capacity.get("cpu", 0)

    def _returned(self, batches: Sequence[PackedNodes]) -> RemainingLimits:
        """The limits as they would be without one of each of these nodes."""
        allowance = self.allowance.copy()
        for packed_nodes in batches:
            allowance.spend(self.market, packed_nodes.offering, -1)
        return allowance

    def _apply(self, old: Sequence[PackedNodes], new: Sequence[PackedNodes], times: int) -> None:
        for packed_nodes in old:
            packed_nodes.node_count -= times
            self.allowance.spend(self.market, packed_nodes.offering, -times)
        for packed_nodes in new:
            self.allowance.spend(self.market, packed_nodes.offering, packed_nodes.node_count * times)
            self.batches.append(
                PackedNodes(packed_nodes.offering, packed_nodes.node_count * times, packed_nodes.pod_counts)
            )
        self.batches = [one for one in self.batches if one.node_count]

    def rebuild(self, budget: int) -> None:
        """Take groups of nodes apart and pack their pods again."""
        dice = LinearCongruentialGenerator(
            sum((j + 1) * count for packed_nodes in self.batches for j, count in packed_nodes.pod_counts.items())
        )
        idle = 0
        while self.units < budget and idle < _PATIENCE and len(self.batches) > 1:
            idle = 0 if self._rebuilt(dice) else idle + 1

    def _rebuilt(self, dice: LinearCongruentialGenerator) -> bool:
        group = self._drawn(dice)
        pods: dict[int, int] = {}
        for packed_nodes in group:
            for j, count in packed_nodes.pod_counts.items():
                pods[j] = pods.get(j, 0) + count
        before = sum(self._price(one.offering) for one in group)
        answer = self._packed(pods, group, dice)
        if any(answer.unpacked) or answer.cost(self.market) >= before:
            return False
        numbers = sorted(pods)
        new = [
            PackedNodes(one.offering, one.node_count, {numbers[j]: n for j, n in one.pod_counts.items()})
            for one in answer.nodes
        ]
        self._apply(group, new, 1)
        return True

    def _drawn(self, dice: LinearCongruentialGenerator) -> list[PackedNodes]:
        """Different nodes, each the worst used of a few."""
        ordered = self._sorted()
        wanted = min(_GROUP[dice.below(len(_GROUP))], len(ordered))
        group: dict[int, PackedNodes] = {}
        for _ in range(3 * wanted):
            draws = [dice.below(len(ordered)) for _ in range(_DRAWS)]
            place = min(draws, key=lambda at: self._use(ordered[at]))
            group[place] = ordered[place]
            if len(group) == wanted:
                break
        return [group[place] for place in sorted(group)]

    def _use(self, batch: PackedNodes) -> float:
        """What its pods are worth for its price."""
        worth: float = sum(map(mul, self.worth, self._used(batch)))
        return worth / self._price(batch.offering)

    def _packed(self, pods: dict[int, int], group: Sequence[PackedNodes], dice: LinearCongruentialGenerator) -> Packing:
        numbers = sorted(pods)
        part = self.problem.subproblem(numbers)
        counts = [pods[j] for j in numbers]
        build = GreedyPacker(part, counts, self._returned(group), self.shapes, lambda: 1 - _TILT * dice.share())
        answer = build.pack()
        self.units += answer.work_units + _TRIAL
        return answer


def _pairs[Item](items: Sequence[Item]) -> Iterator[tuple[Item, Item]]:
    """All pairs, those of the first items before those with later ones."""
    return ((item, other) for place, other in enumerate(items) for item in items[:place])


def _together(packed_nodes: PackedNodes, other_packed_nodes: PackedNodes) -> dict[int, int]:
    """The pods of two nodes."""
    pods = dict(packed_nodes.pod_counts)
    for j, count in other_packed_nodes.pod_counts.items():
        pods[j] = pods.get(j, 0) + count
    return pods
