"""``spotwright plan``: which nodes would be made for these manifests, or this cluster, at what price, and why."""

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
    """Print the plan; 0 whether or not every pod fits."""
    import gc

    # A short life with many objects, none of which becomes garbage: 20 ms of a quarter of a second.
    gc.disable()
    import msgspec

    from spotwright.cli.inputs.builtin_catalog import BUILTIN_DESCRIPTION, load_builtin_catalog
    from spotwright.cli.inputs.catalog_file import read_catalog_file
    from spotwright.cli.text.plan import plan_to_json, plan_to_text
    from spotwright.scheduling.planner import plan

    snapshot, own, notes = _seen(options)
    if options.catalog:
        catalog, about = read_catalog_file(options.catalog), str(options.catalog)
    elif own is not None:
        catalog, about = own, f"those of cluster {options.cluster}"
    else:
        catalog, about = load_builtin_catalog(), BUILTIN_DESCRIPTION
    made = plan(snapshot, _sold(catalog, snapshot))
    made = msgspec.structs.replace(made, notes=(*made.notes, *notes))
    if options.output == "json":
        print(plan_to_json(made))
    else:
        print("\n".join(plan_to_text(made, f"Instance types and prices: {about}")))
    return 0


def _seen(options: argparse.Namespace) -> "tuple[Snapshot, Catalog | None, tuple[str, ...]]":
    """What is planned, the catalog that belongs to it, and how manifests are read that are old or there twice."""
    live = options.kubeconfig or options.context or options.cluster or not options.files
    found, own = None, None
    if live:
        from spotwright.cli.inputs.live_cluster import observe_cluster

        found, own = observe_cluster(options)
    if not options.files and found is not None:
        return found, own, ()
    from spotwright.cli.inputs.conversion import upgrade_documents
    from spotwright.cli.inputs.documents import deduplicate, read_documents
    from spotwright.cli.inputs.manifest_snapshot import apply_manifests, decode_snapshot

    read, notes = upgrade_documents(read_documents(options.files))
    read, replaced = deduplicate(read)
    snapshot = decode_snapshot(read, options.feature_gates)
    if found is not None:
        snapshot = apply_manifests(found, snapshot)
    return snapshot, own, (*notes, *replaced)


def _sold(catalog: "Catalog", snapshot: "Snapshot") -> "Catalog":
    if not snapshot.unavailable_offerings:
        return catalog
    from spotwright.aws.instance_types import unavailable_offerings

    return unavailable_offerings.apply_to_catalog(
        catalog, snapshot.nodeclasses, unavailable_offerings.from_snapshot(snapshot.unavailable_offerings)
    )
