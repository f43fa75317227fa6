"""`make bench-disruption`: what consolidation saves for how many evictions, and what deciding costs.

A cluster of nodes of up to 16 vCPU grows by bursts or by trickles; most of its pods may go then. Evaluations follow,
each with the candidates that Karpenter would look at (100), until one finds nothing; after each the nodes are as was
decided. With ``--evictions`` they end when so many percent of the pods were evicted. Large clusters (``--times``) are
the same nodes and pods many times.

Beside it stand what no plan with so many evictions can go below, by linear programming (with all that is free counted,
and only where pods fit), and what a cluster without any
node would be bought for, for which every pod would move. With ``--karpenter`` the real disruption methods of Karpenter
take their turn on the same cluster, command after command, as far as the same evictions go.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from bench.disruption.bound import find_bound, find_bound_where_pods_fit
from bench.disruption.cluster import SimulatedCluster
from bench.disruption.karpenter import Karpenter, Step
from bench.planner import problems
from bench.planner.runs import build_karpenter
from bench.planner.spotwright_run import load
from spotwright.decisions.decide import decide
from spotwright.disruption.consolidation import consolidate
from spotwright.model.ec2.instance_type import PICOUSD
from spotwright.model.snapshot import SPOT_TO_SPOT_CONSOLIDATION, Snapshot
from spotwright.scheduling.plan import Plan

ROUNDS: Final = 60
# Of a node, so that there are many.
MOST_CORES: Final = 16
HEAD: Final = (
    "| Cluster | Nodes | Pods | $/h | Saved | Pods moved | Evaluations | Most saved (LP) | where pods fit | Rebuilt |"
    " Karpenter saved | moved | commands | First, processor | MB |\n"
    "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|"
)
# What becomes of a cluster: pods that come at a time (0 = all at once), percent of the pods that stay.
SHAPES: Final = {"shrunk": ("shrunk to 45 %", 0, 45), "trickle": ("grown by 20 pods", 20, 100)}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.disruption", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pods", type=int, nargs="+", default=[1000, 5000], help="before the cluster shrinks")
    parser.add_argument("--kinds", nargs="+", default=["micro", "mixed"], help="workloads")
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=list(SHAPES))
    parser.add_argument("--times", type=int, default=1, help="how many times the same nodes and pods")
    parser.add_argument("--spot", action="store_true", help="nodes may be spot")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--evictions", type=int, nargs="+", default=[], help="percent of the pods: a row for each")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="evaluations at most")
    parser.add_argument("--karpenter", type=int, default=0, metavar="COMMANDS", help="of Karpenter's, at most")
    options = parser.parse_args(arguments)
    binary = build_karpenter(print) if options.karpenter else None
    print(HEAD)
    with tempfile.TemporaryDirectory() as folder:
        for count in options.pods:
            for kind in options.kinds:
                path = problems.burst(Path(folder), kind, count, options.seed, MOST_CORES, spot=options.spot)
                for shape in options.shapes:
                    for row in _rows(path, kind, shape, binary, options):
                        print(row, flush=True)
    return 0


def _rows(path: Path, kind: str, shape: str, binary: Path | None, options: argparse.Namespace) -> Iterator[str]:
    problem, catalog = load(str(path))
    name, batch, percent = SHAPES[shape]
    cluster = SimulatedCluster(_with_spot_to_spot(problem), catalog)
    cluster.grow(problem.pods, batch or len(problem.pods))
    cluster.shrink(percent, options.seed)
    cluster.repeat(options.times)
    grown = cluster.snapshot
    limits: list[int | None] = options.evictions or [None]
    steps = list(Karpenter(binary, path).steps(cluster, options.karpenter)) if binary else None
    for limit in limits:
        cluster.snapshot = grown
        limited = "" if limit is None else f", {limit} % evicted"
        yield _row(f"{kind}{', spot' if options.spot else ''}, {name}{limited}", cluster, limit, options.rounds, steps)


def _with_spot_to_spot(problem: Snapshot) -> Snapshot:
    gates = tuple(sorted({*problem.settings.feature_gates, SPOT_TO_SPOT_CONSOLIDATION}))
    return msgspec.structs.replace(problem, settings=msgspec.structs.replace(problem.settings, feature_gates=gates))


def _row(
    name: str, cluster: SimulatedCluster, limit: int | None, most_rounds: int, steps: Sequence[Step] | None
) -> str:
    before, nodes, pods = cluster.price_picousd_per_hour, len(cluster.snapshot.nodes), len(cluster.snapshot.pods)
    most = None if limit is None else pods * limit // 100
    bounds = [
        1 - find(cluster.snapshot, cluster.catalog, pods if most is None else most) / before
        for find in (find_bound, find_bound_where_pods_fit)
    ]
    rebuilt = f"{1 - _rebuilt(cluster) / before:.1%}" if most_rounds > 1 else ""
    moved, rounds, first, settled, peak = 0, 0, 0.0, False, 0
    while not settled and rounds < most_rounds:
        rounds += 1
        _forget_peak()
        started = time.process_time()
        left = None if most is None else most - moved
        found = consolidate(cluster.snapshot, Plan(), cluster.catalog, locked=frozenset(), most_evictions=left)
        first, peak = first or time.process_time() - started, peak or _peak_mb()
        moved += sum(move.evictions for move in found.moves)
        settled = not found.moves
        if not settled:
            cluster.apply(found)
    after = cluster.price_picousd_per_hour
    return (
        f"| {name} | {nodes} | {pods} | {before / PICOUSD:.2f} | {1 - after / before:.1%} | {moved / pods:.0%} |"
        f" {rounds} |"
        f" {bounds[0]:.1%} | {bounds[1]:.1%} | {rebuilt} |"
        f" {_karpenter(steps, before, pods, most)} | {first:.2f} s | {peak} |"
    )


def _karpenter(steps: Sequence[Step] | None, before: int, pods: int, most: int | None) -> str:
    """What it has saved when its next command would evict too many pods; None = it was not asked."""
    if steps is None:
        return " | | "
    taken, moved, price = 0, 0, before
    for step in steps:
        if most is not None and moved + step.evictions > most:
            break
        taken, moved, price = taken + 1, moved + step.evictions, step.price_picousd_per_hour
    return f"{1 - price / before:.1%} | {moved / pods:.0%} | {taken}"


def _rebuilt(cluster: SimulatedCluster) -> int:
    """What the same pods would be bought for if there were no node."""
    empty = SimulatedCluster(cluster.snapshot, cluster.catalog)
    waiting = tuple(
        msgspec.structs.replace(pod, node_name="", phase="Pending", unschedulable=True) for pod in cluster.snapshot.pods
    )
    plan = decide(msgspec.structs.replace(empty.snapshot, pods=waiting), cluster.catalog)
    return plan.price_picousd_per_hour


def _forget_peak() -> None:
    """The largest size of the process counts from now on; see proc(5), clear_refs."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")


def _peak_mb() -> int:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) // 1024


if __name__ == "__main__":
    raise SystemExit(main())
