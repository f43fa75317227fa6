"""`python -m bench.planner`: our planner beside the real Karpenter scheduler, on the same pods, types and prices.

What was measured stays in build/bench-planner: a run that was broken off goes on where it stopped, and after a change
to one of the two only that one is measured again. Seconds are of processor time, all threads together: they bear a
machine that is busy with something else.
"""

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Final

import msgspec

from bench.planner import problems, runs
from bench.planner.record import KARPENTER, SPOTWRIGHT, Record
from bench.planner.runs import Outcome
from bench.planner.workloads import KINDS

SIZES: Final = (100, 1000, 5000, 10_000)
SEEDS: Final = 3
RUNS: Final = 3
# From so many pods on Karpenter needs up to a minute for one problem, and runs once.
_LONG: Final = 10_000
FOLDER: Final = Path(__file__).parents[2] / "build" / "bench-planner"
_HEADINGS: Final = {
    "bursts": "pods into an empty cluster; cost beside the default pool, and both beside a pool of at most 64 vCPU",
    "spot": "the same pods where the NodePool allows spot and on-demand; beside the default pool",
    "limits": "the same pods where the NodePool's limit is so many percent of the cpu they request",
    "mix": "Karpenter's own benchmark mix, 400 types",
    "deadline": "20,000 pods, nodes of at most 64 vCPU, Karpenter within its 60 s",
    "crowded": "2,170 pods before 1,060 nearly full nodes, 20 NodePools of 700 types; the shape of core#3152 with GPUs",
    "memory": "20,000 pods before 5,000 nodes, ours alone",
}


_HEADER: Final = (
    f"{'workload':<9}{'pods':>6} {'vCPU':>4} {'Karpenter':>11} {'ours':>10} {'saved':>7} {'worst':>7}"
    f" {'above bound':>11} {'worst':>6} {'Karpenter':>10} {'ours':>8} {'quicker':>8} {'slowest':>8}"
)


_LIMITS_HEADER: Final = (
    f"{'workload':<9}{'pods':>6} {'limit':>6} {'left by Karpenter':>18} {'by ours':>8} {'more left':>10}"
    f" {'Karpenter':>11} {'ours':>10} {'Karpenter':>10} {'ours':>8}"
)
# The NodePool's limit in percent of the cpu that the pods request: nearly all of them fit, or not all of them.
_LIMIT_PERCENTS: Final = (120, 105, 90)


class Bench:
    """One run of the benchmark. ``peers``: Karpenter runs per problem, of which the best counts."""

    def __init__(self, folder: Path, binary: Path, options: argparse.Namespace) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.record = Record(folder / "outcomes.jsonl")
        self.folder = folder
        self.binary = binary
        self.sizes: list[int] = options.sizes
        self.kinds: list[str] = options.kinds
        self.pools: list[int] = options.pools
        self.seeds: int = options.seeds
        self.peers: int = options.runs
        self.warm = problems.burst(folder, "micro", 100, 1000)
        self.parts: dict[str, Callable[[], Iterator[str]]] = {
            "bursts": self.bursts,
            "spot": self.spot,
            "limits": self.limits,
            "mix": self.mix,
            "deadline": self.deadline,
            "crowded": self.crowded,
            "memory": self.memory,
        }

    def pair(self, problem: Path, *, limit: int = 0, peers: int = 1) -> tuple[Outcome, Outcome]:
        """Ours, and of Karpenter's runs the cheapest with the time of the quickest."""
        outcomes = [self.karpenter(problem, limit, number) for number in range(peers)]
        best = min(outcomes, key=lambda one: (-one.placed, one.price))
        quickest = min(outcomes, key=lambda one: one.cpu_seconds)
        outcome = msgspec.structs.replace(best, seconds=quickest.seconds, cpu_seconds=quickest.cpu_seconds)
        return self.ours(problem), outcome

    def karpenter(self, problem: Path, limit: int, number: int) -> Outcome:
        settings = f"Karpenter, {limit} s, run {number}"
        return self.record.outcome(
            KARPENTER, problem, settings, lambda: runs.run_karpenter(self.binary, problem, self.warm, limit=limit)
        )

    def ours(self, problem: Path) -> Outcome:
        return self.record.outcome(SPOTWRIGHT, problem, "ours", lambda: runs.run_spotwright(problem, self.warm))

    def rounds(self, size: int) -> int:
        return self.peers if size < _LONG else 1

    def bursts(self) -> Iterator[str]:
        yield _HEADER
        for size in self.sizes:
            for kind in self.kinds:
                for cores in self.pools:
                    several = [problems.burst(self.folder, kind, size, seed, cores) for seed in range(self.seeds)]
                    pairs = [self.pair(one, peers=self.rounds(size)) for one in several]
                    yield f"{kind:<9}{size:>6} {cores or 'any':>4} {_compared(pairs)}"

    def spot(self) -> Iterator[str]:
        yield _HEADER
        for size in self.sizes:
            for kind in self.kinds:
                several = [problems.burst(self.folder, kind, size, seed, spot=True) for seed in range(self.seeds)]
                pairs = [self.pair(one, peers=self.rounds(size)) for one in several]
                yield f"{kind:<9}{size:>6} {'spot':>4} {_compared(pairs)}"

    def limits(self) -> Iterator[str]:
        yield _LIMITS_HEADER
        for size in self.sizes:
            for kind in self.kinds:
                for percent in _LIMIT_PERCENTS:
                    several = [
                        problems.near_limit(self.folder, kind, size, seed, percent) for seed in range(self.seeds)
                    ]
                    pairs = [self.pair(one, peers=self.rounds(size)) for one in several]
                    yield f"{kind:<9}{size:>6} {percent:>4} % {_near_limit(pairs)}"

    def mix(self) -> Iterator[str]:
        yield _HEADER
        for size in self.sizes:
            several = [problems.mix(self.folder, size, seed) for seed in range(self.seeds)]
            pairs = [self.pair(one, peers=self.rounds(size)) for one in several]
            yield f"{'mix':<9}{size:>6} {'any':>4} {_compared(pairs)}"

    def deadline(self) -> Iterator[str]:
        for kind in ("micro", "mixed"):
            problem = problems.burst(self.folder, kind, 20_000, 0, 64)
            yield from _both(kind, self.pair(problem, limit=runs.DEADLINE_SECONDS))

    def crowded(self) -> Iterator[str]:
        for kind in ("micro", "mixed"):
            yield from _both(kind, self.pair(problems.crowded(self.folder, kind, 0), limit=runs.DEADLINE_SECONDS))
        for sold_out in (False, True):
            problem = problems.gpus(self.folder, 0, sold_out=sold_out)
            name = f"gpus {'without' if sold_out else 'with'} capacity"
            yield from _both(name, self.pair(problem, limit=runs.DEADLINE_SECONDS))

    def memory(self) -> Iterator[str]:
        yield _line("memory, ours", self.ours(problems.large(self.folder, 20_000, 5000, 0)))


def _compared(pairs: list[tuple[Outcome, Outcome]]) -> str:
    """Medians over the seeds, and the worst seed beside: price, saving, gap to the bound, cpu seconds, ratio."""
    saved = [1 - outcome.price / theirs.price for outcome, theirs in pairs]
    gaps = [outcome.price / outcome.bound - 1 if outcome.bound else 0.0 for outcome, _ in pairs]
    spent = median(outcome.cpu_seconds for _, outcome in pairs), median(outcome.cpu_seconds for outcome, _ in pairs)
    ratios = [theirs.cpu_seconds / outcome.cpu_seconds for outcome, theirs in pairs]
    left = (
        sum(outcome.pods - outcome.placed for outcome, _ in pairs),
        sum(their.pods - their.placed for _, their in pairs),
    )
    return (
        f"{median(their.price for _, their in pairs):>11.3f} {median(outcome.price for outcome, _ in pairs):>10.3f}"
        f" {median(saved):>7.1%} {min(saved):>7.1%} {median(gaps):>11.2%} {max(gaps):>6.1%}"
        f" {spent[0]:>8.2f} s {spent[1]:>6.2f} s {median(ratios):>7.1f}x {min(ratios):>7.1f}x"
        + (f"  left behind: ours {left[0]}, theirs {left[1]}" * any(left))
    )


def _near_limit(pairs: list[tuple[Outcome, Outcome]]) -> str:
    """Over the seeds: pods left, in how many seeds ours leaves more of them, prices; median cpu seconds."""
    ours, theirs = [outcome for outcome, _ in pairs], [their for _, their in pairs]
    more = sum(outcome.placed < their.placed for outcome, their in pairs)
    return (
        f"{_left(theirs):>18} {_left(ours):>8} {more:>10}"
        f" {sum(their.price for their in theirs):>11.3f} {sum(outcome.price for outcome in ours):>10.3f}"
        f" {median(their.cpu_seconds for their in theirs):>8.2f} s"
        f" {median(outcome.cpu_seconds for outcome in ours):>6.2f} s"
    )


def _left(outcomes: list[Outcome]) -> int:
    return sum(outcome.pods - outcome.placed for outcome in outcomes)


def _both(name: str, pair: tuple[Outcome, Outcome]) -> Iterator[str]:
    yield _line(f"{name}, ours", pair[0])
    yield _line(f"{name}, Karpenter", pair[1])


def _line(name: str, outcome: Outcome) -> str:
    small = f", {outcome.small_placed} small" if outcome.small_placed else ""
    return (
        f"{name:<32} {outcome.seconds:>8.2f} s {outcome.cpu_seconds:>8.2f} s of cpu {outcome.peak_mb:>5} MB"
        f" {outcome.placed:>6} of {outcome.pods} placed{small}, {outcome.nodes} new nodes, ${outcome.price:.3f}/h"
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.planner", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=list(_HEADINGS), default=list(_HEADINGS), help="parts to run")
    parser.add_argument("--sizes", nargs="+", type=int, default=list(SIZES), help="pods; default: %(default)s")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="workloads of the bursts")
    parser.add_argument("--pools", nargs="+", type=int, choices=(0, 64), default=[0, 64], help="most vCPU; 0 = any")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="default: %(default)s")
    parser.add_argument(
        "--runs", type=int, default=RUNS, help=f"Karpenter's per problem below {_LONG} pods; default: %(default)s"
    )
    return parser.parse_args()


def main() -> int:
    options = _options()
    binary = runs.build_karpenter(lambda line: print(line, file=sys.stderr))
    bench = Bench(FOLDER, binary, options)
    for name in options.only:
        print(f"\n{name}: {_HEADINGS[name]} (load {os.getloadavg()[0]:.1f})", flush=True)
        for line in bench.parts[name]():
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
