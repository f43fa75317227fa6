"""`python -m bench`: one deployed local stack, every figure of the README from one run."""

import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from bench.cold_starts import cold_starts
from bench.latency import event_to_fleet_seconds
from bench.layer_size import layer_sizes
from local.aws.strictness import WITHOUT_DELAYS
from local.cdk_deployment import CdkDeployment, forwarder_command
from local.stack import Stack, StackOptions

type Row = tuple[str, str, str]


def main() -> int:
    directory = Path(tempfile.mkdtemp(prefix="spotwright-bench-"))
    print(f"a local stack with Spotwright deployed (about a minute), logs in {directory / 'logs'}", file=sys.stderr)
    undelayed = StackOptions(lenient=WITHOUT_DELAYS)
    with Stack.start(directory, forwarder_command=forwarder_command(directory), options=undelayed) as stack:
        roles = (f"KarpenterNodeRole-{stack.cluster}", f"karpenterNodeRole-{stack.cluster}")
        deployment = CdkDeployment(stack, node_roles=roles)
        for name, figure, goal in _rows(stack, deployment):
            print(f"{name:<64} {figure:>24}   {goal}", flush=True)
    return 0


def _rows(stack: Stack, deployment: CdkDeployment) -> Iterator[Row]:
    started = time.perf_counter()
    deployment.synth()
    yield "cdk synth", f"{time.perf_counter() - started:.1f} s", ""
    started = time.perf_counter()
    deployment.deploy()
    yield "cdk bootstrap and deploy, first time", f"{time.perf_counter() - started:.1f} s", ""
    yield from layer_sizes(stack)
    yield from cold_starts(stack, deployment)
    yield from event_to_fleet_seconds(stack, deployment)


if __name__ == "__main__":
    sys.exit(main())
