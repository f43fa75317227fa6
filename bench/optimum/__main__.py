"""`python -m bench.optimum`: plans of small batches beside the cheapest nodes there are, found by an outside solver.

The solver knows nothing of the planner (``bench/optimum/model.py`` reads the problem's file). What it found stays in
build/bench-optimum, so that only the planner runs again after a change. Costs include what a node costs besides its
instance, as the planner counts it.
"""

import argparse
import gc
import time
from collections.abc import Iterator
from pathlib import Path
from statistics import mean
from typing import Final

import msgspec

from bench.optimum.model import NODE_DOLLARS, read
from bench.optimum.solver import Optimum, find_optimum
from bench.planner import problems, spotwright_run
from bench.planner.workloads import KINDS
from spotwright.model.ec2.instance_type import PICOUSD
from spotwright.scheduling.pod_planner import plan_pods

FOLDER: Final = Path(__file__).parents[2] / "build" / "bench-optimum"
SIZES: Final = (10, 30, 100, 300)
SEEDS: Final = (10, 11, 12)
SECONDS: Final = 12.0
# A plan that costs so little more than the optimum is as good.
_EQUAL: Final = 1.0001


class Solved(msgspec.Struct, frozen=True):
    """``name``: of the problem; dollars an hour."""

    name: str
    seconds: float
    cost: float
    lower_bound: float


class Solutions:
    """What the solver found, a JSON line for each problem."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        self._path = path
        self._known = {
            solved.name: solved
            for solved in (msgspec.json.decode(line, type=Solved) for line in path.read_bytes().splitlines())
        }

    def optimum(self, problem: Path, planned_cost: float, seconds: float) -> Optimum:
        """Solved unless it was solved with as much time; no dearer than the plan."""
        solved = self._known.get(problem.stem)
        if solved is None or solved.seconds < seconds:
            found = find_optimum(read(problem), planned_cost, seconds)
            solved = self._known[problem.stem] = Solved(problem.stem, seconds, found.cost, found.lower_bound)
            with self._path.open("ab") as file:
                file.write(msgspec.json.encode(solved) + b"\n")
        return Optimum(min(solved.cost, planned_cost), solved.lower_bound)


def _planned(problem: Path) -> tuple[float, float, float, bool]:
    """What the plan costs, its own lower bound, the processor seconds it took, and whether it says that no cheaper
    nodes exist."""
    snapshot, catalog = spotwright_run.load(str(problem))
    gc.collect()
    started = time.process_time()
    plan = plan_pods(snapshot, catalog)
    seconds = time.process_time() - started
    cost = plan.price_picousd_per_hour / PICOUSD + NODE_DOLLARS * len(plan.new_nodes)
    return cost, plan.lower_bound_picousd_per_hour / PICOUSD, seconds, plan.is_cheapest


def _table(options: argparse.Namespace) -> Iterator[str]:
    yield "| pods | problems | best | above it, mean | worst | above the bound, mean | proved | cpu, mean | most |"
    yield "|---" * 9 + "|"
    solutions = Solutions(FOLDER / "solved.jsonl")
    plan_pods(*spotwright_run.load(str(problems.burst(FOLDER, "micro", 100, 1000))))
    for size in options.sizes:
        everything = list[tuple[float, float, bool, float]]()
        for kind in options.kinds:
            rows = [_compared(solutions, kind, size, seed, options.seconds) for seed in options.seeds]
            everything += rows
            yield _row(f"{kind}, {size}", rows)
        yield _row(f"all, {size}", everything)


def _compared(
    solutions: Solutions, kind: str, size: int, seed: int, seconds: float
) -> tuple[float, float, bool, float]:
    """By what factor the plan is above the optimum and the bound, whether the optimum is proved, processor seconds."""
    problem = problems.burst(FOLDER, kind, size, seed)
    cost, own_bound, spent, is_cheapest = _planned(problem)
    optimum = solutions.optimum(problem, cost, seconds)
    if is_cheapest:
        assert optimum.cost >= cost / _EQUAL, f"{problem.stem}: the plan says that no cheaper nodes exist; some do"
        own_bound = cost
    return cost / optimum.cost, cost / max(optimum.lower_bound, own_bound), optimum.is_proved, spent


def _row(name: str, rows: list[tuple[float, float, bool, float]]) -> str:
    above = [row[0] for row in rows]
    return (
        f"| {name} | {len(rows)} | {sum(factor <= _EQUAL for factor in above)} | {mean(above) - 1:.2%}"
        f" | {max(above) - 1:.1%} | {mean(row[1] for row in rows) - 1:.2%} | {sum(row[2] for row in rows)}"
        f" | {mean(row[3] for row in rows):.2f} s | {max(row[3] for row in rows):.2f} s |"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.optimum", description=__doc__)
    parser.add_argument("--sizes", nargs="+", type=int, default=SIZES, help="pods; default: %(default)s")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS, help="workloads")
    parser.add_argument("--seeds", nargs="+", type=int, default=SEEDS, help="default: %(default)s")
    parser.add_argument(
        "--seconds", type=float, default=SECONDS, help="the solver's, per problem; default: %(default)s"
    )
    return parser.parse_args()


def main() -> None:
    for line in _table(_options()):
        print(line, flush=True)


if __name__ == "__main__":
    main()
