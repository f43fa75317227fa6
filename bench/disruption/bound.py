"""What a cluster costs at least after so many evictions: linear programs in which nodes and pods can be divided.

``find_bound``: ``min Σ p·k + Σ c·x`` where ``Σ a·k + Σ A·x ≥ demand`` for each resource, ``Σ e·(1 - k) ≤ E``,
``0 ≤ k ≤ 1``, ``x ≥ 0``. Part ``k`` of a node of price ``p``, room ``a`` and ``e`` evictions stays; ``x`` nodes of a
type of price ``c`` and room ``A`` are bought. All that is free in the cluster takes any part of a pod.

``find_bound_where_pods_fit`` knows besides on which nodes a whole pod fits, so that it is higher where what is free
lies in small pieces: ``y`` pods of a size go to a node, ``Σ s·y ≤ free·k``, and for the others nodes are bought.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import highspy
import numpy as np

from spotwright.disruption import consolidation, removal_order
from spotwright.disruption.candidates import Candidate
from spotwright.model import resources
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import Plan

type Size = tuple[int, ...]
"""What a pod requests, by resource of ``removal_order.RESOURCES``."""

_DOLLAR = 1e12


class _Program:
    """A linear program to minimize. Costs in dollars: the solver's tolerances are absolute."""

    def __init__(self) -> None:
        self._highs = highspy.Highs()  # type: ignore[no-untyped-call]
        self._highs.setOptionValue("output_flag", False)
        self._columns = 0

    def variable(self, *, cost: float = 0.0, most: float = highspy.kHighsInf) -> int:
        """A column between 0 and ``most``."""
        self._highs.addVar(0.0, most)
        self._highs.changeColCost(self._columns, cost / _DOLLAR)
        self._columns += 1
        return self._columns - 1

    def at_least(self, amount: float, terms: Iterable[tuple[int, float]]) -> None:
        """``Σ factor·variable ≥ amount``. ``terms``: columns with their factors."""
        columns, factors = zip(*terms, strict=True)
        self._highs.addRow(
            amount, highspy.kHighsInf, len(columns), np.array(columns, dtype=np.int32), np.array(factors, dtype=float)
        )

    def solve(self) -> float:
        self._highs.run()
        return float(self._highs.getInfo().objective_function_value) * _DOLLAR


def find_bound(snapshot: Snapshot, catalog: Catalog, most_evictions: int) -> float:
    """Picodollars per hour; no cluster costs less that is made of this one with so many evictions."""
    candidates = _candidates(snapshot, catalog)
    nodes, spare, shapes = removal_order.build_problem(candidates, snapshot, catalog, filled=1.0, in_whole_pods=False)
    program = _Program()
    kept = [program.variable(cost=node.price, most=1.0) for node in nodes]
    bought = [program.variable(cost=shape.price) for shape in shapes]
    rooms = [(column, node.room) for column, node in zip(kept, nodes, strict=True)]
    rooms += [(column, shape.room) for column, shape in zip(bought, shapes, strict=True)]
    for d in range(len(spare)):
        needed = sum(node.room[d] for node in nodes) - spare[d]
        if needed > 0:
            program.at_least(1.0, [(column, room[d] / needed) for column, room in rooms])
    _limit_evictions(program, candidates, kept, most_evictions)
    return program.solve()


def find_bound_where_pods_fit(snapshot: Snapshot, catalog: Catalog, most_evictions: int) -> float:
    """As ``find_bound``, and a pod goes only to nodes on which it fits; higher, and a bound as well."""
    candidates = _candidates(snapshot, catalog)
    _, _, shapes = removal_order.build_problem(candidates, snapshot, catalog, filled=1.0, in_whole_pods=False)
    free = removal_order.find_free_room(snapshot, catalog)
    pods = [_sizes(candidate) for candidate in candidates]
    sizes = sorted({size for counts in pods for size in counts})
    program = _Program()
    kept = [program.variable(cost=float(candidate.price), most=1.0) for candidate in candidates]
    bought = [program.variable(cost=shape.price) for shape in shapes]
    moved = _move(program, free, sizes, {candidate.node.name: k for candidate, k in zip(candidates, kept, strict=True)})
    on_bought = [program.variable() for _ in sizes]
    for size, elsewhere in zip(sizes, on_bought, strict=True):
        stay = [(column, float(counts[size])) for column, counts in zip(kept, pods, strict=True) if size in counts]
        places = [(column, 1.0) for column in (*moved[size], elsewhere)]
        program.at_least(sum(counts[size] for counts in pods), [*stay, *places])
    for d in range(len(removal_order.RESOURCES)):
        largest = max(1, max((size[d] for size in sizes), default=1))
        room = [(column, shape.room[d] / largest) for column, shape in zip(bought, shapes, strict=True)]
        asked = [(column, -size[d] / largest) for size, column in zip(sizes, on_bought, strict=True)]
        program.at_least(0.0, [*room, *asked])
    _limit_evictions(program, candidates, kept, most_evictions)
    return program.solve()


def _move(
    program: _Program, free: Mapping[str, Sequence[int]], sizes: Iterable[Size], part_kept: Mapping[str, int]
) -> dict[Size, list[int]]:
    """Columns for the pods of each size that go to nodes with room for one. ``part_kept``: of nodes that may go."""
    moved: dict[Size, list[int]] = {size: [] for size in sizes}
    for name, room in free.items():
        fitting = [size for size in moved if all(asked <= left for asked, left in zip(size, room, strict=True))]
        columns = [program.variable() for _ in fitting]
        for size, column in zip(fitting, columns, strict=True):
            moved[size].append(column)
        for d in range(len(room)) if fitting else ():
            terms = [(column, -size[d] / max(1, room[d])) for size, column in zip(fitting, columns, strict=True)]
            if name in part_kept:
                program.at_least(0.0, [*terms, (part_kept[name], 1.0)])
            else:
                program.at_least(-1.0, terms)
    return moved


def _candidates(snapshot: Snapshot, catalog: Catalog) -> list[Candidate]:
    return consolidation.find_candidates(snapshot, Plan(), catalog, locked=frozenset())[0]


def _sizes(candidate: Candidate) -> Counter[Size]:
    """How many of its pods are of each size."""
    return Counter(
        tuple(1 if name == resources.PODS else pod.requests.get(name, 0) for name in removal_order.RESOURCES)
        for pod in candidate.moving_pods
    )


def _limit_evictions(
    program: _Program, candidates: Sequence[Candidate], kept: Sequence[int], most_evictions: int
) -> None:
    """As many evictions as nodes have that go."""
    moving = [float(candidate.eviction_cost) for candidate in candidates]
    program.at_least(sum(moving) - most_evictions, zip(kept, moving, strict=True))
