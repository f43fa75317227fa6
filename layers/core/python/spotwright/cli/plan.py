"""``spotwright plan``: which nodes would be made for these manifests, at what price, and why."""

import argparse
from typing import Any


def add(subparsers: Any) -> None:
    """Register the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "plan",
        help="say which nodes would be made for manifests, and why",
        description="Plan nodes for NodePools, workloads and pods in YAML or JSON files, folders, or - for stdin.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="manifests, case files or folders of them; - is stdin")
    parser.add_argument("--catalog", metavar="FILE", help="instance types as JSON (default: us-east-1, built in)")
    parser.add_argument("--output", choices=("text", "json"), default="text", help="default: text")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the plan; 0 whether or not every pod fits."""
    import msgspec

    from spotwright.cli import builtin, catalogs, documents, manifests_input, plan_text
    from spotwright.scheduling.planner import plan

    read = documents.read(options.files)
    snapshot = manifests_input.snapshot(read)
    catalog = catalogs.from_file(options.catalog) if options.catalog else builtin.catalog()
    made = plan(snapshot, catalog)
    made = msgspec.structs.replace(made, notes=(*made.notes, *manifests_input.notes(read)))
    if options.output == "json":
        print(plan_text.as_json(made))
    else:
        about = options.catalog or builtin.ABOUT
        print("\n".join(plan_text.as_text(made, f"Instance types and prices: {about}")))
    return 0
