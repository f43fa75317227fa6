"""The instance types of every class as one stored catalog; a class is computed again only where something changed."""

import hashlib
from collections.abc import Iterable
from functools import cache

import msgspec

from spotwright.aws.images import families
from spotwright.aws.instance_types import catalog_codec, discovered_capacity, offerings, price_file, region_facts
from spotwright.aws.instance_types.capacity import Overheads
from spotwright.aws.instance_types.price_file import PriceFile
from spotwright.aws.instance_types.region_facts import RegionFacts
from spotwright.aws.kubelet.configuration import KubeletError
from spotwright.aws.refusal import Refusal
from spotwright.errors import NotFound
from spotwright.model.ec2.instance_type import Catalog, InstanceType
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.quantity import QuantityError
from spotwright.workflows.planning.code_digest import digest_of_reached_code
from spotwright.workflows.ports.state import BlobPort


class CatalogInputs(msgspec.Struct, frozen=True):
    """What the types of a class depend on besides the class and the region.

    ``shifted``: ids of zones that are shifted away from. ``memory``: see ``DiscoveredMemory`` of
    ``aws.instance_types.discovered_capacity``.
    """

    overheads: Overheads = Overheads()
    shifted: frozenset[str] = frozenset()
    prices: PriceFile = PriceFile()
    memory: dict[str, tuple[int, int]] = {}


class StoredCatalog(msgspec.Struct, frozen=True):
    """A catalog in the blob store; an empty ``body`` = there is none that can be used."""

    key: str
    header: catalog_codec.CatalogHeader = catalog_codec.CatalogHeader()
    body: bytes = b""


def read_catalog(blobs: BlobPort, key: str) -> StoredCatalog:
    """The catalog of ``key``; one that is missing or of another schema counts as none."""
    if not key:
        return StoredCatalog("")
    try:
        body = blobs.get(key)
        header = catalog_codec.read_header(body)
    except (NotFound, msgspec.DecodeError):
        return StoredCatalog(key)
    return StoredCatalog(key, header, body) if header.schema == catalog_codec.SCHEMA else StoredCatalog(key)


def store_region(blobs: BlobPort, region: RegionFacts) -> str:
    return blobs.put("catalogs", msgspec.json.encode(region))


def store_empty_catalog(blobs: BlobPort, region: RegionFacts) -> str:
    """The key of a catalog of no class, which says where the region is."""
    source = store_region(blobs, region)
    header = catalog_codec.CatalogHeader(source, {}, (), {}, schema=catalog_codec.SCHEMA)
    return blobs.put("catalogs", catalog_codec.encode(Catalog({}, source), header))


def region_of(blobs: BlobPort, before: StoredCatalog) -> RegionFacts | None:
    """The region facts of a catalog; None when they are missing or of another schema."""
    if not before.header.source:
        return None
    try:
        region = msgspec.json.decode(blobs.get(before.header.source), type=RegionFacts)
    except (NotFound, msgspec.DecodeError):
        return None
    return region if region.schema == region_facts.REGION_SCHEMA else None


def types_of(stored_catalog: StoredCatalog, node_class: str) -> tuple[InstanceType, ...]:
    """The types of a class in a stored catalog; () when it is not in it."""
    return (
        catalog_codec.decode(stored_catalog.body).instance_types(node_class)
        if node_class in stored_catalog.header.signatures
        else ()
    )


def store_catalog(
    blobs: BlobPort,
    previous: StoredCatalog,
    *,
    source: str,
    region: RegionFacts,
    classes: Iterable[EC2NodeClass],
    inputs: CatalogInputs,
) -> str:
    """The key of the catalog for these classes; the previous key when nothing that matters has changed.

    A class that is being deleted, or has no subnets, has no types.
    """
    usable = {
        nodeclass.name: nodeclass
        for nodeclass in classes
        if nodeclass.subnets and nodeclass.metadata.deletion_timestamp is None
    }
    signatures = {name: class_signature(usable[name], inputs) for name in sorted(usable)}
    header = catalog_codec.CatalogHeader(
        source, signatures, tuple(sorted(inputs.shifted)), inputs.memory, schema=catalog_codec.SCHEMA
    )
    if previous.body and previous.header == header:
        return previous.key
    types_by_signature, priced = _reusable(previous, source), price_file.apply_prices(region, inputs.prices)
    for name, signature in signatures.items():
        if signature not in types_by_signature:
            types_by_signature[signature] = _types(priced, usable[name], inputs)
    by_class = {name: types_by_signature[signature] for name, signature in signatures.items()}
    return blobs.put(
        "catalogs", catalog_codec.encode(Catalog(by_class, source, shifted_zone_ids=header.shifted), header)
    )


def _reusable(before: StoredCatalog, source: str) -> dict[str, tuple[InstanceType, ...]]:
    """Signature → types in the catalog ``before``, if it is of the same region facts."""
    if not before.body or before.header.source != source:
        return {}
    catalog = catalog_codec.decode(before.body)
    return {signature: catalog.instance_types(name) for name, signature in before.header.signatures.items()}


def _types(region: RegionFacts, node_class: EC2NodeClass, inputs: CatalogInputs) -> tuple[InstanceType, ...]:
    family = families.ami_family(node_class)
    if isinstance(family, Refusal):
        return ()
    try:
        offering_context = offerings.offering_context(
            node_class,
            family,
            shifted_zone_ids=inputs.shifted,
            discovered_memory=discovered_capacity.memory_sizes(inputs.memory),
        )
        return offerings.instance_types(region, offering_context, inputs.overheads)
    except (QuantityError, KubeletError):
        # A volume size or an expression has no value: the conditions of the class say so.
        return ()


def class_signature(node_class: EC2NodeClass, inputs: CatalogInputs) -> str:
    """A digest of everything but the region facts that a class' types depend on, the code included."""
    content = (
        sorted({(subnet.zone, subnet.zone_id) for subnet in node_class.subnets}),
        [ami.requirements for ami in node_class.amis],
        families.ami_family_name(node_class),
        node_class.kubelet,
        node_class.block_device_mappings,
        node_class.instance_store_policy,
        node_class.network_interfaces,
        node_class.connection_tracking,
        node_class.cpu_options,
        node_class.placement_group,
        node_class.capacity_reservations,
        sorted(inputs.shifted & {subnet.zone_id for subnet in node_class.subnets}),
        inputs.overheads,
        inputs.prices,
        [
            (type_and_ami, memory)
            for type_and_ami, memory in sorted(discovered_capacity.memory_sizes(inputs.memory).items())
            if type_and_ami[1] in {ami.id for ami in node_class.amis}
        ],
        sizing_code_digest(),
    )
    return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()[:16]


@cache
def sizing_code_digest() -> str:
    """A digest of the code that computes types: a new release computes its catalogs again."""
    return digest_of_reached_code(__name__)
