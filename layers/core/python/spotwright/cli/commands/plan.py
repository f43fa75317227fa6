"""``spotwright plan``: the nodes that manifests or a running cluster need, their price, and why."""

import argparse
import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from spotwright.model.ec2.instance_type import Catalog
    from spotwright.model.snapshot import Snapshot


def add(subparsers: Any) -> None:
    """Register the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "plan",
        help="say which nodes would be made for manifests or a running cluster, and why",
        description="Plan nodes for NodePools, workloads and pods in YAML or JSON files, folders, or - for stdin;"
        " without files, for the pods that wait in the kubeconfig's cluster; with both, for the manifests there.",
    )
    parser.add_argument("files", nargs="*", metavar="FILE", help="manifests, case files or folders of them; - is stdin")
    parser.add_argument(
        "--catalog", metavar="FILE", help="instance types as JSON (default: the cluster's, else us-east-1, built in)"
    )
    parser.add_argument("--output", choices=("text", "json"), default="text", help="default: text")
    parser.add_argument("--feature-gates", default="", metavar="GATES", help="such as StaticCapacity=true")
    live = parser.add_argument_group("a running cluster")
    live.add_argument("--kubeconfig", help="default: KUBECONFIG, or ~/.kube/config")
    live.add_argument("--context", help="a context of the kubeconfig (default: its current one)")
    live.add_argument("--cluster", metavar="NAME", help="the cluster's name in the deployment: its catalog is used")
    stack = os.environ.get("SPOTWRIGHT_STACK", "Spotwright-main")
    live.add_argument("--stack", default=stack, help="the cell's stack (default: SPOTWRIGHT_STACK, %(default)s)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the plan. Exit code 0, also when pods are unschedulable."""
    import gc

    # A short process makes many objects, none of which becomes garbage: this saves 20 ms of a quarter of a second.
    gc.disable()
    import msgspec

    from spotwright.cli.inputs.builtin_catalog import BUILTIN_DESCRIPTION, load_builtin_catalog
    from spotwright.cli.inputs.catalog_file import read_catalog_file
    from spotwright.cli.text.plan import plan_to_json, plan_to_text
    from spotwright.scheduling.planner import plan

    snapshot, cluster_catalog, notes = _read_inputs(options)
    if options.catalog:
        catalog, source = read_catalog_file(options.catalog), str(options.catalog)
    elif cluster_catalog is not None:
        catalog, source = cluster_catalog, f"those of cluster {options.cluster}"
    else:
        catalog, source = load_builtin_catalog(), BUILTIN_DESCRIPTION
    result = plan(snapshot, _without_unavailable(catalog, snapshot))
    result = msgspec.structs.replace(result, notes=(*result.notes, *notes))
    if options.output == "json":
        print(plan_to_json(result))
    else:
        print("\n".join(plan_to_text(result, f"Instance types and prices: {source}")))
    return 0


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


def _without_unavailable(catalog: "Catalog", snapshot: "Snapshot") -> "Catalog":
    if not snapshot.unavailable_offerings:
        return catalog
    from spotwright.aws.instance_types import unavailable_offerings

    return unavailable_offerings.apply_to_catalog(
        catalog, snapshot.nodeclasses, unavailable_offerings.from_snapshot(snapshot.unavailable_offerings)
    )
