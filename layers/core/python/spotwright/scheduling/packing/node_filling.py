"""Packs pods on nodes that are given: several orders of filling, and pods that change places for those left over."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from operator import ge
from types import MappingProxyType
from typing import Final

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


class NodeFilling:
    """Tries to pack ``pods``, a number by class, on one node of each of ``offerings``. ``work_units``: what it took.

    ``most``: for each class that stands for any class of an exchange, how many of its pods each of these may take.
    """

    def __init__(
        self,
        problem: PackingProblem,
        pods: Mapping[int, int],
        offerings: Sequence[int],
        most: Mapping[int, Mapping[int, int]] = MappingProxyType({}),
    ) -> None:
        self._problem = problem
        self._pods = pods
        self._offerings = offerings
        self.work_units = 0
        self._most_work = _MOST_WORK + _MOST_WORK_PER_POD * sum(pods.values())
        self._open_to = {
            j: [node for node, offering in enumerate(offerings) if problem.offerings[j] >> offering & 1] for j in pods
        }
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
        for way in ways:
            if self._is_over():
                return None
            self._bins = [self._new_bin(offering) for offering in self._offerings]
            self._unplaced = dict(self._pods)
            self._free = {j: dict(most) for j, most in self._most.items()}
            way()
            if all(self._place_by_exchange(j) for j, count in self._unplaced.items() if count):
                return [self._pods_on(node) for node in range(len(self._bins))]
        return None

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

    def _new_bin(self, offering: int) -> Bin:
        pool_type = self._problem.offering_index.pool_type_of[offering]
        return Bin(pool_type.free_capacity, self._problem.bin_constraints(offering))

    def _price(self, node: int) -> int:
        return self._problem.offering_index.prices[self._offerings[node]] + PER_NODE_COST_PICOUSD_PER_HOUR

    def _fill_node_by_node(self, *, limited_first: bool, dearest_first: bool) -> None:
        """Fill each node so that its resources run out together."""
        order = sorted(range(len(self._offerings)), key=self._price, reverse=dearest_first)
        every = set(self._pods)
        for classes in (self._limited, every - self._limited) if limited_first else (every,):
            for node in order:
                self._fill_node(node, {j for j in classes if node in self._open_to[j] and self._may_take(node, j) > 0})

    def _fill_node(self, node: int, classes: set[int]) -> None:
        items, filled = self._problem.items, self._bins[node]
        capacity = self._problem.offering_index.pool_type_of[self._offerings[node]].free_capacity
        counts, before = [0] * len(items.sizes), filled.counts.copy()
        for j in classes:
            counts[j] = before.get(j, 0) + self._may_take(node, j)
        tried = fill_bin(filled, FillOrder(items, capacity, classes, self._urgent), items, counts)
        self.work_units += tried + len(classes)
        for j in classes:
            self._take(node, j, filled.counts.get(j, 0) - before.get(j, 0))

    def _place_pod_by_pod(self, limited_factor: int) -> None:
        """Place the largest pods first, each where the shares of cpu and memory that are left differ least."""
        items = self._problem.items
        per_cpu, per_memory = (
            1 / max(sum(node.free_capacity[dimension] for node in self._bins), 1)
            for dimension in (CPU_DIMENSION, MEMORY_DIMENSION)
        )
        ranks = {j: rank for rank, j in enumerate(self._urgent)}

        def key(j: int) -> tuple[int, float, int]:
            size = items.cpu[j] * per_cpu + items.memory[j] * per_memory
            return ranks.get(j, len(ranks)), -size * (limited_factor if j in self._limited else 1), j

        for j in sorted(self._pods, key=key):
            self._place_class(j, per_cpu, per_memory)

    def _place_class(self, j: int, per_cpu: float, per_memory: float) -> None:
        items = self._problem.items
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
        missing = [size - free for size, free in zip(sizes[j], self._bins[node].free_capacity, strict=True)]
        for moved in self._bins[node].counts:
            if moved != j and not self._is_over():
                spare = [amount - size for amount, size in zip(missing, sizes[moved], strict=True)]
                if max(spare) > 0:
                    continue
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
        self.work_units += 1
        if all(map(ge, free, sizes[moved])):
            return self._rebuild(node, other, Counter({j: 1, moved: -1}), Counter({moved: 1}))
        self.work_units += len(self._bins[other].counts) // 4
        for returned in self._bins[other].counts:
            if returned not in (moved, j) and all(
                excess + back <= 0 and room + back >= size
                for excess, back, room, size in zip(spare, sizes[returned], free, sizes[moved], strict=True)
            ):
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
        rebuilt = self._new_bin(self._offerings[node])
        self.work_units += len(counts)
        for j, count in counts.items():
            if count and rebuilt.add(j, self._problem.items.needs[j], count) < count:
                return None
        return rebuilt
