"""`python -m bench.scale`: one pending pod → CreateFleet beside many nodes and pods; docs/scale.md says how."""

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.scale.figures import WAYS, Figure, table
from bench.scale.scene import Scene
from local.cdk_deployment import CdkDeployment, forwarder_command
from local.stack import Stack

SIZES: Final = ((100, 1_000), (1_000, 10_000))
RUNS: Final = 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench-scale", description=__doc__)
    parser.add_argument("--sizes", type=size, nargs="+", default=SIZES, metavar="NODES/PODS")
    parser.add_argument("--only", choices=WAYS, nargs="+", default=WAYS, help="what the planner reads")
    parser.add_argument("--runs", type=int, default=RUNS, help="pods for each figure")
    options = parser.parse_args()
    # As Ctrl-C: every process of the stack is ended on the way out.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    directory = Path(tempfile.mkdtemp(prefix="spotwright-bench-scale-"))
    print(f"a local stack with Spotwright deployed (about a minute), logs in {directory / 'logs'}", file=sys.stderr)
    try:
        with Stack.start(directory, forwarder_command=forwarder_command(directory)) as stack:
            for line in table(_figures(stack, sorted(options.sizes), options.only, options.runs)):
                print(line, flush=True)
    except KeyboardInterrupt:
        return 130
    shutil.rmtree(directory, ignore_errors=True)
    return 0


def size(text: str) -> tuple[int, int]:
    """Nodes and pods from "1000/10000"."""
    nodes, _, pods = text.partition("/")
    if not (nodes.isdecimal() and pods.isdecimal() and int(nodes) > 0):
        raise argparse.ArgumentTypeError(f"{text}: a size is NODES/PODS, two whole numbers such as 1000/10000")
    return int(nodes), int(pods)


def _figures(stack: Stack, sizes: Sequence[tuple[int, int]], ways: Sequence[str], runs: int) -> Iterator[Figure]:
    roles = (f"KarpenterNodeRole-{stack.cluster}", f"karpenterNodeRole-{stack.cluster}")
    deployment = CdkDeployment(stack, node_roles=roles)
    deployment.deploy()
    with Scene(stack, deployment).ready() as scene:
        for nodes, pods in sizes:
            print(f"{nodes} nodes and {pods} pods are created", file=sys.stderr, flush=True)
            scene.grow_to(nodes, pods)
            for way in ways:
                yield Figure(nodes, pods, way, scene.launches(way, runs))


if __name__ == "__main__":
    sys.exit(main())
