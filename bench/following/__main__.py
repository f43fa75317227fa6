"""`python -m bench.following`: does kube-scheduler put pods where the plan meant them, and what makes it do so?

A real etcd, API server, controller manager and kube-scheduler; the planner's plan for a batch of pods; the plan's nodes
join one after another as machines do (5 to 20 s, Ready 3 to 8 s later). Every way of helping kube-scheduler plays the
same batch at the same time, kept apart by a node selector.
"""

import argparse
import dataclasses
import sys
import tempfile
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Final

from bench.following.run import Run, RunResult, Variant
from bench.following.workloads import NODEPOOL, WORKLOADS, catalog
from local.kubernetes.binaries import ensure_built
from local.kubernetes.control_plane import ControlPlane, ControlPlaneStarter
from local.ports import Ports
from local.processes import Processes

# Reaction of ours to a node that turned Ready, seconds: forwarder, queue and function together.
REACTION_SECONDS: Final = 0.5
VARIANTS: Final = (
    Variant("nothing"),
    Variant("nominated before the Node exists", nominate="planned"),
    Variant("nominated when the Node registers", nominate="registered"),
    Variant("batch held by a taint", hold="batch"),
    Variant("batch held, then nominated", nominate="ready", hold="batch"),
    Variant("Node held until Ready, then nominated", nominate="ready", hold="node"),
    Variant("the same, and nominated again", nominate="ready", hold="node", repeats=True),
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.following")
    parser.add_argument("--seeds", type=int, default=3, help="batches of each workload (default: 3)")
    parser.add_argument("--pods", type=int, default=120, help="pods of a batch (default: 120)")
    parser.add_argument("--workload", choices=tuple(WORKLOADS), help="only this one (default: all)")
    options = parser.parse_args()
    directory = Path(tempfile.mkdtemp(prefix="spotwright-following-"))
    print(f"a real control plane, logs in {directory / 'logs'}; about a minute per batch", file=sys.stderr)
    with Processes(directory / "logs") as processes:
        ports = Ports()
        starter = ControlPlaneStarter(
            directory, ensure_built(lambda text: print(text, file=sys.stderr)), processes, ports
        )
        # Nobody logs in with a token here, so there is no AWS behind the authenticator.
        plane = starter.start(
            aws_endpoint="http://127.0.0.1:9", cluster="bench", environment={"PYTHONPATH": str(Path.cwd())}
        )
        for workload in [options.workload] if options.workload else WORKLOADS:
            _report(workload, [_batch(plane, workload, seed, options.pods) for seed in range(options.seeds)])
        ports.close()
    return 0


def _batch(plane: ControlPlane, workload: str, seed: int, pods: int) -> list[RunResult]:
    """One batch, all ways at once; outcomes in the order of WAYS."""
    ready = threading.Barrier(len(VARIANTS))
    plays = [
        Run(plane, way, name=f"{workload}-{seed}-{number}", pool=NODEPOOL, catalog=catalog(), reaction=REACTION_SECONDS)
        for number, way in enumerate(VARIANTS)
    ]
    with ThreadPoolExecutor(len(plays)) as threads:
        outcomes = list(threads.map(lambda play: play.run(WORKLOADS[workload](seed, pods), seed, ready), plays))
    for play in plays:
        play.clean()
    return outcomes


def _report(workload: str, batches: Sequence[Sequence[RunResult]]) -> None:
    first = batches[0][0]
    print(
        f"\n{workload}: {len(batches)} batches of {first.pods} pods; the first on {first.nodes} nodes"
        f" for $ {first.price:.3f}/h"
    )
    print(f"{'':<40}{'elsewhere':>10}{'left over':>10}{'empty':>7}{'$ more':>9}{'median s':>10}{'last s':>8}")
    for number, way in enumerate(VARIANTS):
        run_results = [batch[number] for batch in batches]
        pods = sum(run_result.pods for run_result in run_results)
        share = sum(run_result.elsewhere for run_result in run_results) / pods
        left = sum(run_result.unbound for run_result in run_results) / pods
        empty = sum(run_result.empty for run_result in run_results) / sum(
            run_result.nodes for run_result in run_results
        )
        extra = sum(run_result.extra_price for run_result in run_results) / sum(
            run_result.price for run_result in run_results
        )
        waits = [second for run_result in run_results for second in run_result.waits]
        last = median(max(run_result.waits) for run_result in run_results)
        print(f"{way.name:<40}{share:>10.1%}{left:>10.1%}{empty:>7.1%}{extra:>9.1%}{median(waits):>10.1f}{last:>8.1f}")
        for run_result in run_results:
            print("  ", dataclasses.replace(run_result, waits=()), file=sys.stderr)


if __name__ == "__main__":
    sys.exit(main())
