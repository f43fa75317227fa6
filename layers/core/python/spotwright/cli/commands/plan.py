"""``spotwright plan``: the nodes that manifests or a running cluster need, their price, and why."""

import argparse
import os
import sys
from typing import TYPE_CHECKING, Any, Final

from spotwright.cli import InputError, completes_files

if TYPE_CHECKING:
    from spotwright.aws.instance_types.capacity import Overheads
    from spotwright.cli.inputs.live_cluster import LiveCluster
    from spotwright.cli.inputs.named_zones import NamedZones
    from spotwright.cli.inputs.region_catalog import PlanCatalog
    from spotwright.cli.text.plan_report import PlanReport
    from spotwright.model.ec2.instance_type import Catalog
    from spotwright.model.snapshot import Snapshot
    from spotwright.scheduling.plan import Plan

_POD_WITHOUT_PLACE: Final = 3
_EPILOG: Final = """\
examples:
  spotwright plan nodepools.yaml deployments/     which nodes would these workloads get?
  kubectl kustomize . | spotwright plan -         the same for what kustomize renders
  spotwright plan                                 what do the pods that wait in the cluster need?
  spotwright plan -f web.yaml --cluster main      what would web.yaml add to the cluster main?
  spotwright plan --consolidate --drift           which nodes of the cluster would go now, and what does it save?
  spotwright plan -o json . | jq .summary         for programs; docs/plan-json.md describes the fields

exit code: 0 planned, 2 the input cannot be read, with --exit-code 3 when a pod has no place
"""


def add(subparsers: Any) -> None:
    """Register the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "plan",
        help="say which nodes would be made for manifests or a running cluster, and why",
        description="Plan nodes for NodePools, workloads and pods in YAML or JSON files, folders, or - for stdin;\n"
        "without files, for the pods that wait in the kubeconfig's cluster; with both, for the manifests there.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    of_files = [
        parser.add_argument(
            "files", nargs="*", metavar="FILE", help="manifests, case files or folders of them; - is stdin"
        ),
        parser.add_argument(
            "-f", "--filename", action="append", default=[], metavar="FILE",
            help="the same, as kubectl takes it; repeatable",
        ),
        parser.add_argument(
            "--catalog", metavar="FILE",
            help="instance types as JSON (default: the cluster's, else those of the region)",
        ),
    ]  # fmt: skip
    parser.add_argument(
        "--region",
        metavar="REGION",
        help="built-in types and prices of this region (default: the region whose zones are named, else us-east-1)",
    )
    parser.add_argument(
        "-o", "--output", choices=("text", "wide", "json", "yaml"), default="text",
        help="wide: every node with the names of its pods and types; json and yaml: docs/plan-json.md (default: text)",
    )  # fmt: skip
    parser.add_argument("--exit-code", action="store_true", help="exit with 3 when a pod has no place")
    parser.add_argument(
        "--consolidate", action="store_true",
        help="say instead which nodes would be removed or replaced now because that is cheaper, and what it saves",
    )  # fmt: skip
    parser.add_argument(
        "--evictions", type=_count, metavar="N",
        help="with --consolidate: evict this many pods at most, and save the most with that (default: any number)",
    )  # fmt: skip
    parser.add_argument(
        "--drift", action="store_true", help="say instead which nodes with the condition Drifted would be replaced now"
    )
    parser.add_argument(
        "--feature-gates",
        default="",
        metavar="GATES",
        help="Karpenter's gates, such as NodeOverlay=true,StaticCapacity=true (default: Karpenter's)",
    )
    parser.add_argument(
        "--validate", choices=("strict", "warn", "ignore"), default="strict",
        help="what becomes of unknown fields and duplicate keys, as for kubectl apply: an error (strict, the default),"
        " a note, or nothing",
    )  # fmt: skip
    live = parser.add_argument_group("a running cluster")
    of_files.append(live.add_argument("--kubeconfig", help="default: KUBECONFIG, or ~/.kube/config"))
    live.add_argument("--context", help="a context of the kubeconfig (default: its current one)")
    live.add_argument("--cluster", metavar="NAME", help="the cluster's name in the deployment: its catalog is used")
    stack = os.environ.get("SPOTWRIGHT_STACK", "Spotwright-main")
    live.add_argument("--stack", default=stack, help="the cell's stack (default: SPOTWRIGHT_STACK, %(default)s)")
    for action in of_files:
        completes_files(action)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the plan. Exit code 0, also when pods are unschedulable, unless ``--exit-code`` asks for 3."""
    import gc

    # A short process makes many objects, none of which becomes garbage: this saves 20 ms of a quarter of a second.
    gc.disable()
    from spotwright.cli.inputs.feature_gates import read_feature_gates
    from spotwright.cli.text.plan_report import CatalogIdentity, PlanReport
    from spotwright.cli.text.workloads import Workloads
    from spotwright.decisions.decide import decide

    options.files = [*options.files, *options.filename]
    own = "--catalog" if options.catalog else "--cluster" if options.cluster else ""
    if options.region and own:
        raise InputError(f"--region {options.region}: {own} states types and prices already; leave one of the two out")
    if options.evictions is not None and not options.consolidate:
        raise InputError(f"--evictions {options.evictions}: only with --consolidate")
    gates = read_feature_gates(options.feature_gates)
    snapshot, live, named, notes, assumed = _read_inputs(options, gates.for_decision)
    chosen = _choose_catalog(options, snapshot, live, named, gates.overheads)
    plan = decide(chosen.snapshot, chosen.catalog)
    if options.consolidate or options.drift:
        _print_what_if(options, chosen.snapshot, plan, chosen.catalog)
        return 0
    identity = CatalogIdentity(chosen.name, chosen.digest)
    report = PlanReport(
        plan, Workloads(snapshot.pods), identity, (*notes, *gates.notes, *chosen.notes), (*chosen.assumptions, *assumed)
    )
    _print_plan(report, options.output)
    return _POD_WITHOUT_PLACE if options.exit_code and leaves_pods(plan) else 0


def _count(text: str) -> int:
    if not text.isascii() or not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of pods, such as 50")
    return int(text)


def leaves_pods(plan: "Plan") -> bool:
    """Whether a pod has no place: unschedulable, or ignored for something that is wrong with it or its volumes."""
    from spotwright.scheduling.inputs.provisionable import PLACELESS_CAUSES

    ignored = (cause.code for pod in plan.ignored_pods for cause in pod.causes)
    return bool(plan.unschedulable_pods) or not PLACELESS_CAUSES.isdisjoint(ignored)


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


def _print_what_if(options: argparse.Namespace, snapshot: "Snapshot", plan: "Plan", catalog: "Catalog") -> None:
    """What would be disrupted now; nothing is changed."""
    from spotwright.cli.text.what_if import what_if_document, what_if_to_text
    from spotwright.disruption.what_if import disrupt_if_asked

    found = disrupt_if_asked(
        snapshot,
        plan,
        catalog,
        with_drift=options.drift,
        with_consolidation=options.consolidate,
        most_evictions=options.evictions,
    )
    if options.output in ("text", "wide"):
        from spotwright.cli.text.terminal import stdout_terminal

        terminal = stdout_terminal()
        print(terminal.show(what_if_to_text(found, terminal, is_wide=options.output == "wide")))
    elif options.output == "json":
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(what_if_document(found)), indent=2).decode())
    else:
        from spotwright.cli.text.yaml_documents import write_yaml

        write_yaml([what_if_document(found)], sys.stdout)


def _choose_catalog(
    options: argparse.Namespace,
    snapshot: "Snapshot",
    live: "LiveCluster | None",
    named: "NamedZones",
    overheads: "Overheads",
) -> "PlanCatalog":
    """The catalog file, or the cluster's catalog, or what is built in of a region. Raises InputError."""
    from spotwright.cli.inputs import region_catalog

    if options.catalog:
        return region_catalog.catalog_of_file(snapshot, options.catalog)
    if live and live.catalog:
        known = live.snapshot.nodeclasses
        return region_catalog.catalog_of_cluster(snapshot, live.catalog, options.cluster, known, live.read_region)
    return region_catalog.make_region_catalog(snapshot, named, options.region, overheads)


def _read_inputs(
    options: argparse.Namespace, feature_gates: str
) -> "tuple[Snapshot, LiveCluster | None, NamedZones, tuple[str, ...], tuple[str, ...]]":
    """The snapshot to plan, the running cluster if there is one, zones that are named, notes about manifests, and
    assumptions about what is not among them."""
    is_live = options.kubeconfig or options.context or options.cluster or not options.files
    live = None
    if is_live:
        from spotwright.cli.inputs.live_cluster import observe_cluster

        live = observe_cluster(options, feature_gates)
    from spotwright.cli.inputs.named_zones import find_named_zones, objects_of_cluster

    of_cluster = objects_of_cluster(live.snapshot) if live else []
    if live and not options.files:
        return live.snapshot, live, find_named_zones(of_cluster), (), ()
    from spotwright.cli.inputs.assumed_classes import assumed_classes
    from spotwright.cli.inputs.assumed_daemonsets import assumed_daemonsets
    from spotwright.cli.inputs.assumed_namespaces import assume_namespaces
    from spotwright.cli.inputs.assumed_volumes import assume_volumes
    from spotwright.cli.inputs.autoscaled import apply_autoscalers
    from spotwright.cli.inputs.conversion import upgrade_documents
    from spotwright.cli.inputs.documents import deduplicate
    from spotwright.cli.inputs.feature_gates import drop_gated_objects
    from spotwright.cli.inputs.invalid_nodepools import close_invalid_nodepools
    from spotwright.cli.inputs.manifest_snapshot import apply_manifests, decode_snapshot
    from spotwright.cli.inputs.sources import read_documents
    from spotwright.cli.inputs.validation.check import Strictness, check_documents

    checked = check_documents(read_documents(options.files), Strictness(options.validate))
    documents, notes = upgrade_documents(checked)
    documents, replaced = deduplicate(documents)
    documents, scaled = apply_autoscalers(documents)
    snapshot = decode_snapshot(documents, feature_gates)
    # The NodePools of a case file are as the case says.
    snapshot = snapshot if documents.has_case else close_invalid_nodepools(snapshot)
    if live:
        snapshot = apply_manifests(live.snapshot, snapshot)
    # A case file's objects count whatever the gates are.
    snapshot, gated = (snapshot, ()) if documents.has_case else drop_gated_objects(snapshot)
    named = find_named_zones((*(document.content for document in documents.objects), *of_cluster))
    # Of a running cluster and of a case file, the volumes are known, and what admission did with pods.
    is_known = live or documents.has_case
    all_notes = (*documents.notes, *notes, *replaced, *scaled, *gated)
    if is_known:
        return snapshot, live, named, all_notes, ()
    snapshot, of_volumes = assume_volumes(snapshot)
    snapshot, of_namespaces = assume_namespaces(snapshot)
    others = (*assumed_classes(documents.objects), *assumed_daemonsets(snapshot))
    return snapshot, live, named, all_notes, (*of_volumes, *of_namespaces, *others)
