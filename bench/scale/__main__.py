"""`python -m bench.scale`: what a large cluster of a real API server costs and how long it takes; see docs/scale.md."""

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.scale.burst import burst_figures
from bench.scale.busy_forwarder import forwarder_figures
from bench.scale.figures import WAYS, Figure, Measured, measured_table, table
from bench.scale.notices import Notices
from bench.scale.scene import Scene
from bench.scale.single_pod import SinglePods
from local.aws.strictness import WITHOUT_DELAYS
from local.cdk_deployment import CdkDeployment, forwarder_command
from local.stack import Stack, StackOptions

SIZES: Final = ((100, 1_000), (1_000, 10_000))
RUNS: Final = 3
# Nodes that only fill the cluster have no kubelet that sends heartbeats.
_NODE_GRACE_SECONDS: Final = 24 * 60 * 60
FORWARDER, NOTICES, BURST = "forwarder", "notices", "burst"
PARTS: Final = (*WAYS, FORWARDER, NOTICES, BURST)

type Size = tuple[int, int]
type Row = tuple[int, int, Measured]


def main() -> int:
    options = _options()
    # As Ctrl-C: every process of the stack is ended on the way out.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    directory = Path(tempfile.mkdtemp(prefix="spotwright-bench-scale-"))
    _tell(f"a local stack with Spotwright deployed (about a minute), logs in {directory / 'logs'}")
    try:
        undelayed = StackOptions(lenient=WITHOUT_DELAYS, node_grace_seconds=_NODE_GRACE_SECONDS)
        with Stack.start(directory, forwarder_command=forwarder_command(directory), options=undelayed) as stack:
            _measure(stack, options)
    except KeyboardInterrupt:
        shutil.rmtree(directory, ignore_errors=True)
        return 130
    shutil.rmtree(directory, ignore_errors=True)
    return 0


def size(text: str) -> Size:
    """Nodes and pods from "1000/10000"."""
    nodes, _, pods = text.partition("/")
    if not (nodes.isdecimal() and pods.isdecimal() and int(nodes) > 0 and int(pods) > 0):
        raise argparse.ArgumentTypeError(f"{text}: a size is NODES/PODS, two whole numbers such as 1000/10000")
    return int(nodes), int(pods)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench-scale", description=__doc__)
    parser.add_argument("--sizes", type=size, nargs="+", default=SIZES, metavar="NODES/PODS")
    parser.add_argument("--only", choices=PARTS, nargs="+", default=PARTS, help="what is measured")
    parser.add_argument("--runs", type=int, default=RUNS, help="single pods for each figure")
    parser.add_argument("--notices", type=int, default=200, help="spot instances that are interrupted at once")
    parser.add_argument("--burst", type=int, default=5_000, help="pods that come at once, five for each new node")
    return parser.parse_args()


def _measure(stack: Stack, options: argparse.Namespace) -> None:
    roles = (f"KarpenterNodeRole-{stack.cluster}", f"karpenterNodeRole-{stack.cluster}")
    deployment = CdkDeployment(stack, node_roles=roles)
    deployment.deploy()
    scene = Scene(stack, deployment)
    scene.prepare()
    notices = Notices(scene, options.notices)
    if NOTICES in options.only:
        _tell(f"{options.notices} spot nodes are launched")
        notices.prepare()
    sizes = sorted(options.sizes)
    rows: list[Row] = []
    with scene.held():
        _print(table(_single_pods(scene, sizes, options, rows)))
    _print(measured_table(_further(scene, sizes[-1], notices, options, rows)))


def _single_pods(scene: Scene, sizes: Sequence[Size], options: argparse.Namespace, rows: list[Row]) -> Iterator[Figure]:
    """At each size, one after the other; what the forwarder uses there is added to ``rows``."""
    single_pods = SinglePods(scene)
    for nodes, pods in sizes:
        _tell(f"{nodes} nodes and {pods} pods are created")
        scene.grow_to(nodes, pods)
        # First: after it has stood still for lists, it lists everything once itself.
        if FORWARDER in options.only:
            rows += [(nodes, pods, figure) for figure in forwarder_figures(scene, pods)]
        for way in (way for way in WAYS if way in options.only):
            yield Figure(nodes, pods, way, single_pods.launches(way, options.runs))


def _further(
    scene: Scene, largest: Size, notices: Notices, options: argparse.Namespace, rows: Sequence[Row]
) -> Iterator[Row]:
    """What was measured at each size, then what happens at once, beside the largest."""
    yield from rows
    for figure in _all_at_once(scene, notices, options):
        yield *largest, figure


def _all_at_once(scene: Scene, notices: Notices, options: argparse.Namespace) -> Iterator[Measured]:
    if NOTICES in options.only:
        _tell(f"{options.notices} instances are interrupted")
        with scene.held():
            yield from notices.buy()
        # Nodes that come up and pods that move need the parts that stood still.
        yield from notices.move()
    if BURST in options.only:
        _tell(f"{options.burst} pods come at once")
        with scene.held():
            yield from burst_figures(scene, options.burst)


def _print(lines: Iterator[str]) -> None:
    for line in lines:
        print(line, flush=True)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
