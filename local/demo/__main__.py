"""`python -m local.demo`: exits non-zero if anything that must happen did not."""

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from local.cdk_deployment import CdkDeployment, forwarder_command
from local.demo import steps
from local.demo.disabled_function import disabled_function
from local.demo.printer import Printer
from local.demo.run import DemoRun, ExpectationFailed
from local.demo.summary import summary
from local.demo.timeline import Timeline
from local.stack import Stack

#: As the author of spot-to-spot.yaml had it.
FEATURE_GATES = "SpotToSpotConsolidation=true"


def main() -> int:
    arguments = _arguments()
    printer = Printer()
    directory = Path(arguments.directory or tempfile.mkdtemp(prefix="spotwright-demo-"))
    printer.say(f"logs of every part: {directory / 'logs'}")
    try:
        _run(printer, directory, arguments)
    except (ExpectationFailed, RuntimeError, subprocess.SubprocessError) as error:
        printer.section("FAILED")
        printer.say(f"{error}\n{getattr(error, 'stderr', None) or ''}")
        printer.say(f"logs of every part: {directory / 'logs'}")
        return 1
    except KeyboardInterrupt:
        # Every process of the stack has ended on the way out.
        printer.section("stopped by Ctrl-C")
        return 130
    return 0


def _run(printer: Printer, directory: Path, arguments: argparse.Namespace) -> None:
    printer.section("a local stack of real parts, and cdk deploy (usually under a minute)")
    with Stack.start(directory, cluster="dev-eks-cluster", forwarder_command=forwarder_command(directory)) as stack:
        printer.say("control plane and AWS are up")
        deployment = CdkDeployment(
            stack,
            node_roles=(
                "dev-eks-node-group-role",
                f"KarpenterNodeRole-{stack.cluster}",
                f"karpenterNodeRole-{stack.cluster}",
            ),
        )
        deployment.settings["FEATURE_GATES"] = FEATURE_GATES
        with Timeline(stack, printer, outputs=deployment.outputs) as timeline:
            started = time.time()
            with disabled_function(stack, arguments.without):
                deployment.deploy()
            printer.say(f"cdk bootstrap and deploy done, {time.time() - started:.0f} s")
            run = DemoRun(stack, deployment, timeline, printer)
            for step in steps.STEPS[: arguments.only or None]:
                step(run)
            printer.section("summary")
            printer.block(summary(run))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m local.demo", description=__doc__)
    parser.add_argument("--directory", help="where state and logs go (default: a new temporary folder)")
    parser.add_argument("--only", type=int, default=0, metavar="N", help="stop after the first N steps")
    parser.add_argument(
        "--without", metavar="FUNCTION", help="as if this function were not in the stack: the demo has to fail"
    )
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
