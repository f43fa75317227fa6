"""`spotwright replay`: decide again what was decided, and say whether the answer is the same."""

import argparse
import os
import sys
from typing import TYPE_CHECKING

from spotwright.cli import InputError

if TYPE_CHECKING:
    from spotwright.workflows.planning.replay import ReplayResult


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("replay", help="decide again what was decided, and compare")
    parser.add_argument("decision", help="the decision's S3 key, or `last` for the newest of the cluster")
    parser.add_argument("--cluster", required=True, metavar="NAME")
    stack = os.environ.get("SPOTWRIGHT_STACK", "Spotwright-main")
    parser.add_argument("--stack", default=stack, help="the cell's stack (default: SPOTWRIGHT_STACK, %(default)s)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """0: the same answer; 1: another one, or the decision cannot be had."""
    from spotwright.errors import ApiError

    try:
        replayed = _replayed(arguments)
    except ApiError as failure:
        print(f"spotwright replay: {failure}", file=sys.stderr)
        return 1
    print("\n".join(_lines(replayed)))
    return 0 if replayed.agrees else 1


def _replayed(arguments: argparse.Namespace) -> "ReplayResult":
    from spotwright.adapters.aws import clients
    from spotwright.adapters.aws.cloudformation import stack_outputs
    from spotwright.adapters.aws.dynamodb.state import DynamoState
    from spotwright.adapters.aws.s3.blobs import S3Blobs
    from spotwright.adapters.aws.s3.catalogs import Catalogs
    from spotwright.workflows.planning.replay import replay

    outputs = stack_outputs(clients.client("cloudformation"), arguments.stack)
    key = arguments.decision
    if key == "last":
        state = DynamoState(clients.client("dynamodb"), table=outputs["TableName"], cluster=arguments.cluster)
        key = state.cluster().head
        if not key:
            raise InputError(f"cluster {arguments.cluster} has no decision yet")
    blobs = S3Blobs(clients.client("s3"), bucket=outputs["BucketName"], cluster=arguments.cluster)
    return replay(key, blobs=blobs, catalogs=Catalogs(blobs))


def _lines(replayed: "ReplayResult") -> list[str]:
    decision = replayed.decision
    lines = [
        f"decision {decision.id} of {decision.now.isoformat()} ({decision.kind}), {decision.message}",
        "decided by the code that replays it"
        if replayed.same_code
        else f"decided by other code ({decision.code_digest}): a different answer may be an improvement",
    ]
    if replayed.kept_claims:
        return [*lines, f"another answer: {', '.join(replayed.kept_claims)} would stay"]
    if replayed.agrees and decision.kind in ("disrupt", "scale-down"):
        gone = decision.disruption.candidates if decision.disruption else ()
        return [*lines, f"the same answer: {', '.join(gone)} may go"]
    if replayed.agrees:
        return [*lines, f"the same plan: {len(replayed.plan.new_nodes)} new nodes"]
    before, after = decision.plan, replayed.plan
    return [
        *lines,
        f"another plan: {len(before.new_nodes)} new nodes for ${before.price_picousd_per_hour / 10**12:.4f} per hour"
        f" then, {len(after.new_nodes)} for ${after.price_picousd_per_hour / 10**12:.4f} now",
    ]
