"""`spotwright pause` and `spotwright resume`: stop and continue launches and disruption in a cluster."""

import argparse
import os
import sys


def add_pause(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("pause", help="launch and disrupt nothing in a cluster until it is resumed")
    parser.add_argument("--reason", default="spotwright pause", help="kept with the pause (default: %(default)s)")
    parser.add_argument("--disruption", action="store_true", help="disrupt nothing by choice, and launch as before")
    _add_cluster_options(parser)
    parser.set_defaults(run=run, verb="pause")


def add_resume(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = subparsers.add_parser("resume", help="end a pause, close the breaker, and try stopped roll-outs again")
    _add_cluster_options(parser)
    parser.set_defaults(run=run, verb="resume")


def _add_cluster_options(parser: argparse.ArgumentParser) -> None:
    """Options that name the cluster and its stack."""
    stack = os.environ.get("SPOTWRIGHT_STACK", "Spotwright-main")
    parser.add_argument("--cluster", required=True, metavar="NAME")
    parser.add_argument("--stack", default=stack, help="the cell's stack (default: SPOTWRIGHT_STACK, %(default)s)")
    parser.add_argument("--region", help="where the stack is (default: as the AWS SDK finds it)")


def run(arguments: argparse.Namespace) -> int:
    """0: done; 1: the stack or its table cannot be reached, or the stack has no such cluster.

    ``arguments.verb``: pause or resume.
    """
    from spotwright.adapters.aws import clients
    from spotwright.adapters.aws.cloudformation import cluster_outputs
    from spotwright.adapters.aws.dynamodb.pause import PauseRow
    from spotwright.errors import ApiError

    try:
        cloudformation = clients.client("cloudformation", region=arguments.region)
        outputs = cluster_outputs(cloudformation, arguments.stack, arguments.cluster)
        dynamodb = clients.client("dynamodb", region=arguments.region)
        row = PauseRow(dynamodb, table=outputs["TableName"], cluster=arguments.cluster)
        if arguments.verb == "pause":
            row.pause(arguments.reason, provisioning=not arguments.disruption)
        else:
            row.resume()
    except ApiError as failure:
        print(f"spotwright {arguments.verb}: {failure}", file=sys.stderr)
        return 1
    message = "pause --disruption" if arguments.verb == "pause" and arguments.disruption else arguments.verb
    print(_MESSAGES[message].format(cluster=arguments.cluster))
    return 0


_MESSAGES = {
    "pause": "{cluster} is paused: nothing is launched or disrupted by choice; interrupted nodes are still replaced.",
    "pause --disruption": "disruption in {cluster} is paused: nodes that wait for a replacement keep their pods and"
    " lose their taint, those that are being drained go; launches go on, and interrupted nodes are still replaced.",
    "resume": "{cluster} is resumed; a breaker that was open is closed, and stopped roll-outs are tried again.",
}
