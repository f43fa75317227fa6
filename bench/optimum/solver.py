"""The cheapest nodes for a problem, and a bound that no nodes are below, with HiGHS, a solver of integer programs.

First the nodes: whole numbers of each shape that hold all pods if pods may be divided. Then the pods: can they be
packed on these nodes? If so, no cheaper nodes exist. If not, these nodes, and all with fewer of each shape, are
excluded, and the next are tried. The first program bounds the cost from below all the time; nodes with room to spare
are tried before all others, since pods fit on them more easily.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import highspy

from bench.optimum.model import NODE_DOLLARS, PodKind, Problem, Shape
from bench.planner.workloads import ZONES

# Room to spare, in turn.
_SLACKS: Final = (0.08, 0.05, 0.03, 0.02, 0.01, 0.005)
# The most nodes that are excluded one after the other.
_MOST_EXCLUDED: Final = 60
_PACKING_SECONDS: Final = 3.0
# Costs that differ by no more are equal.
CLOSE: Final = 1e-5

type Counts = tuple[int, ...]
"""How many nodes of each shape."""


@dataclass(frozen=True)
class Optimum:
    """Dollars an hour: ``cost`` of the best nodes found, which no plan is below ``lower_bound``."""

    cost: float
    lower_bound: float

    @property
    def is_proved(self) -> bool:
        return self.cost <= self.lower_bound * (1 + 3 * CLOSE)


def find_optimum(problem: Problem, known_cost: float, seconds: float) -> Optimum:
    """``known_cost``: of a plan that exists."""
    begun = time.monotonic()
    deadline = begun + seconds
    _, lower_bound = _NodeProgram(problem, 0.0, known_cost, ()).solve(seconds / 4)
    best = known_cost
    for slack in _SLACKS:
        if time.monotonic() > begun + seconds / 2:
            break
        counts, _ = _NodeProgram(problem, slack, best, ()).solve(seconds / 8)
        if counts is not None and (packed := _pack(problem, counts)):
            best = min(best, packed)
    excluded, is_bound = list[Counts](), True
    while time.monotonic() < deadline and len(excluded) < _MOST_EXCLUDED:
        counts, bound = _NodeProgram(problem, 0.0, best, excluded).solve(max(deadline - time.monotonic(), 1.0))
        if is_bound:
            lower_bound = max(lower_bound, min(bound, best))
        if counts is None:
            break
        packed = _pack(problem, counts)
        if packed:
            best = min(best, packed)
        else:
            # Where it is not known whether they fit, all that follows is no bound any more.
            is_bound = is_bound and packed is not None
            excluded.append(counts)
    return Optimum(best, min(lower_bound, best))


def cost_of(shape: Shape) -> float:
    return shape.dollars + NODE_DOLLARS


class _Program:
    """An integer program of HiGHS."""

    def __init__(self) -> None:
        self.highs = highspy.Highs()  # type: ignore[no-untyped-call]
        self.highs.setOptionValue("output_flag", False)
        self.highs.setOptionValue("threads", 1)
        self.highs.setOptionValue("mip_rel_gap", CLOSE / 10)
        self.columns = 0

    def add_column(self, least: float, most: float, cost: float = 0.0, *, is_whole: bool = True) -> int:
        self.highs.addVar(least, most)
        self.highs.changeColCost(self.columns, cost)
        if is_whole:
            self.highs.changeColIntegrality(self.columns, highspy.HighsVarType.kInteger)
        self.columns += 1
        return self.columns - 1

    def add_row(self, least: float, most: float, terms: dict[int, float]) -> None:
        self.highs.addRow(least, most, len(terms), list(terms), list(terms.values()))

    def run(self, seconds: float) -> list[int] | None:
        """The values of the columns; None where there is no solution, or none was found."""
        self.highs.setOptionValue("time_limit", seconds)
        self.highs.run()
        found = self.highs.getInfo().primal_solution_status == highspy.SolutionStatus.kSolutionStatusFeasible
        return [round(value) for value in self.highs.getSolution().col_value] if found else None

    @property
    def is_infeasible(self) -> bool:
        return bool(self.highs.getModelStatus() == highspy.HighsModelStatus.kInfeasible)


class _NodeProgram:
    """How many nodes of each shape, so that they hold all pods if pods may be divided. Cheaper than ``below``."""

    def __init__(self, problem: Problem, slack: float, below: float, excluded: Sequence[Counts]) -> None:
        self._problem = problem
        self._below = below
        self._program = program = _Program()
        self._most = [int(below / cost_of(shape)) for shape in problem.shapes]
        for shape, most in zip(problem.shapes, self._most, strict=True):
            program.add_column(0, most, cost_of(shape))
        self._in_zone = {
            (kind, zone): program.add_column(count // len(ZONES), -(-count // len(ZONES)))
            for kind, count in problem.pods.items()
            if kind.is_spread
            for zone in ZONES
        }
        for kind, count in problem.pods.items():
            if kind.is_spread:
                program.add_row(count, count, {self._in_zone[kind, zone]: 1.0 for zone in ZONES})
        self._add_pods(1 + slack)
        program.add_row(0, below * (1 - CLOSE), {i: cost_of(shape) for i, shape in enumerate(problem.shapes)})
        for counts in excluded:
            self._exclude(counts)

    def _add_pods(self, factor: float) -> None:
        """The nodes of each shape together have room for a share of the pods, in fractions, and all pods have a share.

        ``factor``: by which every pod is larger.
        """
        program, pods = self._program, self._problem.pods
        shares = {
            (i, kind): program.add_column(0, count, is_whole=False)
            for i, shape in enumerate(self._problem.shapes)
            for kind, count in pods.items()
            if shape.most(kind)
        }
        for i, shape in enumerate(self._problem.shapes):
            here = [kind for kind in pods if (i, kind) in shares]
            for resource, room in enumerate(shape.room):
                terms = {shares[i, kind]: factor * kind.size[resource] for kind in here if kind.size[resource]}
                program.add_row(-highspy.kHighsInf, 0.0, terms | {i: -float(room)})
            for kind in here:
                program.add_row(-highspy.kHighsInf, 0.0, {shares[i, kind]: 1.0, i: -float(shape.most(kind))})
        for kind, count in pods.items():
            for zone in ZONES if kind.is_spread else ("",):
                terms = {
                    shares[i, kind]: 1.0
                    for i, shape in enumerate(self._problem.shapes)
                    if (i, kind) in shares and zone in ("", shape.zone)
                }
                in_zone = {self._in_zone[kind, zone]: -1.0} if zone else {}
                program.add_row(0.0 if zone else count, highspy.kHighsInf, terms | in_zone)

    def _exclude(self, counts: Counts) -> None:
        """There are more nodes of some shape than these."""
        more = {}
        for i, count in enumerate(counts):
            if count < self._most[i]:
                more[self._program.add_column(0, 1)] = 1.0
                self._program.add_row(0.0, highspy.kHighsInf, {i: 1.0, self._program.columns - 1: -float(count + 1)})
        self._program.add_row(1.0, highspy.kHighsInf, more)

    def solve(self, seconds: float) -> tuple[Counts | None, float]:
        """The cheapest nodes, None where none are cheaper than ``below`` or none were found; what none are below."""
        values = self._program.run(seconds)
        if self._program.is_infeasible:
            return None, self._below
        counts = None if values is None else tuple(values[: len(self._problem.shapes)])
        return counts, max(float(self._program.highs.getInfo().mip_dual_bound), 0.0)


def _pack(problem: Problem, counts: Counts) -> float | None:
    """What the nodes cost with the pods on them, each as the cheapest shape for its pods; 0 where the pods do not fit,
    None where that is not known."""
    nodes = [shape for shape, count in zip(problem.shapes, counts, strict=True) for _ in range(count)]
    program = _Program()
    column = {
        (node, kind): program.add_column(0, min(shape.most(kind), count))
        for node, shape in enumerate(nodes)
        for kind, count in problem.pods.items()
        if shape.most(kind)
    }
    for node, shape in enumerate(nodes):
        for resource, room in enumerate(shape.room):
            on_node = {
                column[node, kind]: float(kind.size[resource]) for kind in problem.pods if (node, kind) in column
            }
            program.add_row(0.0, room, on_node)
    for kind, count in problem.pods.items():
        for zone in ZONES if kind.is_spread else ("",):
            least, most = (count // len(ZONES), -(-count // len(ZONES))) if zone else (count, count)
            terms = {
                column[node, kind]: 1.0
                for node, shape in enumerate(nodes)
                if (node, kind) in column and zone in ("", shape.zone)
            }
            program.add_row(least, most, terms)
        program.add_row(count, count, {column[node, kind]: 1.0 for node in range(len(nodes)) if (node, kind) in column})
    values = program.run(_PACKING_SECONDS)
    if values is None:
        return 0.0 if program.is_infeasible else None
    return sum(
        _cheapest(problem, shape, {kind: values[column[node, kind]] for kind in problem.pods if (node, kind) in column})
        for node, shape in enumerate(nodes)
    )


def _cheapest(problem: Problem, node: Shape, pods: dict[PodKind, int]) -> float:
    """What the cheapest shape in the node's zone costs that holds the pods; 0 without pods."""
    pods = {kind: count for kind, count in pods.items() if count}
    used = [sum(count * kind.size[resource] for kind, count in pods.items()) for resource in range(3)]
    needs_new = any(kind.needs_new for kind in pods)
    return (
        next(
            cost_of(shape)
            for shape in problem.shapes
            if shape.zone == node.zone
            and shape.is_new >= needs_new
            and all(room >= amount for room, amount in zip(shape.room, used, strict=True))
        )
        if pods
        else 0.0
    )
