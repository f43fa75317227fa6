"""`spotwright replay`: repeat a decision from its stored snapshot, and compare."""

import argparse
import os
import sys
from typing import TYPE_CHECKING

from spotwright.cli import InputError
from spotwright.model.plurals import counted

if TYPE_CHECKING:
    from spotwright.workflows.planning.replay import ReplayResult


def add(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("replay", help="decide again what was decided, and compare")
    parser.add_argument(
        "decision",
        help="the decision's id, as log lines and NodeClaims have it, or the beginning of it; its S3 key; or `last` for"
        " the newest of the cluster",
    )
    parser.add_argument("--cluster", required=True, metavar="NAME")
    stack = os.environ.get("SPOTWRIGHT_STACK", "Spotwright-main")
    parser.add_argument("--stack", default=stack, help="the cell's stack (default: SPOTWRIGHT_STACK, %(default)s)")
    parser.add_argument("--region", help="where the stack is (default: as the AWS SDK finds it)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """0: the same decision; 1: another decision, or the stored decision cannot be read."""
    from spotwright.errors import ApiError

    try:
        result = _replay(arguments)
    except ApiError as failure:
        print(f"spotwright replay: {failure}", file=sys.stderr)
        return 1
    print("\n".join(_describe(result)))
    return 0 if result.agrees else 1


def _replay(arguments: argparse.Namespace) -> "ReplayResult":
    from spotwright.adapters.aws import clients
    from spotwright.adapters.aws.cloudformation import cluster_outputs
    from spotwright.adapters.aws.dynamodb.state import DynamoState
    from spotwright.adapters.aws.s3.blobs import S3Blobs
    from spotwright.adapters.aws.s3.catalogs import Catalogs
    from spotwright.cli.inputs.stored_decision import decision_key
    from spotwright.workflows.planning.replay import replay

    cloudformation = clients.client("cloudformation", region=arguments.region)
    outputs = cluster_outputs(cloudformation, arguments.stack, arguments.cluster)
    key = arguments.decision
    if key == "last":
        dynamodb = clients.client("dynamodb", region=arguments.region)
        state = DynamoState(dynamodb, table=outputs["TableName"], cluster=arguments.cluster)
        key = state.cluster().head
        if not key:
            raise InputError(f"cluster {arguments.cluster} has no decision yet")
    s3 = clients.client("s3", region=arguments.region)
    blobs = S3Blobs(s3, bucket=outputs["BucketName"], cluster=arguments.cluster)
    key = decision_key(blobs, key, arguments.cluster)
    return replay(key, blobs=blobs, catalogs=Catalogs(blobs))


def _describe(result: "ReplayResult") -> list[str]:
    decision = result.decision
    lines = [
        f"decision {decision.id} of {decision.now.isoformat()} ({decision.kind}), {decision.message}",
        "decided by the code that replays it"
        if result.same_code
        else f"decided by other code ({decision.code_digest}): a different answer may be an improvement",
    ]
    if result.kept_claims:
        return [*lines, f"another answer: {', '.join(result.kept_claims)} would stay"]
    if result.agrees and decision.kind in ("disrupt", "scale-down"):
        return [*lines, f"the same answer: {', '.join(decision.candidates)} may go"]
    if result.agrees:
        return [*lines, f"the same plan: {counted(len(result.plan.new_nodes), 'new node')}"]
    before, after = decision.plan, result.plan
    nodes_before = counted(len(before.new_nodes), "new node")
    return [
        *lines,
        f"another plan: {nodes_before} for ${before.price_picousd_per_hour / 10**12:.4f} per hour"
        f" then, {len(after.new_nodes)} for ${after.price_picousd_per_hour / 10**12:.4f} now",
    ]
