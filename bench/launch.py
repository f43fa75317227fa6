"""`make bench-launch`: 2,000 pods need 300 nodes while 30 % of offerings have no capacity and EC2 counts requests.

The library plans and launches against the local AWS in this process, with the request limits that EC2 publishes, in
virtual time: what EC2 would refuse is refused here. Exits with 1 when a goal is missed.
"""

import argparse
import hashlib
import os
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from bench.burst import BurstResult, run_burst
from local.aws import moto_setup

REGION: Final = "ap-northeast-2"
CLUSTER: Final = "dev-eks-cluster"
PODS: Final = 2000
EMPTY_PERCENT: Final = 30
# (millicores, MiB) of the pods of eight Deployments: small and large, narrow and wide.
SHAPES: Final = (
    (500, 1024), (1000, 2048), (1000, 8192), (1500, 3072), (1500, 6144), (500, 4096), (2000, 4096), (1500, 12288),
)  # fmt: skip
# Sizes that make the burst 300 nodes.
CPUS: Final = ("8",)

type Row = tuple[str, str, str]


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench-launch")
    parser.add_argument("--pods", type=int, default=PODS)
    pods = parser.parse_args().pods
    os.environ.setdefault("AWS_EC2_METADATA_DISABLED", "true")
    moto_setup.prepare(REGION)
    directory = Path(tempfile.mkdtemp(prefix="spotwright-bench-launch-"))
    print(f"{pods} pods, {EMPTY_PERCENT} % of offerings empty; EC2's calls in {directory / 'logs'}", file=sys.stderr)
    started = time.perf_counter()
    burst_result = run_burst(
        directory, region=REGION, cluster=CLUSTER, shapes=SHAPES, pods=pods, cpus=CPUS, is_empty=is_empty
    )
    for name, figure, goal in rows(burst_result, pods):
        print(f"{name:<58} {figure:>16}   {goal}", flush=True)
    print(f"{'the bench itself':<58} {time.perf_counter() - started:>14.0f} s")
    return 0 if is_good(burst_result, pods) else 1


def is_empty(capacity_type: str, instance_type: str, zone: str) -> bool:
    """A fixed share of offerings, told by a hash."""
    digest = hashlib.sha256(f"{capacity_type}/{instance_type}/{zone}".encode()).digest()
    return int.from_bytes(digest[:4]) % 100 < EMPTY_PERCENT


def rows(burst_result: BurstResult, pods: int) -> Iterable[Row]:
    yield "nodes launched", str(burst_result.nodes), "about 300" if pods == PODS else ""
    yield "pods with a node that is launched for them", str(burst_result.placed), f"{pods}"
    yield "offerings without capacity", f"{burst_result.empty_offerings} of {burst_result.offerings}", ""
    yield "CreateFleet calls", str(burst_result.calls["CreateFleet"]), "≤ 40"
    yield "answers RequestLimitExceeded", str(burst_result.throttled), "0"
    yield "pods decided for once", str(burst_result.rounds[1]), ""
    yield "pods decided for twice (one extra round)", str(burst_result.rounds[2]), ""
    yield "pods decided for more often", str(burst_result.decided_often), "0"
    yield "seconds of virtual time until all is launched", str(burst_result.seconds), ""
    others: Mapping[str, int] = {name: n for name, n in sorted(burst_result.calls.items()) if name != "CreateFleet"}
    for name, count in others.items():
        yield f"{name} calls", str(count), ""


def is_good(burst_result: BurstResult, pods: int) -> bool:
    everything = burst_result.placed == pods and burst_result.decided_often == 0
    return everything and burst_result.calls["CreateFleet"] <= 40 and burst_result.throttled == 0


if __name__ == "__main__":
    sys.exit(main())
