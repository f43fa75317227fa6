"""`python -m bench.ablation`: what plans cost with each strategy and constant of the search switched off in turn.

Prints a Markdown table: by how much the plans of each group cost more, pods that lose or gain a place, processor time.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from multiprocessing import Pool
from pathlib import Path
from typing import Final

import msgspec

from bench.ablation.switches import SWITCHES, Switch, switched_off
from bench.planner import problems, spotwright_run
from bench.planner.workloads import KINDS
from spotwright.model import labels
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.requirements import NodeSelectorRequirement, Operator
from spotwright.scheduling.planner import plan

SIZES: Final = (100, 1000)


class Problem(msgspec.Struct, frozen=True):
    group: str
    path: str
    spot: bool = False


class Outcome(msgspec.Struct, frozen=True):
    group: str
    price: int
    unplaced: int
    seconds: float


def _problems(folder: Path, sizes: Sequence[int]) -> Iterator[Problem]:
    for size in sizes:
        for kind in KINDS:
            for cores in (0, 64):
                path = str(problems.burst(folder, kind, size, 0, cores))
                yield Problem(f"on-demand {size}", path)
                yield Problem(f"spot {size}", path, spot=True)
        for seed in range(2):
            yield Problem("mix", str(problems.mix(folder, size, seed)))


def _allow_spot(pool: NodePool) -> NodePool:
    both = NodeSelectorRequirement(labels.CAPACITY_TYPE, Operator.IN, (labels.ON_DEMAND, labels.SPOT))
    others = (requirement for requirement in pool.requirements if requirement.key != labels.CAPACITY_TYPE)
    return msgspec.structs.replace(pool, requirements=(*others, both))


def _outcomes(problem: Problem) -> list[Outcome]:
    """The planner as it is first, then with each switch off."""
    snapshot, catalog = spotwright_run.load(problem.path)
    if problem.spot:
        pools = tuple(_allow_spot(pool) for pool in snapshot.nodepools)
        snapshot = msgspec.structs.replace(snapshot, nodepools=pools)
    outcomes = []
    for switch in (None, *SWITCHES):
        with switched_off(switch):
            started = time.process_time()
            decided = plan(snapshot, catalog)
            seconds = time.process_time() - started
        unplaced = len(decided.unschedulable_pods)
        outcomes.append(Outcome(problem.group, decided.price_picousd_per_hour, unplaced, seconds))
    return outcomes


def _table(results: Sequence[Sequence[Outcome]]) -> Iterator[str]:
    groups = list(dict.fromkeys(outcomes[0].group for outcomes in results))
    yield f"| Switched off | What it does | {' | '.join(groups)} | Unplaced pods | Time |"
    yield "|---" * (len(groups) + 4) + "|"
    before = [outcomes[0] for outcomes in results]
    for number, switch in enumerate(SWITCHES, 1):
        yield _row(switch, groups, before, [outcomes[number] for outcomes in results])


def _row(switch: Switch, groups: Sequence[str], before: Sequence[Outcome], after: Sequence[Outcome]) -> str:
    cells = []
    for group in groups:
        prices = [sum(outcome.price for outcome in side if outcome.group == group) for side in (before, after)]
        cells.append(f"{100 * (prices[1] / prices[0] - 1):+.2f} %")
    unplaced = sum(outcome.unplaced for outcome in after) - sum(outcome.unplaced for outcome in before)
    seconds = sum(outcome.seconds for outcome in after) / sum(outcome.seconds for outcome in before)
    return f"| `{switch.name}` | {switch.does} | {' | '.join(cells)} | {unplaced:+} | × {seconds:.2f} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="pods of a problem")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, Pool(options.processes) as pool:
        for line in _table(pool.map(_outcomes, list(_problems(Path(folder), options.sizes)), chunksize=1)):
            print(line)


if __name__ == "__main__":
    main()
