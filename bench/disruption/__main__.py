"""`make bench-disruption`: what consolidation saves for how many evictions, and what deciding costs.

A cluster of nodes of up to 16 vCPU grows by bursts or by trickles, on demand; most of its pods may go then.
Evaluations follow, each with the candidates that Karpenter would look at (100), until one finds nothing; after each
the nodes are as was decided. With ``--evictions`` they end when so many percent of the pods were evicted. Beside it
stands what a cluster without any node would be bought for, for which every pod would move.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from bench.disruption.cluster import SimulatedCluster
from bench.planner import problems
from bench.planner.spotwright_run import load
from spotwright.decisions.decide import decide
from spotwright.disruption.consolidation import consolidate
from spotwright.model.ec2.instance_type import PICOUSD
from spotwright.scheduling.plan import Plan

ROUNDS: Final = 60
# Of a node, so that there are many.
MOST_CORES: Final = 16
HEAD: Final = (
    "| Cluster | Nodes | Pods | Evaluations | Saved | Pods moved | Nodes after | Rebuilt | First, processor |\n"
    "|---|---|---|---|---|---|---|---|---|"
)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.disruption", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--pods", type=int, nargs="+", default=[1000, 5000], help="before the cluster shrinks")
    parser.add_argument("--kinds", nargs="+", default=["micro", "mixed"], help="workloads")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--evictions", type=int, nargs="+", default=[], help="percent of the pods: a row for each")
    options = parser.parse_args(arguments)
    print(HEAD)
    with tempfile.TemporaryDirectory() as folder:
        for count in options.pods:
            for kind in options.kinds:
                for row in _rows(Path(folder), kind, count, options.seed, options.evictions or [None]):
                    print(row, flush=True)
    return 0


def _rows(folder: Path, kind: str, count: int, seed: int, limits: Sequence[int | None]) -> Iterator[str]:
    problem, catalog = load(str(problems.burst(folder, kind, count, seed, MOST_CORES)))
    for name, batch, percent in (("shrunk to 45 %", count, 45), ("grown by 20 pods", 20, 100)):
        cluster = SimulatedCluster(problem, catalog)
        cluster.grow(problem.pods, batch)
        cluster.shrink(percent, seed)
        grown = cluster.snapshot
        for limit in limits:
            cluster.snapshot = grown
            limited = "" if limit is None else f", {limit} % evicted"
            yield _row(f"{kind}, {name}{limited}", cluster, limit)


def _row(name: str, cluster: SimulatedCluster, limit: int | None) -> str:
    before, nodes, pods = cluster.price_picousd_per_hour, len(cluster.snapshot.nodes), len(cluster.snapshot.pods)
    rebuilt = _rebuilt(cluster)
    most = None if limit is None else pods * limit // 100
    moved, rounds, first, settled = 0, 0, 0.0, False
    while not settled and rounds < ROUNDS:
        rounds += 1
        started = time.process_time()
        left = None if most is None else most - moved
        found = consolidate(cluster.snapshot, Plan(), cluster.catalog, locked=frozenset(), most_evictions=left)
        first = first or time.process_time() - started
        moved += sum(move.evictions for move in found.moves)
        settled = not found.moves
        if not settled:
            cluster.apply(found)
    after = cluster.price_picousd_per_hour
    return (
        f"| {name} | {nodes} | {pods} | {rounds} | {1 - after / before:.1%} of ${before / PICOUSD:.2f}/h |"
        f" {moved / pods:.0%} | {len(cluster.snapshot.nodes)} | {1 - rebuilt / before:.1%} | {first:.2f} s |"
    )


def _rebuilt(cluster: SimulatedCluster) -> int:
    """What the same pods would be bought for if there were no node."""
    empty = SimulatedCluster(cluster.snapshot, cluster.catalog)
    waiting = tuple(
        msgspec.structs.replace(pod, node_name="", phase="Pending", unschedulable=True) for pod in cluster.snapshot.pods
    )
    plan = decide(msgspec.structs.replace(empty.snapshot, pods=waiting), cluster.catalog)
    return plan.price_picousd_per_hour


if __name__ == "__main__":
    raise SystemExit(main())
