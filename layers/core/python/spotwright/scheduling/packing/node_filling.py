"""Packs pods on nodes that are given: several orders of filling, and pods that change places for those left over.

Where few pods are left over in all orders, they eject others from the nodes (in papers: ejection chains).
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from operator import ge, le, neg, sub
from types import MappingProxyType
from typing import Final

from spotwright.scheduling.offerings.pool_types import Vector
from spotwright.scheduling.packing.bins import CPU_DIMENSION, MEMORY_DIMENSION, Bin, FillOrder, fill_bin
from spotwright.scheduling.packing.problem import PER_NODE_COST_PICOUSD_PER_HOUR, PackingProblem

# Pods of which a host may hold few go first when they need this share of the nodes that are open to them.
_URGENT: Final = 0.5
# A filling gives up after so many units of work, more for each pod; other nodes are then worth trying instead.
_MOST_WORK: Final = 500
_MOST_WORK_PER_POD: Final = 10
# How much larger pods count that only some of the nodes are open to.
_LIMITED_FACTORS: Final = (1, 3)
# How much the room left on a node counts beside its balance.
_ROOM_WEIGHT: Final = 0.2
# Pods eject others where those left over take no more of all nodes: the share of cpu and that of memory together.
_MOST_LEFT: Final = 0.1
# While so many pods are placed by that, what was ejected does not return to the same node.
_BARRED_STEPS: Final = 5
# Units of work for a pod that might move to another node.
_UNITS_PER_MOVE: Final = 2
# Of the pods that could be ejected, so many are tried.
_EJECTIONS_TRIED: Final = 3


class NodeFilling:
    """Tries to pack ``pods``, a number by class, on one node of each of ``offerings``. ``work_units``: what it took.

    ``most``: for each class that stands for any class of an exchange, how many of its pods each of these may take.
    ``most_ejections``: how many pods at most are placed by ejecting others.
    """

    def __init__(
        self,
        problem: PackingProblem,
        pods: Mapping[int, int],
        offerings: Sequence[int],
        most: Mapping[int, Mapping[int, int]] = MappingProxyType({}),
        most_ejections: int = 0,
    ) -> None:
        self._problem = problem
        self._pods = pods
        self._offerings = offerings
        self._most_ejections = most_ejections
        self.work_units = 0
        self._most_work = _MOST_WORK + _MOST_WORK_PER_POD * sum(pods.values())
        # The classes that each node may take, and the nodes that each class may be on.
        self._takes = [{j for j in pods if problem.offerings[j] >> offering & 1} for offering in offerings]
        self._open_to = {j: [node for node, classes in enumerate(self._takes) if j in classes] for j in pods}
        # By class that stands for any of an exchange: the class that its pods on a node belong to, by node.
        self._most = most
        self._becomes = {
            j: {
                node: next(k for k in most[j] if problem.offerings[k] >> offerings[node] & 1)
                for node in self._open_to[j]
            }
            for j in most
        }
        self._limited = {j for j, nodes in self._open_to.items() if len(nodes) < len(offerings)}
        self._per_cpu, self._per_memory = (
            1 / max(sum(self._capacity(node)[dimension] for node in range(len(offerings))), 1)
            for dimension in (CPU_DIMENSION, MEMORY_DIMENSION)
        )
        items = problem.items
        # By class, the share of the cpu of all nodes that a pod takes, and that of their memory.
        self._shares = {j: items.cpu[j] * self._per_cpu + items.memory[j] * self._per_memory for j in pods}

    def fill(self) -> list[dict[int, int]] | None:
        """Pods by class for each node; None where none of the ways packs all of them."""
        if not all(map(self._has_hosts, self._pods)):
            return None
        ways: list[Callable[[], None]] = [partial(self._fill_node_by_node, limited_first=False, dearest_first=False)]
        if self._limited and len(self._limited) < len(self._pods):
            ways.append(partial(self._fill_node_by_node, limited_first=True, dearest_first=False))
        ways.append(partial(self._fill_node_by_node, limited_first=False, dearest_first=True))
        ways += [partial(self._place_pod_by_pod, factor) for factor in _LIMITED_FACTORS]
        self._urgent = self._urgent_classes()
        least_left, closest = _MOST_LEFT, None
        for way in ways:
            if self._is_over():
                break
            self._bins = [self._new_bin(node) for node in range(len(self._offerings))]
            self._unplaced = dict(self._pods)
            self._free = {j: dict(most) for j, most in self._most.items()}
            way()
            if all(self._place_by_exchange(j) for j, count in self._unplaced.items() if count):
                return self._pods_by_node()
            left = sum(count * self._shares[j] for j, count in self._unplaced.items())
            if left < least_left:
                least_left, closest = left, (self._bins, self._unplaced, self._free)
        if closest is not None and self._most_ejections:
            self._bins, self._unplaced, self._free = closest
            if self._place_by_ejection():
                return self._pods_by_node()
        return None

    def _pods_by_node(self) -> list[dict[int, int]]:
        return [self._pods_on(node) for node in range(len(self._bins))]

    def _pods_on(self, node: int) -> dict[int, int]:
        """The pods of a node by class, without classes that stand for any of an exchange."""
        pods = Counter[int]()
        for j, count in self._bins[node].counts.items():
            pods[self._becomes[j][node] if j in self._becomes else j] += count
        return dict(pods)

    def _may_take(self, node: int, j: int) -> int:
        """How many pods of a class that are left may come to a node, as far as exchanges decide."""
        unplaced = self._unplaced[j]
        return min(unplaced, self._free[j][self._becomes[j][node]]) if j in self._becomes else unplaced

    def _take(self, node: int, j: int, count: int) -> None:
        """Count pods as placed."""
        self._unplaced[j] -= count
        if j in self._becomes:
            self._free[j][self._becomes[j][node]] -= count

    def _may_swap(self, node: int, other: int, j: int) -> bool:
        """Whether pods of a class may pass from node to node without a change of what they count for."""
        return j not in self._becomes or self._becomes[j][node] == self._becomes[j].get(other)

    def _is_over(self) -> bool:
        return self.work_units >= self._most_work

    def _has_hosts(self, j: int) -> bool:
        cap = self._cap(j)
        return len(self._open_to[j]) * (cap or self._pods[j]) >= self._pods[j]

    def _cap(self, j: int) -> int:
        """How many pods of a class one host may hold; 0 = any number."""
        host_constraint = self._problem.host_constraints[j]
        return host_constraint.max_per_host if host_constraint is not None else 0

    def _urgent_classes(self) -> list[int]:
        urgent = []
        for j, count in self._pods.items():
            if (cap := self._cap(j)) and count >= _URGENT * cap * len(self._open_to[j]):
                urgent.append((-count / cap / len(self._open_to[j]), j))
        return [j for _, j in sorted(urgent)]

    def _capacity(self, node: int) -> Vector:
        return self._problem.offering_index.pool_type_of[self._offerings[node]].free_capacity

    def _new_bin(self, node: int) -> Bin:
        return Bin(self._capacity(node), self._problem.bin_constraints(self._offerings[node]))

    def _price(self, node: int) -> int:
        return self._problem.offering_index.prices[self._offerings[node]] + PER_NODE_COST_PICOUSD_PER_HOUR

    def _fill_node_by_node(self, *, limited_first: bool, dearest_first: bool) -> None:
        """Fill each node so that its resources run out together."""
        order = sorted(range(len(self._offerings)), key=self._price, reverse=dearest_first)
        every = set(self._pods)
        for classes in (self._limited, every - self._limited) if limited_first else (every,):
            for node in order:
                self._fill_node(node, {j for j in classes & self._takes[node] if self._may_take(node, j) > 0})

    def _fill_node(self, node: int, classes: set[int]) -> None:
        items, filled = self._problem.items, self._bins[node]
        counts, before = [0] * len(items.sizes), filled.counts.copy()
        for j in classes:
            counts[j] = before.get(j, 0) + self._may_take(node, j)
        tried = fill_bin(filled, FillOrder(items, self._capacity(node), classes, self._urgent), items, counts)
        self.work_units += tried + len(classes)
        for j in classes:
            self._take(node, j, filled.counts.get(j, 0) - before.get(j, 0))

    def _place_pod_by_pod(self, limited_factor: int) -> None:
        """Place the largest pods first, each where the shares of cpu and memory that are left differ least."""
        ranks = {j: rank for rank, j in enumerate(self._urgent)}

        def key(j: int) -> tuple[int, float, int]:
            return ranks.get(j, len(ranks)), -self._shares[j] * (limited_factor if j in self._limited else 1), j

        for j in sorted(self._pods, key=key):
            self._place_class(j)

    def _place_class(self, j: int) -> None:
        items, per_cpu, per_memory = self._problem.items, self._per_cpu, self._per_memory
        cpu, memory = items.cpu[j], items.memory[j]
        nodes = [node for node in self._open_to[j] if self._may_take(node, j) > 0]
        rooms = [self._bins[node].free_capacity for node in nodes]
        while self._unplaced[j]:
            self.work_units += 1 + len(nodes) // 8
            best, place = 0.0, -1
            for at, room in enumerate(rooms):
                cpu_left = (room[CPU_DIMENSION] - cpu) * per_cpu
                memory_left = (room[MEMORY_DIMENSION] - memory) * per_memory
                if cpu_left >= 0 and memory_left >= 0:
                    score = abs(cpu_left - memory_left) + _ROOM_WEIGHT * (cpu_left + memory_left)
                    if place < 0 or score < best:
                        best, place = score, at
            if place < 0:
                return
            if self._may_take(nodes[place], j) > 0 and self._bins[nodes[place]].add(j, items.needs[j], 1):
                self._take(nodes[place], j, 1)
            else:
                del nodes[place], rooms[place]

    def _place_by_exchange(self, j: int) -> bool:
        """Place the pods of a class that are left, if other pods can make room by moving, or by changing places."""
        while self._unplaced[j]:
            nodes = (node for node in self._open_to[j] if self._may_take(node, j) > 0)
            node = next((node for node in nodes if self._place_one(node, j)), -1)
            if node < 0:
                return False
            self._take(node, j, 1)
        return True

    def _place_one(self, node: int, j: int) -> bool:
        """Place a pod on the node, if need be in the place of another that moves on."""
        sizes = self._problem.items.sizes
        if self._bins[node].add(j, self._problem.items.needs[j], 1):
            return True
        missing = list(map(sub, sizes[j], self._bins[node].free_capacity))
        for moved in self._bins[node].counts:
            if moved != j and not self._is_over() and all(map(ge, sizes[moved], missing)):
                spare = list(map(sub, missing, sizes[moved]))
                for other in self._open_to[moved]:
                    if (
                        other != node
                        and self._may_swap(node, other, moved)
                        and self._move(node, j, moved, other, spare)
                    ):
                        return True
        return False

    def _move(self, node: int, j: int, moved: int, other: int, spare: Sequence[int]) -> bool:
        """Move a pod to the other node, if need be in exchange for one of its pods. ``spare``: what the node then
        has to spare beside the new pod, negative."""
        sizes = self._problem.items.sizes
        free = self._bins[other].free_capacity
        self.work_units += _UNITS_PER_MOVE
        if all(map(ge, free, sizes[moved])):
            return self._rebuild(node, other, Counter({j: 1, moved: -1}), Counter({moved: 1}))
        self.work_units += len(self._bins[other].counts) // 4
        most, least = list(map(neg, spare)), list(map(sub, sizes[moved], free))
        for returned in self._bins[other].counts:
            size = sizes[returned]
            if returned not in (moved, j) and all(map(le, size, most)) and all(map(ge, size, least)):
                changes = Counter({j: 1, moved: -1, returned: 1}), Counter({moved: 1, returned: -1})
                may_return = node in self._open_to[returned] and self._may_swap(other, node, returned)
                if may_return and self._rebuild(node, other, *changes):
                    return True
        return False

    def _rebuild(self, node: int, other: int, change: Counter[int], other_change: Counter[int]) -> bool:
        """Change the pods of two nodes, if what limits pods of one host allows it."""
        rebuilt = self._rebuilt(node, change), self._rebuilt(other, other_change)
        if rebuilt[0] is None or rebuilt[1] is None:
            return False
        self._bins[node], self._bins[other] = rebuilt[0], rebuilt[1]
        return True

    def _rebuilt(self, node: int, change: Counter[int]) -> Bin | None:
        counts = Counter(self._bins[node].counts)
        counts.update(change)
        rebuilt = self._new_bin(node)
        self.work_units += len(counts)
        for j, count in counts.items():
            if count and rebuilt.add(j, self._problem.items.needs[j], count) < count:
                return None
        return rebuilt

    def _place_by_ejection(self) -> bool:
        """Place the largest pod that is left, again and again, where it ejects the smallest, which are then left.

        A pod does not return at once to a node that it was ejected from: so pods do not eject each other for ever.
        """
        barred = dict[tuple[int, int], int]()
        for step in range(self._most_ejections):
            j = max((j for j, count in self._unplaced.items() if count), key=self._ejection_rank, default=None)
            if j is None:
                return True
            nodes = [
                node for node in self._open_to[j] if barred.get((node, j), 0) <= step and self._may_take(node, j) > 0
            ]
            self.work_units += len(nodes)
            if not self._place_on_any(nodes, j):
                ejected = self._eject_smallest(nodes, j)
                if ejected is None:
                    return False
                barred[ejected] = step + _BARRED_STEPS
        return not any(self._unplaced.values())

    def _ejection_rank(self, j: int) -> tuple[float, int]:
        return self._shares[j], j

    def _place_on_any(self, nodes: Sequence[int], j: int) -> bool:
        needs = self._problem.items.needs[j]
        node = next((node for node in nodes if self._bins[node].add(j, needs, 1)), -1)
        if node >= 0:
            self._take(node, j, 1)
        return node >= 0

    def _eject_smallest(self, nodes: Sequence[int], j: int) -> tuple[int, int] | None:
        """Place a pod on the node where it ejects the smallest pods; the node and their class, None without any."""
        ejections = sorted(ejection for node in nodes for ejection in self._ejections(node, j))
        self.work_units += len(ejections) // 8
        for _, node, ejected, count in ejections[:_EJECTIONS_TRIED]:
            rebuilt = self._rebuilt(node, Counter({j: 1, ejected: -count}))
            if rebuilt is not None:
                self._bins[node] = rebuilt
                self._take(node, j, 1)
                self._take(node, ejected, -count)
                return node, ejected
        return None

    def _ejections(self, node: int, j: int) -> Iterator[tuple[float, int, int, int]]:
        """How many pods of a class make room for one of another: their share of all nodes, the node, class, number."""
        filled, sizes = self._bins[node], self._problem.items.sizes
        free = filled.free_capacity
        missing = [(d, amount - free[d]) for d, amount in self._problem.items.needs[j] if amount > free[d]]
        for ejected, count in filled.counts.items():
            size = sizes[ejected]
            if ejected != j and all(size[d] * count >= amount for d, amount in missing):
                needed = max([1, *(-(-amount // size[d]) for d, amount in missing)])
                yield needed * self._shares[ejected], node, ejected, needed
