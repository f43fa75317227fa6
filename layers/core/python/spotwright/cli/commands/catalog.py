"""``spotwright catalog``: every instance type with what pods can have of it and what it costs."""

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
        description="List instance types as a class would run them. Without --region or --cluster: the facts of"
        " us-east-1 that come with Spotwright, without asking AWS.",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--region", metavar="REGION", help="ask EC2 and the Price List, with the AWS SDK's credentials")
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
    """Print the catalog; 2 where something asked for is not there, 1 when AWS does not answer."""
    import sys

    from spotwright.cli.text.catalog import catalog_to_json, catalog_to_text
    from spotwright.errors import ApiError

    try:
        about, rows = _stored(options) if options.cluster else _made(options)
    except ApiError as failure:
        print(f"spotwright catalog: {failure}", file=sys.stderr)
        return 1
    print(catalog_to_json(rows) if options.output == "json" else "\n".join(catalog_to_text(rows, about)))
    return 0


def _made(options: argparse.Namespace) -> "tuple[str, list[CatalogRow]]":
    """The types of a region under one class, whether they are sold there or not."""
    from spotwright.aws.images import families
    from spotwright.aws.instance_types import capacity, offerings
    from spotwright.aws.kubelet.configuration import KubeletError
    from spotwright.aws.refusal import Refusal
    from spotwright.cli.inputs.builtin_catalog import BUILTIN_DESCRIPTION
    from spotwright.cli.inputs.builtin_region import load_builtin_region, resolved_nodeclass
    from spotwright.cli.text.catalog import CatalogRow
    from spotwright.errors import InvalidRequest
    from spotwright.model.quantity import QuantityError
    from spotwright.settings import catalog_settings

    region = _asked(options.region) if options.region else load_builtin_region()
    chosen = resolved_nodeclass(region, _class_of(options.nodeclass) if options.nodeclass else None)
    family = families.ami_family(chosen)
    if isinstance(family, Refusal):
        raise InputError(f"{options.nodeclass}: EC2NodeClass {chosen.name}: {family.message}")
    offering_context = offerings.offering_context(chosen, family)
    try:
        settings = catalog_settings(_settings(options.setting)).overheads
        rows = [
            CatalogRow(
                offerings.instance_type(info, region, offering_context, settings),
                capacity.node_resources(info, chosen, family, settings),
            )
            for info in region.types
            if info.arch
        ]
    except InvalidRequest as error:
        raise InputError(str(error)) from None
    except (QuantityError, KubeletError) as error:
        raise InputError(f"{options.nodeclass}: EC2NodeClass {chosen.name}: {error}") from None
    about = "; ".join((f"{region.name} as EC2 sells it now", *region.notes)) if options.region else BUILTIN_DESCRIPTION
    return f"Class {chosen.name} ({family.name}). {about}", rows


def _settings(given: list[str]) -> dict[str, str | int | float | bool]:
    found: dict[str, str | int | float | bool] = {}
    for one in given:
        name, equals, value = one.partition("=")
        if not equals or name not in _SETTINGS:
            raise InputError(f"--setting {one}: expected NAME=VALUE with one of {', '.join(_SETTINGS)}")
        found[name] = value
    return found


def _class_of(path: str) -> "EC2NodeClass":
    """The only EC2NodeClass of a manifest; raises InputError."""
    from spotwright.adapters.kubernetes.codecs.fields import DecodeError
    from spotwright.adapters.kubernetes.codecs.nodeclass import decode_nodeclass_strict
    from spotwright.cli.inputs.conversion import upgrade_documents
    from spotwright.cli.inputs.documents import read_documents

    read, _ = upgrade_documents(read_documents([path]))
    found = [one for one in read.objects if one.content.get("kind") == "EC2NodeClass"]
    if len(found) != 1:
        raise InputError(f"{path}: expected one EC2NodeClass, found {len(found)}")
    try:
        return decode_nodeclass_strict(found[0].content)
    except DecodeError as error:
        raise InputError(f"{path}: {error}") from None


def _asked(region: str) -> "RegionFacts":
    """What EC2 and the Price List say of a region now."""
    from spotwright.adapters.aws import clients, pricing
    from spotwright.adapters.aws.ec2.region import Ec2Region

    prices = pricing.endpoint_region(region)
    asked = None if prices is None else clients.client("pricing", region=prices)
    return Ec2Region(clients.client("ec2", region=region), asked, region=region).read(datetime.now(UTC))


def _stored(options: argparse.Namespace) -> "tuple[str, list[CatalogRow]]":
    """What a cluster's planners read."""
    from spotwright.adapters.aws import clients
    from spotwright.adapters.aws.cloudformation import stack_outputs
    from spotwright.adapters.aws.dynamodb.state import DynamoState
    from spotwright.adapters.aws.s3.blobs import S3Blobs
    from spotwright.adapters.aws.s3.catalogs import Catalogs
    from spotwright.cli.text.catalog import CatalogRow

    if options.setting:
        raise InputError("--setting does not go with --cluster: its catalog is already made")
    outputs = stack_outputs(clients.client("cloudformation"), options.stack)
    state = DynamoState(clients.client("dynamodb"), table=outputs["TableName"], cluster=options.cluster)
    key = state.catalog_key()
    if not key:
        raise InputError(f"cluster {options.cluster} has no catalog yet")
    blobs = S3Blobs(clients.client("s3"), bucket=outputs["BucketName"], cluster=options.cluster)
    by_class = Catalogs(blobs).read(key).by_nodeclass
    name = options.nodeclass or next(iter(sorted(by_class)), "")
    if name not in by_class:
        known = ", ".join(sorted(by_class)) or "none"
        raise InputError(f"--nodeclass {name}: cluster {options.cluster} has no such class in its catalog ({known})")
    return f"Class {name} of cluster {options.cluster}, catalog {key}", [
        CatalogRow(instance_type) for instance_type in by_class[name]
    ]
