"""``spotwright preflight``: is everything there that a deployment needs?"""

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any, Final

from spotwright.cli import InputError, completes_files

if TYPE_CHECKING:
    from spotwright.workflows.install.preflight.checks import Check
    from spotwright.workflows.install.preflight.facts import Target

_NOTHING_KNOWN: Final = 3

_EPILOG = """\
examples:
  spotwright preflight                            before the first cdk deploy
  spotwright preflight --cluster mine -o json     for programs

It changes nothing, and asks with the credentials of the AWS SDK. Exit code 0: no problem; 1: a problem; 2: cdk.json
cannot be read; 3: nothing is known of a cluster, since EKS does not answer you. A warning is no problem, and neither is
any other check that could not be made. A check that does not apply to a cluster is named in its skipChecks.
"""


def add(subparsers: Any) -> None:
    """Register the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "preflight",
        help="is everything there that cdk deploy needs?",
        description="Look at the clusters of cdk.json and their account before anything is made.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    config = parser.add_argument("--config", default="cdk.json", metavar="FILE", help="default: %(default)s")
    completes_files(config)
    parser.add_argument("--cluster", metavar="NAME", help="this cluster alone (default: all of the file)")
    parser.add_argument("--region", help="where the clusters are (default: as the AWS SDK finds it)")
    parser.add_argument("-o", "--output", choices=("text", "json"), default="text", help="default: text")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the checks. 0: no problem; 1: a problem; 3: no problem, but nothing is known of a cluster."""
    from spotwright.cli.inputs.preflight_facts import gather_facts
    from spotwright.workflows.install.preflight.checks import Status, run_checks
    from spotwright.workflows.install.preflight.facts import NotAsked

    results, unknown = [], {}
    for target in _targets(options):
        facts = gather_facts(target)
        results.append((target, run_checks(target, facts)))
        if isinstance(facts.cluster, NotAsked):
            unknown[target.name] = facts.cluster.reason
    problems = sum(check.status is Status.PROBLEM for _, checks in results for check in checks)
    print(_to_json(results, problems) if options.output == "json" else _to_text(results, problems))
    for name, reason in unknown.items():
        print(
            f"spotwright preflight: nothing is known of cluster {name}, since EKS did not answer ({reason}): use"
            " credentials that may read the cluster (AWS_PROFILE), then say this again",
            file=sys.stderr,
        )
    return 1 if problems else _NOTHING_KNOWN if unknown else 0


def _targets(options: argparse.Namespace) -> "list[Target]":
    from spotwright.adapters.aws import clients
    from spotwright.cli.inputs.deployment_context import read_targets

    region = clients.client("eks", region=options.region).meta.region_name
    targets = read_targets(options.config, region)
    chosen = [target for target in targets if options.cluster in (None, target.name)]
    if not chosen:
        names = ", ".join(target.name for target in targets)
        raise InputError(f"--cluster {options.cluster}: {options.config} has no such cluster; it has {names}")
    return chosen


def _to_text(results: "list[tuple[Target, tuple[Check, ...]]]", problems: int) -> str:
    from spotwright.model.plurals import counted
    from spotwright.workflows.install.preflight.checks import Status

    lines = []
    for target, checks in results:
        lines.append(f"cluster {target.name} in {target.region}")
        lines.extend(f"  {check.status:<21} {check.name}: {check.message}" for check in checks)
    statuses = [check.status for _, checks in results for check in checks]
    warnings, unknown = statuses.count(Status.WARNING), statuses.count(Status.NOT_CHECKED)
    rest = f", {counted(warnings, 'warning')}" if warnings else ""
    rest += f", {unknown} could not be checked" if unknown else ""
    return "\n".join([*lines, "", f"{counted(problems, 'problem')}{rest}" if problems or rest else "no problem"])


def _to_json(results: "list[tuple[Target, tuple[Check, ...]]]", problems: int) -> str:
    clusters = [
        {
            "name": target.name,
            "region": target.region,
            "checks": [{"name": c.name, "status": str(c.status), "message": c.message} for c in checks],
        }
        for target, checks in results
    ]
    return json.dumps({"clusters": clusters, "problems": problems}, indent=2)
