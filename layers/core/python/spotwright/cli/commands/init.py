"""``spotwright init``: writes a cluster's entry into cdk.json, from what EKS says of it."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from spotwright.cli import InputError, completes_files

_EPILOG = """\
examples:
  spotwright init --cluster mine                  writes the entry into cdk.json
  spotwright init --cluster mine --print          prints it

It asks EKS with the credentials of the AWS SDK for the roles of node groups and access entries, and takes a VPC where
the API server is not open to everybody. An entry that is there is never changed. Look at it, then: spotwright preflight
"""


def add(subparsers: Any) -> None:
    """Register the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "init",
        help="write a cluster's entry into cdk.json",
        description="Write a cluster's entry into cdk.json, from what EKS says of the cluster.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--cluster", required=True, metavar="NAME")
    config = parser.add_argument("--config", default="cdk.json", metavar="FILE", help="default: %(default)s")
    completes_files(config)
    parser.add_argument(
        "--node-role",
        action="append",
        default=[],
        metavar="ROLE",
        help="a further role that nodes may run as",
    )
    parser.add_argument("--print", action="store_true", help="print the entry, write nothing")
    parser.add_argument("--region", help="where the cluster is (default: as the AWS SDK finds it)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """0: written; 1: EKS does not answer, or does not know the cluster; 2: cdk.json has the cluster already."""
    from spotwright.cli.inputs.deployment_context import read_clusters
    from spotwright.errors import ApiError, NotFound

    content, clusters = read_clusters(options.config)
    others = [cluster.get("name") for cluster in clusters if isinstance(cluster, dict)]
    if options.cluster in others and not options.print:
        raise InputError(
            f"{options.config} has an entry of cluster {options.cluster}, which is not changed; --print shows what it"
            " would be"
        )
    try:
        entry = _entry(options)
    except NotFound:
        print(f"spotwright init: {_missing(options)}", file=sys.stderr)
        return 1
    except ApiError as failure:
        advice = "use credentials that may read the cluster (AWS_PROFILE)"
        print(f"spotwright init: {failure}: {advice}", file=sys.stderr)
        return 1
    if options.print:
        print(json.dumps(entry, indent=2))
        return 0
    clusters.append(entry)
    Path(options.config).write_text(json.dumps(content, indent=2) + "\n")
    print(f"{options.config}: cluster {options.cluster} was added; next: look at it, then spotwright preflight")
    if others:
        print(f"{options.config} also names {', '.join(map(str, others))}: take out what is not yours")
    return 0


def _entry(options: argparse.Namespace) -> dict[str, Any]:
    """Raises InputError where no role of a node is known, or no subnet in which functions reach the API server."""
    from spotwright.adapters.aws import clients
    from spotwright.adapters.aws.cluster_entry import cluster_entry

    named = [_role(text) for text in options.node_role]
    eks, ec2 = (clients.client(service, region=options.region) for service in ("eks", "ec2"))
    entry = cluster_entry(eks, ec2, options.cluster)
    entry["nodeRoles"] = sorted({*entry["nodeRoles"], *named})
    if not entry["nodeRoles"]:
        raise InputError(
            f"cluster {options.cluster} has neither node groups nor access entries of nodes: name the role that nodes"
            " are to run as with --node-role"
        )
    vpc = entry.get("vpc")
    if vpc and not vpc["subnetIds"]:
        raise InputError(
            f"the API server of {options.cluster} is not open to everybody, and {vpc['vpcId']} has public subnets"
            " alone, in which functions reach nothing: make private subnets with a NAT gateway or VPC endpoints"
            " (docs/networking.md), then say this again"
        )
    return entry


def _missing(options: argparse.Namespace) -> str:
    """That there is no such cluster, and which there are."""
    from spotwright.adapters.aws import clients
    from spotwright.adapters.aws.eks import readiness
    from spotwright.workflows.install.preflight.checks import run_checks
    from spotwright.workflows.install.preflight.facts import Facts, Target

    eks = clients.client("eks", region=options.region)
    facts = Facts(cluster=None, other_clusters=readiness.cluster_names(eks))
    (check,) = run_checks(Target(options.cluster, eks.meta.region_name), facts, ("cluster",))
    return check.message


def _role(text: str) -> str:
    """A role's name of its name or ARN. Raises InputError."""
    import re

    from spotwright.model.quoting import quote
    from spotwright.workflows.install.preflight.facts import NODE_ROLE

    name = text.partition(":role/")[2] if text.startswith("arn:") else text
    if not re.fullmatch(NODE_ROLE, name):
        raise InputError(f"--node-role: got {quote(text)}, allowed: an IAM role's name or ARN")
    return name
