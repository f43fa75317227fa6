"""``spotwright plan``: the nodes that manifests or a running cluster need, their price, and why."""

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from spotwright.cli.text.plan_report import CatalogIdentity, PlanReport
    from spotwright.model.ec2.instance_type import Catalog
    from spotwright.model.snapshot import Snapshot

_POD_WITHOUT_PLACE: Final = 3
_EPILOG: Final = """\
examples:
  spotwright plan nodepools.yaml deployments/     which nodes would these workloads get?
  kubectl kustomize . | spotwright plan -         the same for what kustomize renders
  spotwright plan                                 what do the pods that wait in the cluster need?
  spotwright plan -f web.yaml --cluster main      what would web.yaml add to the cluster main?
  spotwright plan -o json . | jq .summary         for programs; docs/plan-json.md describes the fields

exit code: 0 planned, 2 the input cannot be read, with --exit-code 3 when a pod has no place
"""


def add(subparsers: Any) -> None:
    """Register the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "plan",
        help="say which nodes would be made for manifests or a running cluster, and why",
        description="Plan nodes for NodePools, workloads and pods in YAML or JSON files, folders, or - for stdin;"
        " without files, for the pods that wait in the kubeconfig's cluster; with both, for the manifests there.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="manifests, case files or folders of them; - is stdin")
    parser.add_argument(
        "-f",
        "--filename",
        action="append",
        default=[],
        metavar="FILE",
        help="the same, as kubectl takes it; repeatable",
    )
    parser.add_argument(
        "--catalog", metavar="FILE", help="instance types as JSON (default: the cluster's, else us-east-1, built in)"
    )
    parser.add_argument(
        "-o", "--output", choices=("text", "wide", "json", "yaml"), default="text",
        help="wide: every node with the names of its pods and types; json and yaml: docs/plan-json.md (default: text)",
    )  # fmt: skip
    parser.add_argument("--exit-code", action="store_true", help="exit with 3 when a pod has no place")
    parser.add_argument("--feature-gates", default="", metavar="GATES", help="such as StaticCapacity=true")
    live = parser.add_argument_group("a running cluster")
    live.add_argument("--kubeconfig", help="default: KUBECONFIG, or ~/.kube/config")
    live.add_argument("--context", help="a context of the kubeconfig (default: its current one)")
    live.add_argument("--cluster", metavar="NAME", help="the cluster's name in the deployment: its catalog is used")
    stack = os.environ.get("SPOTWRIGHT_STACK", "Spotwright-main")
    live.add_argument("--stack", default=stack, help="the cell's stack (default: SPOTWRIGHT_STACK, %(default)s)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the plan. Exit code 0, also when pods are unschedulable, unless ``--exit-code`` asks for 3."""
    import gc

    # A short process makes many objects, none of which becomes garbage: this saves 20 ms of a quarter of a second.
    gc.disable()
    from spotwright.cli.text.plan_report import PlanReport
    from spotwright.cli.text.workloads import Workloads
    from spotwright.decisions.decide import decide

    options.files = [*options.files, *options.filename]
    snapshot, cluster_catalog, notes = _read_inputs(options)
    catalog, identity, assumptions = _read_catalog(options, cluster_catalog)
    plan = decide(snapshot, catalog)
    _print_plan(PlanReport(plan, Workloads(snapshot.pods), identity, notes, assumptions), options.output)
    return _POD_WITHOUT_PLACE if options.exit_code and plan.unschedulable_pods else 0


def _print_plan(report: "PlanReport", output: str) -> None:
    if output in ("text", "wide"):
        from spotwright.cli.text.plan import plan_to_text
        from spotwright.cli.text.terminal import stdout_terminal

        terminal = stdout_terminal()
        print(terminal.show(plan_to_text(report, terminal, is_wide=output == "wide")))
    elif output == "json":
        from spotwright.cli.text.plan_json import plan_to_json

        print(plan_to_json(report))
    else:
        from spotwright.cli.text.plan_json import plan_document
        from spotwright.cli.text.yaml_documents import write_yaml

        write_yaml([plan_document(report)], sys.stdout)


def _read_catalog(
    options: argparse.Namespace, cluster_catalog: "Catalog | None"
) -> "tuple[Catalog, CatalogIdentity, tuple[str, ...]]":
    """The instance types to plan with, where they are from, and what is assumed of them."""
    import hashlib
    from pathlib import Path

    from spotwright.cli.inputs.builtin_catalog import BUILTIN_DESCRIPTION, CATALOG_FILE, load_builtin_catalog
    from spotwright.cli.inputs.catalog_file import read_catalog_file
    from spotwright.cli.text.plan_report import CatalogIdentity

    def digest(path: Path) -> str:
        return hashlib.sha256(path.read_bytes()).hexdigest()[:16]

    if options.catalog:
        catalog = read_catalog_file(options.catalog)
        return catalog, CatalogIdentity(options.catalog, digest(Path(options.catalog))), ()
    if cluster_catalog is not None:
        return cluster_catalog, CatalogIdentity(f"cluster {options.cluster}", cluster_catalog.source), ()
    assumption = f"instance types and prices: {BUILTIN_DESCRIPTION}"
    return load_builtin_catalog(), CatalogIdentity("us-east-1, built in", digest(CATALOG_FILE)), (assumption,)


def _read_inputs(options: argparse.Namespace) -> "tuple[Snapshot, Catalog | None, tuple[str, ...]]":
    """The snapshot to plan, the cluster's catalog if it has one, and notes about converted or duplicate manifests."""
    is_live = options.kubeconfig or options.context or options.cluster or not options.files
    live_snapshot, catalog = None, None
    if is_live:
        from spotwright.cli.inputs.live_cluster import observe_cluster

        live_snapshot, catalog = observe_cluster(options)
    if not options.files and live_snapshot is not None:
        return live_snapshot, catalog, ()
    from spotwright.cli.inputs.conversion import upgrade_documents
    from spotwright.cli.inputs.documents import deduplicate, read_documents
    from spotwright.cli.inputs.manifest_snapshot import apply_manifests, decode_snapshot

    documents, notes = upgrade_documents(read_documents(options.files))
    documents, replaced = deduplicate(documents)
    snapshot = decode_snapshot(documents, options.feature_gates)
    if live_snapshot is not None:
        snapshot = apply_manifests(live_snapshot, snapshot)
    return snapshot, catalog, (*notes, *replaced)
