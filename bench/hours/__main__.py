"""`python -m bench.hours`: requests and bytes at the API server, and dollars, in a quiet and in a busy hour."""

import argparse
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bench.hours.busy import BusyCluster, Pace
from bench.hours.spending import Item, bill
from bench.hours.watcher import Watcher
from bench.scale.__main__ import size
from bench.scale.meter import ApiServerLoad
from bench.scale.scene import Scene
from infra.functions import QUEUE_FUNCTIONS
from local.aws.strictness import WITHOUT_DELAYS
from local.cdk_deployment import CdkDeployment, forwarder_command
from local.stack import Stack, StackOptions

_HELD_PARTS: Final = ("kube-controller-manager", "pods")
_SETTLE_SECONDS: Final = 60.0
_RESOURCES_SHOWN: Final = 4
#: Renewals of the lease by which Karpenter's replicas elect a leader, each 2 s: the default of controller-runtime.
#: https://pkg.go.dev/sigs.k8s.io/controller-runtime/pkg/manager#Options
_RENEWALS_PER_HOUR: Final = 1_800


@dataclass(frozen=True)
class Hour:
    """What an hour costs, from some minutes of it. ``changes``: that a watcher of Karpenter's kinds was told of."""

    name: str
    load: ApiServerLoad
    changes: int
    watched_bytes: int
    items: tuple[Item, ...]


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench-hours", description=__doc__)
    parser.add_argument("--size", type=size, default=(100, 1_000), metavar="NODES/PODS")
    parser.add_argument("--minutes", type=float, default=10.0, help="of each hour that are measured")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    directory = Path(tempfile.mkdtemp(prefix="spotwright-bench-hours-"))
    print(f"a local stack with Spotwright deployed (about a minute), logs in {directory / 'logs'}", file=sys.stderr)
    try:
        undelayed = StackOptions(lenient=WITHOUT_DELAYS)
        with Stack.start(directory, forwarder_command=forwarder_command(directory), options=undelayed) as stack:
            for line in _lines(stack, options.size, options.minutes):
                print(line, flush=True)
    except KeyboardInterrupt:
        return 130
    shutil.rmtree(directory, ignore_errors=True)
    return 0


def _lines(stack: Stack, cluster: tuple[int, int], minutes: float) -> Iterator[str]:
    nodes, pods = cluster
    roles = (f"KarpenterNodeRole-{stack.cluster}", f"karpenterNodeRole-{stack.cluster}")
    deployment = CdkDeployment(stack, node_roles=roles)
    deployment.deploy()
    with Scene(stack, deployment).ready(_HELD_PARTS) as scene:
        print(f"{nodes} nodes and {pods} pods are created", file=sys.stderr, flush=True)
        scene.grow_to(nodes, pods)
        watcher, pace = Watcher(stack.kubeconfig), Pace()
        watcher.start()
        yield f"{nodes:,} nodes, {pods:,} pods; {minutes:g} minutes of each hour."
        yield from _heads()
        busy = BusyCluster(stack.kubeconfig, pods, pace)
        for name, act in (("quiet", time.sleep), ("busy", busy.run)):
            time.sleep(_SETTLE_SECONDS)
            hour = _measured(stack, scene, watcher, name, act, minutes)
            yield from _rows(hour, watcher.listed_bytes)
        yield f"Busy: {busy.changes / minutes / 60:.1f} changes of pods a second, {busy.launches} nodes launched."


def _measured(
    stack: Stack, scene: Scene, watcher: Watcher, name: str, act: Callable[[float], None], minutes: float
) -> Hour:
    calls = int(stack.control("GET", "/_local/calls?since=0")["next"])
    logs = {path: path.stat().st_size for path in stack.logs.glob("function-*.log")}
    load, watched, changes = scene.load(), watcher.watched_bytes, watcher.changes
    act(minutes * 60)
    later, share = scene.load().since(load), minutes / 60
    written = [_text(path, logs.get(path, 0)) for path in stack.logs.glob("function-*.log")]
    called = stack.control("GET", f"/_local/calls?since={calls}")["calls"]
    items = bill(called, written, queues=len(QUEUE_FUNCTIONS), minutes=minutes)
    return Hour(
        name,
        ApiServerLoad(
            int(later.requests / share), {name: int(size / share) for name, size in later.bytes_by_resource.items()}
        ),
        int((watcher.changes - changes) / share),
        int((watcher.watched_bytes - watched) / share),
        tuple(Item(item.what, int(item.count / share), item.dollars / share) for item in items),
    )


def _heads() -> Iterator[str]:
    yield "| Hour | Who | Requests | MB read | MB watched |"
    yield "|---|---|---|---|---|"


def _rows(hour: Hour, listed_bytes: int) -> Iterator[str]:
    load, watched = hour.load, hour.watched_bytes / 1e6
    yield (
        f"| {hour.name} | Spotwright: functions and forwarder | {load.requests:,} | {load.read_bytes / 1e6:.1f}"
        f" | {watched:.1f} |"
    )
    largest = sorted(load.bytes_by_resource.items(), key=lambda item: -item[1])[:_RESOURCES_SHOWN]
    for resource, read_bytes in largest:
        yield f"| {hour.name} | of them {resource} | | {read_bytes / 1e6:.1f} | |"
    yield (
        f"| {hour.name} | a controller that watches | {_RENEWALS_PER_HOUR:,} | {listed_bytes / 1e6:.1f} at its start"
        f" | {watched:.1f} |"
    )
    for item in hour.items:
        yield f"| {hour.name} | {item.what} | {item.count:,} | | ${item.dollars:.4f} |"
    yield f"| {hour.name} | together | | | ${sum(item.dollars for item in hour.items):.4f} |"


def _text(path: Path, start: int) -> str:
    with path.open("rb") as file:
        file.seek(start)
        return file.read().decode(errors="replace")


if __name__ == "__main__":
    sys.exit(main())
