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


def add(subparsers: Any) -> None:
    """Register the command."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "catalog",
        help="list instance types: labels, allocatable, prices",
        description="List instance types as a class would run them: those of a region as they come with Spotwright, or"
        " as EC2 sells them now (--live), or those of a cluster's catalog (--cluster).",
    )
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
    parser.add_argument("--output", choices=("text", "json"), default="text", help="default: text")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the catalog. 0: done; 1: AWS does not answer."""
    import sys

    from spotwright.cli.text.catalog import catalog_to_json, catalog_to_text
    from spotwright.errors import ApiError

    try:
        title, rows = _cluster_rows(options) if options.cluster else _region_rows(options)
    except ApiError as failure:
        print(f"spotwright catalog: {failure}", file=sys.stderr)
        return 1
    print(catalog_to_json(rows) if options.output == "json" else "\n".join(catalog_to_text(rows, title)))
    return 0


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
    from spotwright.settings import catalog_settings

    region, zone_ids, source = _read_region(options)
    zones = SubnetZones(zone_ids, tuple(zone_ids))
    nodeclass = default_nodeclass(zones)
    if options.nodeclass:
        nodeclass = resolve_nodeclass(_read_nodeclass(options.nodeclass), zones).nodeclass
    family = families.ami_family(nodeclass)
    if isinstance(family, Refusal):
        raise InputError(f"{options.nodeclass}: EC2NodeClass {nodeclass.name}: {family.message}")
    offering_context = offerings.offering_context(nodeclass, family)
    try:
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
    except (QuantityError, KubeletError) as error:
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
    from spotwright.adapters.kubernetes.codecs.fields import DecodeError
    from spotwright.adapters.kubernetes.codecs.nodeclass import decode_nodeclass_strict
    from spotwright.cli.inputs.conversion import upgrade_documents
    from spotwright.cli.inputs.documents import read_documents

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
        return region, zones, "; ".join((builtin_regions.describe(name), *builtin_regions.assumptions(name)))
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
    from spotwright.adapters.aws.cloudformation import stack_outputs
    from spotwright.adapters.aws.dynamodb.state import DynamoState
    from spotwright.adapters.aws.s3.blobs import S3Blobs
    from spotwright.adapters.aws.s3.catalogs import Catalogs
    from spotwright.cli.text.catalog import CatalogRow

    if options.setting:
        raise InputError("--setting does not go with --cluster: its catalog is already made")
    if options.region:
        raise InputError("--region does not go with --cluster: its catalog is of the cluster's region")
    outputs = stack_outputs(clients.client("cloudformation"), options.stack)
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
