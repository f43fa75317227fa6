"""`python -m bench.planning`: what `provision` needs beside a large cluster, from doorbell to committed decision.

One pod waits that fits on no node. The state or the listed pages of the cluster are read, a plan is made of them with
the types of us-east-1, snapshot and decision are stored: all of it by the product's code, while what is outside, such
as DynamoDB and the API server, answers at once. Each figure is of a process of its own that has the catalog already.
`make bench-scale` has everything around it as well, and needs a machine that does nothing else.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import msgspec

from bench.reading import TAKEN, read_nodes, read_pods, read_state_head, resident_megabytes, write_pages, write_state
from spotwright.adapters.aws.s3.blobs import S3Blobs
from spotwright.adapters.cluster_state.bodies import decode
from spotwright.cli.inputs.builtin_catalog import load_builtin_catalog
from spotwright.model.cluster_state import ClusterState, ClusterStateHead
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import Settings
from spotwright.simulation import builders
from spotwright.simulation.clock import Clock
from spotwright.simulation.cluster import FakeCluster
from spotwright.simulation.effects import Effects
from spotwright.simulation.state import FakeCatalogs, FakeDoorbells, FakeState
from spotwright.workflows.ports.cluster_state import ShippedHead
from spotwright.workflows.provision.workflow import provision

CLUSTER: Final = "main"
SIZES: Final = (1_000, 10_000, 50_000)
WAYS: Final = ("state", "lists")
#: More than any node of the cluster has left.
_POD_MILLICORES: Final = 7_000


class Planned(msgspec.Struct, frozen=True):
    """``seconds`` of processor time; ``megabytes``: the most that the process had; ``stored_bytes``: sent to S3."""

    seconds: float
    megabytes: float
    stored_bytes: int


class Bucket:
    """Takes what is stored."""

    def __init__(self) -> None:
        self.stored_bytes = 0

    def put_object(self, *, Body: bytes, **_: Any) -> None:
        self.stored_bytes += len(Body)


class ListedCluster(FakeCluster):
    """Lists read the pages of an API server from files; what waits is known besides."""

    folder: Path | None = None

    def pods(self, *, node: str = "", pending: bool = False, limit: int | None = None) -> tuple[Pod, ...]:
        own = super().pods(node=node, pending=pending, limit=limit)
        return own if self.folder is None or node or pending else (*read_pods(self.folder), *own)

    def nodes(self, *, limit: int | None = None) -> tuple[Node, ...]:
        return () if self.folder is None else read_nodes(self.folder)[:limit]


class Shipped:
    """See ClusterStatePort: the state in a folder, or none."""

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder

    def head(self, *, now: datetime) -> ShippedHead | None:
        return None if self._folder is None else ShippedHead(read_state_head(self._folder), now)

    def load(self, head: ClusterStateHead) -> ClusterState:
        assert self._folder is not None
        return decode(head, (self._folder / "full.state").read_bytes())


@dataclass
class Ports:
    """See ProvisionPorts."""

    cluster: ListedCluster
    cluster_state: Shipped
    state: FakeState
    blobs: S3Blobs
    doorbells: FakeDoorbells
    catalogs: FakeCatalogs
    settings: Settings = field(default_factory=Settings)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.planning", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, metavar="PODS")
    parser.add_argument("--way", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.way:
        print(msgspec.json.encode(measure(arguments.way, arguments.folder)).decode())
        return 0
    print("| nodes | pods | planned from | processor seconds | MB at most | MB stored |")
    print("|---|---|---|---|---|---|")
    for pods in arguments.sizes:
        with tempfile.TemporaryDirectory(prefix="spotwright-bench-") as name:
            write_cluster(Path(name), pods)
            for way in WAYS:
                print(_row(pods, way, _in_process(way, name)), flush=True)
    return 0


def write_cluster(folder: Path, pods: int) -> None:
    write_pages(folder, pods)
    write_state(folder)


def measure(way: str, folder: Path) -> Planned:
    """One pending pod, beside the cluster of a folder."""
    bucket = Bucket()
    ports = _ports(way, folder, bucket)
    # Linux alone: what was imported and decoded before counts as well, as it does in a function.
    Path("/proc/self/clear_refs").write_text("5")
    started = time.process_time()
    result = provision(ports, clock=lambda: TAKEN, seconds_left=lambda: 55.0)
    seconds = time.process_time() - started
    assert [len(plan.new_nodes) for plan in result.plans] == [1], result.plans
    return Planned(seconds, resident_megabytes("VmHWM"), bucket.stored_bytes)


def _ports(way: str, folder: Path, bucket: Bucket) -> Any:
    clock = Clock()
    effects = Effects(clock)
    cluster = ListedCluster(CLUSTER, clock, effects)
    cluster.put("nodepools", builders.nodepool())
    cluster.put("ec2nodeclasses", builders.nodeclass())
    cluster.put("pods", builders.pod("waits", cpu_millicores=_POD_MILLICORES, unschedulable=True))
    cluster.folder = folder if way == "lists" else None
    state = FakeState(CLUSTER, effects)
    state.current_catalog_key = "catalogs/given"
    client: Any = bucket
    return Ports(
        cluster=cluster,
        cluster_state=Shipped(folder if way == "state" else None),
        state=state,
        blobs=S3Blobs(client, bucket="state", cluster=CLUSTER),
        doorbells=FakeDoorbells(clock, effects),
        catalogs=FakeCatalogs(load_builtin_catalog()),
    )


def _in_process(way: str, folder: str) -> Planned:
    command = (sys.executable, "-m", "bench.planning", "--way", way, "--folder", folder)
    return msgspec.json.decode(subprocess.run(command, check=True, capture_output=True).stdout, type=Planned)


def _row(pods: int, way: str, planned: Planned) -> str:
    nodes = pods // 10
    return (
        f"| {nodes:,} | {pods:,} | {way} | {planned.seconds:.2f} | {planned.megabytes:.0f}"
        f" | {planned.stored_bytes / 1e6:.2f} |"
    )


if __name__ == "__main__":
    sys.exit(main())
