"""`python -m bench.lifecycle`: nodes with a pod each, from pods to Running, notices to all elsewhere, delete to gone.

On the local stack with Spotwright deployed, then, with --karpenter, on one with Karpenter and nodes that kwok plays. It
needs Linux, five minutes for each, and nothing but loopback addresses.
"""

import argparse
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.lifecycle import karpenter
from bench.lifecycle.life import Life, Watched, further_pods
from bench.lifecycle.notices import notice
from bench.lifecycle.processors import Processors
from bench.lifecycle.system_node import add_system_node, move_to_system_node
from bench.scale.call_log import CallLog
from bench.scale.figures import Measured, measured_table
from bench.scale.meter import ApiServerLoad
from bench.scale.scene import Scene
from bench.scale.workloads import interrupted
from local.aws.strictness import WITHOUT_DELAYS, Rule
from local.boot.agent import NodeWrites
from local.cdk_deployment import CdkDeployment, forwarder_command
from local.stack import Stack, StackOptions


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench-lifecycle", description=__doc__)
    parser.add_argument("--nodes", type=int, default=100, help="nodes with a pod each")
    parser.add_argument("--notices", type=int, default=0, help="nodes of them that EC2 takes back")
    parser.add_argument("--further-pods", type=int, default=0, help="pods beside those, on the same nodes, for notices")
    parser.add_argument("--taken-after", type=int, default=120, help="seconds from a notice until the instance goes")
    parser.add_argument("--karpenter", action="store_true", help="the same of Karpenter, without notices")
    parser.add_argument(
        "--shutting-down",
        action="store_true",
        help="instances that Spotwright terminates end a second later, and EC2 tells of that, as on AWS",
    )
    parser.add_argument(
        "--rounds", type=int, default=1, help="how often nodes come and go; functions start in the first"
    )
    options = parser.parse_args()
    # As Ctrl-C: every process of the stack is ended on the way out.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    reference = karpenter.build(_tell) if options.karpenter else None
    try:
        rows = (
            (options.nodes, options.nodes + options.further_pods, figure) for figure in _figures(options, reference)
        )
        for line in measured_table(rows):
            print(line, flush=True)
    except KeyboardInterrupt:
        return 130
    return 0


def _figures(options: argparse.Namespace, reference: karpenter.Karpenter | None) -> Iterator[Measured]:
    # Karpenter's provider for kwok makes a Node by one write.
    yield from _of_spotwright(options, NodeWrites.IN_STEPS if reference is None else NodeWrites.AT_ONCE)
    if reference is not None:
        yield from _of_karpenter(reference, options.nodes, options.rounds)


def _of_spotwright(options: argparse.Namespace, node_writes: NodeWrites) -> Iterator[Measured]:
    with _directory() as directory:
        _tell("a local stack with Spotwright deployed, about a minute")
        kept = {Rule.INSTANCE_SHUTDOWN} if options.shutting_down else set()
        lenient = tuple(rule for rule in WITHOUT_DELAYS if rule not in kept)
        undelayed = StackOptions(lenient=lenient, node_writes=node_writes)
        with Stack.start(directory, forwarder_command=forwarder_command(directory), options=undelayed) as stack:
            roles = (f"KarpenterNodeRole-{stack.cluster}", f"karpenterNodeRole-{stack.cluster}")
            deployment = CdkDeployment(stack, node_roles=roles)
            deployment.deploy()
            scene = Scene(stack, deployment)
            scene.prepare()
            scene.until_quiet()
            with Watched(stack) as watched:
                for number in range(options.rounds):
                    life = Life(watched, Processors(stack.pids()), _name("Spotwright", number), options.nodes)
                    yield from _round(options, scene, life)


def _round(options: argparse.Namespace, scene: Scene, life: Life) -> Iterator[Measured]:
    before, calls = scene.load(), scene.call_log()
    yield from life.up(interrupted(options.nodes))
    yield from _asked(scene, life, "up", before, calls)
    if options.notices:
        life.apply(further_pods(interrupted(options.nodes), options.further_pods))
        life.until(lambda: len(life.running()) == options.nodes + options.further_pods, "further pods")
        scene.until_quiet()
        yield from notice(life, options.notices, options.taken_after)
        scene.until_quiet()
    before, calls = scene.load(), scene.call_log()
    yield from life.down()
    yield from _asked(scene, life, "down", before, calls)


def _asked(scene: Scene, life: Life, phase: str, before: ApiServerLoad, calls: CallLog) -> Iterator[Measured]:
    """What the functions have asked for, and the forwarder of the API server, when they have done all they have to."""
    scene.until_quiet()
    requests = scene.load().since(before).requests
    yield life.measured(f"{phase}: requests of the API server for each node", requests / life.nodes)
    asked = sum("function" in call for call in calls.calls())
    yield life.measured(f"{phase}: calls of AWS for each node", asked / life.nodes)


def _name(who: str, number: int) -> str:
    return f"{who}, round {number + 1}" if number else who


def _of_karpenter(reference: karpenter.Karpenter, nodes: int, rounds: int) -> Iterator[Measured]:
    with _directory() as directory:
        _tell("a local control plane with Karpenter")
        options = StackOptions()
        with (
            Stack.start(directory, options=options) as stack,
            karpenter.running(reference, stack, options) as controller,
        ):
            # Spotwright's forwarder and the rest have a node, too, which stays.
            add_system_node(stack)
            move_to_system_node(stack)
            with Watched(stack) as watched:
                for number in range(rounds):
                    life = Life(watched, Processors(stack.pids(), [controller]), _name("Karpenter", number), nodes)
                    yield from life.up(karpenter.workload(nodes))
                    yield from life.down()


@contextmanager
def _directory() -> Iterator[Path]:
    """Of a stack; it stays, with its logs, when the benchmark does not come to its end."""
    directory = Path(tempfile.mkdtemp(prefix="spotwright-bench-lifecycle-"))
    _tell(f"logs in {directory / 'logs'}")
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


def _tell(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
