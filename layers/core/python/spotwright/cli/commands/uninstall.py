"""`spotwright uninstall --drain | --hand-back`: drains all nodes of a cluster, or hands it back to Karpenter."""

import argparse
import os
import re
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from spotwright.cli import InputError
from spotwright.model.plurals import counted
from spotwright.model.quoting import quote

if TYPE_CHECKING:
    from spotwright.adapters.kubernetes.dynamic_client import DynamicClient
    from spotwright.workflows.install.uninstall import UninstallResult

_UNITS = {"s": 1, "m": 60, "h": 3600}
_WITHOUT_STACK = (
    "nothing was changed. Only the stack of the cluster's cell ends nodeclaims that are deleted: name it with --stack,"
    " or deploy it again (node_modules/.bin/cdk deploy), which takes up the nodeclaims there are"
)
_AFTER_HAND_BACK = """\
Nodes, nodeclaims, nodepools and classes are as they were; Spotwright does nothing here any more.
Install Karpenter: it takes over the claims. When the stack is destroyed, the access entries of the node roles stay
while nodeclaims exist, since nodes log in by them."""


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("uninstall", help="empty a cluster, or hand it back to Karpenter")
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--drain", action="store_true", help="drain and terminate every node that Spotwright launched")
    what.add_argument("--hand-back", action="store_true", help="leave the nodes, take only Spotwright away")
    parser.add_argument("--cluster", required=True, metavar="NAME", help="must be the kubeconfig's cluster")
    stack = os.environ.get("SPOTWRIGHT_STACK", "Spotwright-main")
    parser.add_argument("--stack", default=stack, help="the cell's stack (default: SPOTWRIGHT_STACK, %(default)s)")
    parser.add_argument("--region", help="where the stack is (default: as the AWS SDK finds it)")
    parser.add_argument("--kubeconfig", help="default: KUBECONFIG, or ~/.kube/config")
    parser.add_argument("--context", help="a context of the kubeconfig (default: its current one)")
    parser.add_argument(
        "--timeout",
        default="30m",
        type=parse_duration,
        help="give up after this long, such as 90s (default: %(default)s)",
    )
    parser.add_argument(
        "--grace", type=parse_duration, help="with --drain: delete pods without regard to budgets after this long"
    )
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from spotwright.errors import ApiError

    if arguments.grace is not None and not arguments.drain:
        raise InputError("--grace goes with --drain only")
    try:
        outcome = _uninstall(arguments, _objects(arguments))
    except ApiError as failure:
        print(f"spotwright uninstall: {failure}", file=sys.stderr)
        return 1
    return _report(arguments, outcome)


def parse_duration(text: str) -> float:
    """Seconds of a duration such as 90s, 30m or 1h30m."""
    if not re.fullmatch(r"([0-9]+[smh])+", text):
        raise argparse.ArgumentTypeError(f"{quote(text)} is not a duration such as 90s, 30m or 1h30m")
    return float(sum(int(number) * _UNITS[unit] for number, unit in re.findall(r"([0-9]+)([smh])", text)))


class Deadline:
    """A deadline some seconds from now."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    def remaining_seconds(self) -> float:
        return self._end - time.monotonic()

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)


def _uninstall(arguments: argparse.Namespace, objects: "DynamicClient") -> "UninstallResult":
    from spotwright import manifests
    from spotwright.adapters.aws import clients
    from spotwright.adapters.aws.dynamodb.pause import PauseRow
    from spotwright.workflows.install.uninstall import drain, hand_back

    dynamodb = clients.client("dynamodb", region=arguments.region)
    pause = PauseRow(dynamodb, table=_table(arguments), cluster=arguments.cluster)
    deadline, report = Deadline(arguments.timeout), _progress_printer()
    if arguments.hand_back:
        parts = [*manifests.rbac(), *manifests.flow_control(), *manifests.forwarder("", {})]
        return hand_back(objects, pause, deadline, report, parts=parts)
    force_at = None if arguments.grace is None else datetime.now(UTC) + timedelta(seconds=arguments.grace)
    return drain(objects, pause, deadline, report, force_at=force_at)


def _table(arguments: argparse.Namespace) -> str:
    """Name of the cell's table. Raises NotFound where no stack would carry out what is begun here."""
    from spotwright.adapters.aws import clients
    from spotwright.adapters.aws.cloudformation import cluster_outputs
    from spotwright.errors import NotFound

    cloudformation = clients.client("cloudformation", region=arguments.region)
    try:
        return cluster_outputs(cloudformation, arguments.stack, arguments.cluster)["TableName"]
    except NotFound as failure:
        raise NotFound(f"{failure}; {_WITHOUT_STACK}", code=failure.code) from failure


def _objects(arguments: argparse.Namespace) -> "DynamicClient":
    """A client for the kubeconfig's cluster. Raises InputError unless EKS has the same endpoint for ``--cluster``."""
    from spotwright.adapters.kubernetes.dynamic_client import DynamicClient
    from spotwright.cli.inputs.same_cluster import configuration_of

    return DynamicClient(configuration_of(arguments))


def _progress_printer() -> Callable[[str], None]:
    def report(line: str) -> None:
        print(f"{datetime.now(UTC):%H:%M:%S} {line}", flush=True)

    return report


def _report(arguments: argparse.Namespace, outcome: "UninstallResult") -> int:
    if outcome.remaining:
        print("not finished; run it again to go on. Still there:", file=sys.stderr)
        for line in outcome.remaining:
            print(f"  {line}", file=sys.stderr)
        return 1
    if arguments.hand_back:
        print(f"handed back {counted(len(outcome.finished), 'nodeclaim')}.\n{_AFTER_HAND_BACK}")
    else:
        print(
            f"{counted(len(outcome.finished), 'nodeclaim')} drained and gone; nodepools, classes and definitions stay."
        )
    return 0
