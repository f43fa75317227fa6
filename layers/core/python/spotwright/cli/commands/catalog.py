"""``spotwright catalog``: instance types with their allocatable resources and prices."""

import argparse
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from spotwright.cli import InputError

if TYPE_CHECKING:
    from spotwright.aws.instance_types.region_facts import RegionFacts
    from spotwright.cli.text.catalog import CatalogRow
    from spotwright.model.karpenter.nodeclass import EC2NodeClass


_SETTINGS: Final = ("VM_MEMORY_OVERHEAD_PERCENT", "RESERVED_ENIS", "AWS_FEATURE_GATES")

_SORT_ORDERS: Final = ("name", "price", "spot", "cpu", "memory")
_EPILOG: Final = """\
examples:
  spotwright catalog 'm7*' --sort price                      what do these types offer and cost?
  spotwright catalog --min-cpu 8 --max-memory 32Gi --arch arm64 --sort spot
  spotwright catalog -l 'instance-gpu-count>0' -o wide       types with GPUs
  spotwright catalog -l 'instance-category in (c,m),instance-generation>6' -L instance-hypervisor
  spotwright catalog -o json > catalog.json                  for spotwright plan --catalog catalog.json
"""


def add(subparsers: Any) -> None:
    """Register the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "catalog",
        help="list instance types: labels, allocatable, prices",
        description="List instance types as a class would run them: those of a region as they come with Spotwright, or"
        "\nas EC2 sells them now (--live), or those of a cluster's catalog (--cluster).",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="TYPE", help="instance types, * and ? stand for any letters: 'm7*'")
    _add_filters(parser)
    parser.add_argument("--region", metavar="REGION", help="default: us-east-1")
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--live", action="store_true", help="ask EC2 and the Price List now, with the AWS SDK's credentials"
    )
    where.add_argument("--cluster", metavar="NAME", help="the catalog that this cluster plans with")
    parser.add_argument(
        "--nodeclass",
        metavar="CLASS",
        help="a manifest with an EC2NodeClass; with --cluster the class' name (default: Amazon Linux 2023)",
    )
    parser.add_argument(
        "--setting",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help=f"{', '.join(_SETTINGS)}; not with --cluster, which has its own",
    )
    stack = os.environ.get("SPOTWRIGHT_STACK", "Spotwright-main")
    parser.add_argument("--stack", default=stack, help="with --cluster: the cell's stack (default: %(default)s)")
    parser.add_argument(
        "-o", "--output", choices=("text", "wide", "json"), default="text",
        help="wide: with architecture, GPUs and network; json: what plan --catalog reads (default: text)",
    )  # fmt: skip
    parser.add_argument(
        "-L", "--label-columns", action="append", default=[], metavar="KEY", help="a column for a label; repeatable"
    )
    parser.add_argument("--sort", choices=_SORT_ORDERS, default="name", help="default: name")
    parser.set_defaults(run=run)


def _add_filters(parser: argparse.ArgumentParser) -> None:
    filters = parser.add_argument_group("which instance types (values are separated by commas)")
    filters.add_argument("--arch", default="", metavar="ARCH", help="amd64, arm64")
    filters.add_argument("--family", default="", metavar="FAMILY", help="such as m7i,c7g")
    filters.add_argument("--zone", default="", metavar="ZONE", help="sold there; only its prices count")
    filters.add_argument("--capacity-type", default="", metavar="TYPE", help="on-demand, spot, reserved")
    sizes = (("cpu", "vCPUs of the type"), ("memory", "of the type, such as 8Gi; without a suffix MiB"))
    for name, what in sizes:
        filters.add_argument(f"--min-{name}", default="", metavar="AMOUNT", help=f"at least, {what}, before overhead")
        filters.add_argument(f"--max-{name}", default="", metavar="AMOUNT", help=f"at most, {what}, before overhead")
    filters.add_argument(
        "-l", "--selector", action="append", default=[], metavar="SELECTOR",
        help="labels as kubectl selects them, with comparisons: 'instance-cpu>4,instance-category in (c,m)'",
    )  # fmt: skip


def run(options: argparse.Namespace) -> int:
    """Print the catalog. 0: done; 1: AWS does not answer."""
    import sys

    from spotwright.cli.inputs.label_selector import full_label_key
    from spotwright.cli.text.catalog import catalog_to_json, catalog_to_text, sort_rows
    from spotwright.errors import ApiError

    try:
        title, rows = _cluster_rows(options) if options.cluster else _region_rows(options)
    except ApiError as failure:
        print(f"spotwright catalog: {failure}", file=sys.stderr)
        return 1
    chosen = sort_rows(_filter_rows(options, rows), options.sort)
    if options.output == "json":
        print(catalog_to_json(chosen))
        return 0
    known_keys = {key for row in rows for key in row.instance_type.requirements.by_key}
    columns = [full_label_key(key, known_keys, "-L") for key in options.label_columns]
    print("\n".join(catalog_to_text(chosen, title, is_wide=options.output == "wide", label_keys=columns)))
    return 0


def _filter_rows(options: argparse.Namespace, rows: "list[CatalogRow]") -> "list[CatalogRow]":
    """The rows that are asked for, with the offerings that are asked for; raises InputError."""
    import msgspec

    from spotwright.cli.inputs.catalog_filter import CatalogOptions, build_filter
    from spotwright.model import labels

    values = {
        labels.ARCH: options.arch,
        f"{labels.INSTANCE_PREFIX}family": options.family,
        labels.ZONE: options.zone,
        labels.CAPACITY_TYPE: options.capacity_type,
    }
    asked = CatalogOptions(
        options.names,
        options.selector,
        {key: [value.strip() for value in given.split(",")] for key, given in values.items() if given},
        {
            f"{labels.INSTANCE_PREFIX}cpu": (options.min_cpu, options.max_cpu),
            f"{labels.INSTANCE_PREFIX}memory": (options.min_memory, options.max_memory),
        },
    )
    wanted = build_filter(asked, [row.instance_type for row in rows], _place(options))
    matching = ((row, wanted.apply(row.instance_type)) for row in rows)
    return [msgspec.structs.replace(row, instance_type=kept) for row, kept in matching if kept is not None]


def _place(options: argparse.Namespace) -> str:
    """Where the types were looked for, and where else to look."""
    from spotwright.cli.inputs.builtin_regions import DEFAULT_REGION

    if options.cluster:
        return f"the catalog of cluster {options.cluster}; spotwright catalog --live asks EC2"
    region = options.region or DEFAULT_REGION
    return f"{region}; --region names another region" + ("" if options.live else ", --live asks EC2")


def _region_rows(options: argparse.Namespace) -> "tuple[str, list[CatalogRow]]":
    """The instance types of a region for an EC2NodeClass, with types that EC2 does not sell there."""
    from spotwright.aws.images import families
    from spotwright.aws.instance_types import capacity, offerings
    from spotwright.aws.kubelet.configuration import KubeletError
    from spotwright.aws.refusal import Refusal
    from spotwright.cli.inputs.assumed_nodeclasses import SubnetZones, default_nodeclass, resolve_nodeclass
    from spotwright.cli.text.catalog import CatalogRow
    from spotwright.errors import InvalidRequest
    from spotwright.model.quantity import QuantityError
    from spotwright.model.requirements import RequirementError
    from spotwright.settings import catalog_settings

    region, zone_ids, source = _read_region(options)
    zones = SubnetZones(zone_ids, tuple(zone_ids))
    nodeclass = default_nodeclass(zones)
    if options.nodeclass:
        nodeclass = resolve_nodeclass(_read_nodeclass(options.nodeclass), zones).nodeclass
    family = families.ami_family(nodeclass)
    if isinstance(family, Refusal):
        raise InputError(f"{options.nodeclass}: EC2NodeClass {nodeclass.name}: {family.message}")
    try:
        offering_context = offerings.offering_context(nodeclass, family)
        settings = catalog_settings(_settings(options.setting)).overheads
        rows = [
            CatalogRow(
                offerings.instance_type(info, region, offering_context, settings),
                capacity.node_resources(info, nodeclass, family, settings),
            )
            for info in region.types
            if info.arch
        ]
    except InvalidRequest as error:
        raise InputError(str(error)) from None
    except (QuantityError, KubeletError, RequirementError) as error:
        raise InputError(f"{options.nodeclass}: EC2NodeClass {nodeclass.name}: {error}") from None
    return f"Class {nodeclass.name} ({family.name}). {source}", rows


def _settings(assignments: list[str]) -> dict[str, str | int | float | bool]:
    settings: dict[str, str | int | float | bool] = {}
    for setting in assignments:
        name, equals, value = setting.partition("=")
        if not equals or name not in _SETTINGS:
            raise InputError(f"--setting {setting}: expected NAME=VALUE with one of {', '.join(_SETTINGS)}")
        settings[name] = value
    return settings


def _read_nodeclass(path: str) -> "EC2NodeClass":
    """The only EC2NodeClass of a manifest; raises InputError."""
    from spotwright.adapters.kubernetes.codecs.decode_errors import DecodeError
    from spotwright.adapters.kubernetes.codecs.nodeclass import decode_nodeclass_strict
    from spotwright.cli.inputs.conversion import upgrade_documents
    from spotwright.cli.inputs.sources import read_documents

    documents, _ = upgrade_documents(read_documents([path]))
    classes = [document for document in documents.objects if document.content.get("kind") == "EC2NodeClass"]
    if len(classes) != 1:
        raise InputError(f"{path}: expected one EC2NodeClass, found {len(classes)}")
    try:
        return decode_nodeclass_strict(classes[0].content)
    except DecodeError as error:
        raise InputError(f"{path}: {error}") from None


def _read_region(options: argparse.Namespace) -> "tuple[RegionFacts, dict[str, str], str]":
    """The facts of a region, its zones with their ids ("" = not known), and where the facts come from."""
    from spotwright.cli.inputs import builtin_regions

    name = options.region or builtin_regions.DEFAULT_REGION
    if not options.live:
        region, zones = builtin_regions.load_region(name), builtin_regions.zone_ids(name)
        return (
            region,
            zones,
            "; ".join((f"{builtin_regions.describe(name)} (EC2's own: --live)", *builtin_regions.assumptions(name))),
        )
    region = _ask_aws(name)
    zones = dict.fromkeys(sorted({zone for zones_of_type in region.zones.values() for zone in zones_of_type}), "")
    return region, zones, "; ".join((f"{name} as EC2 sells it now", *region.notes))


def _ask_aws(region: str) -> "RegionFacts":
    """The facts of a region from EC2 and the Price List."""
    from spotwright.adapters.aws import clients, pricing
    from spotwright.adapters.aws.ec2.region import Ec2Region

    price_region = pricing.endpoint_region(region)
    pricing_client = None if price_region is None else clients.client("pricing", region=price_region)
    return Ec2Region(clients.client("ec2", region=region), pricing_client, region=region).read(datetime.now(UTC))


def _cluster_rows(options: argparse.Namespace) -> "tuple[str, list[CatalogRow]]":
    """The instance types of the catalog that a cluster plans with."""
    from spotwright.adapters.aws import clients
    from spotwright.adapters.aws.cloudformation import cluster_outputs
    from spotwright.adapters.aws.dynamodb.state import DynamoState
    from spotwright.adapters.aws.s3.blobs import S3Blobs
    from spotwright.adapters.aws.s3.catalogs import Catalogs
    from spotwright.cli.text.catalog import CatalogRow

    if options.setting:
        raise InputError("--setting does not go with --cluster: its catalog is already made")
    if options.region:
        raise InputError("--region does not go with --cluster: its catalog is of the cluster's region")
    outputs = cluster_outputs(clients.client("cloudformation"), options.stack, options.cluster)
    state = DynamoState(clients.client("dynamodb"), table=outputs["TableName"], cluster=options.cluster)
    key = state.catalog_key()
    if not key:
        raise InputError(f"cluster {options.cluster} has no catalog yet")
    blobs = S3Blobs(clients.client("s3"), bucket=outputs["BucketName"], cluster=options.cluster)
    by_class = Catalogs(blobs).read(key).by_nodeclass
    name = options.nodeclass or next(iter(sorted(by_class)), "")
    if name not in by_class:
        available = ", ".join(sorted(by_class)) or "none"
        raise InputError(
            f"--nodeclass {name}: cluster {options.cluster} has no such class in its catalog ({available})"
        )
    return f"Class {name} of cluster {options.cluster}, catalog {key}", [
        CatalogRow(instance_type) for instance_type in by_class[name]
    ]
