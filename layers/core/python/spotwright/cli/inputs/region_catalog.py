"""The catalog of a plan: a file's, a cluster's, or every EC2NodeClass' own instance types in a region.

The last are computed as for a cluster, with what ``assumed_nodeclasses`` assumes.
"""

import hashlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from spotwright.aws.images import families
from spotwright.aws.instance_types.capacity import Overheads
from spotwright.aws.instance_types.region_facts import RegionFacts
from spotwright.aws.kubelet.configuration import KubeletError
from spotwright.aws.nodeclass.validation import has_expressions, validate
from spotwright.aws.refusal import Refusal
from spotwright.cli.inputs import assumed_nodeclasses, builtin_catalog, builtin_regions
from spotwright.cli.inputs.assumed_nodeclasses import SubnetZones
from spotwright.cli.inputs.builtin_catalog import instance_types
from spotwright.cli.inputs.catalog_file import read_catalog_file
from spotwright.cli.inputs.named_zones import NamedZones, choose_region
from spotwright.model.ec2.fleet import ClusterFacts
from spotwright.model.ec2.instance_type import Catalog, InstanceType
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.quantity import QuantityError
from spotwright.model.requirements import RequirementError
from spotwright.model.snapshot import Snapshot

# The cluster that user data is rendered for to see whether it can be; sizes of nodes do not depend on it.
_CLUSTER: Final = ClusterFacts("manifests", "https://cluster.local", "", "1.35", "10.100.0.0/16", "vpc")
_DEFAULTS: Final = Overheads()


class PlanCatalog(msgspec.Struct, frozen=True):
    """``snapshot``: with EC2NodeClasses as the catalog has them, not Ready where they are invalid.

    ``name``, ``digest``: which catalog it is, and of which content. ``notes``, ``assumptions``: sentences.
    """

    snapshot: Snapshot
    catalog: Catalog
    name: str
    digest: str
    notes: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()


def catalog_of_file(snapshot: Snapshot, path: str) -> PlanCatalog:
    """The types of a catalog file for every class; raises InputError."""
    catalog = read_catalog_file(path)
    names = ", ".join(nodeclass.name for nodeclass in snapshot.nodeclasses)
    assumption = f"EC2NodeClass {names}: instance types are those of {path}, whatever the class says of sizes"
    return PlanCatalog(
        snapshot, catalog, path, _digest(Path(path).read_bytes()), assumptions=(assumption,) if names else ()
    )


def catalog_of_cluster(
    snapshot: Snapshot,
    catalog: Catalog,
    cluster: str,
    known: Sequence[EC2NodeClass],
    read_region: Callable[[], RegionFacts | None],
) -> PlanCatalog:
    """The cluster's catalog; with types of classes that the manifests add or change.

    ``known``: the classes that the catalog is of. ``read_region``: the facts that it was made from, None = lost.
    """
    unchanged = {nodeclass.name: _inputs(nodeclass) for nodeclass in known}
    changed = [nodeclass for nodeclass in snapshot.nodeclasses if unchanged.get(nodeclass.name) != _inputs(nodeclass)]
    region = read_region() if changed else None
    own = PlanCatalog(snapshot, catalog, f"cluster {cluster}", catalog.source)
    if region is None:
        notes = tuple(
            f"EC2NodeClass {nodeclass.name}: what the manifests change has no effect here, since the facts that the"
            " cluster's catalog was made from are not stored any more"
            for nodeclass in changed
        )
        return msgspec.structs.replace(own, notes=notes)
    zones = _zones_of_cluster(region, known)
    resolved, assumptions = _resolve(msgspec.structs.replace(snapshot, nodeclasses=tuple(changed)), zones)
    sizes = _Sizes(lambda: region, _DEFAULTS)
    by_class, checked = _types_by_class(resolved, sizes)
    others = tuple(nodeclass for nodeclass in snapshot.nodeclasses if nodeclass.name not in by_class)
    return msgspec.structs.replace(
        own,
        snapshot=msgspec.structs.replace(snapshot, nodeclasses=(*others, *checked)),
        catalog=msgspec.structs.replace(catalog, by_nodeclass=catalog.by_nodeclass | by_class),
        assumptions=tuple(assumptions),
    )


def _zones_of_cluster(region: RegionFacts, known: Iterable[EC2NodeClass]) -> SubnetZones:
    """The zones in which classes of the cluster have subnets, else all of the region."""
    with_subnets = {subnet.zone: subnet.zone_id for nodeclass in known for subnet in nodeclass.subnets}
    every = dict.fromkeys(sorted({zone for zones in region.zones.values() for zone in zones}), "") | with_subnets
    return SubnetZones(every, tuple(sorted(with_subnets or every)))


def make_region_catalog(
    snapshot: Snapshot, named: NamedZones, region: str | None, overheads: Overheads = _DEFAULTS
) -> PlanCatalog:
    """``region``: the name of a region that is built in, None = what the manifests name. Raises InputError."""
    chosen = choose_region(region, named)
    zones = assumed_nodeclasses.subnet_zones(builtin_regions.zone_ids(chosen.name), named)
    classes, of_classes = _resolve(snapshot, zones)
    missing = assumed_nodeclasses.missing_nodeclasses(snapshot.nodepools, snapshot.nodeclasses, zones)
    sizes = _Sizes(lambda: builtin_regions.load_region(chosen.name), overheads)
    if chosen.name == builtin_regions.DEFAULT_REGION and overheads == _DEFAULTS:
        sizes.add_builtin()
    by_class, checked = _types_by_class((*classes, *missing.nodeclasses), sizes)
    by_class[""] = sizes.types_of_valid(assumed_nodeclasses.default_nodeclass(zones))
    return PlanCatalog(
        snapshot=msgspec.structs.replace(snapshot, nodeclasses=checked),
        catalog=Catalog(by_class, source=chosen.name),
        name=f"{chosen.name}, built in",
        digest=_digest(builtin_regions.content(), chosen.name.encode()),
        notes=chosen.notes,
        assumptions=(
            *((chosen.reason,) if chosen.reason else ()),
            f"instance types and prices: {builtin_regions.describe(chosen.name)} (another catalog: --catalog FILE)",
            *builtin_regions.assumptions(chosen.name),
            *of_classes,
            *missing.assumptions,
            *_of_zone_ids(named, zones),
        ),
    )


def _digest(*contents: bytes) -> str:
    return hashlib.sha256(b"".join(contents)).hexdigest()[:16]


def _resolve(snapshot: Snapshot, zones: SubnetZones) -> tuple[list[EC2NodeClass], list[str]]:
    """The classes with subnets and images; and sentences on what is assumed, each with all classes that it is about."""
    resolved, names_by_sentence = list[EC2NodeClass](), dict[str, list[str]]()
    for nodeclass in snapshot.nodeclasses:
        nodepools = assumed_nodeclasses.referring_nodepools(nodeclass.name, snapshot.nodepools)
        result = assumed_nodeclasses.resolve_nodeclass(nodeclass, zones, nodepools)
        resolved.append(result.nodeclass)
        for sentence in result.assumptions if nodepools else ():
            names_by_sentence.setdefault(sentence, []).append(nodeclass.name)
    return resolved, [f"EC2NodeClass {', '.join(names)}: {sentence}" for sentence, names in names_by_sentence.items()]


def _of_zone_ids(named: NamedZones, zones: SubnetZones) -> Iterator[str]:
    """Said only where ids matter."""
    if named.zone_ids:
        pairs = ", ".join(f"{zone} is {zones.all[zone]}" for zone in zones.assumed)
        yield f"zone ids: which zone has which id differs from account to account; assumed: {pairs}"


class _Sizes:
    """The instance types of classes in a region; those of classes that differ in nothing that matters are the same."""

    def __init__(self, read_region: Callable[[], RegionFacts], overheads: Overheads) -> None:
        self._read_region = read_region
        self._overheads = overheads
        self._known: dict[bytes, tuple[InstanceType, ...]] = {}

    def add_builtin(self) -> None:
        """Take the types of the default class as they are built in, instead of computing them."""
        default = assumed_nodeclasses.default_nodeclass(builtin_catalog.builtin_zones())
        self._known[_inputs(default)] = builtin_catalog.load_builtin_catalog().instance_types("")

    def types(self, nodeclass: EC2NodeClass) -> tuple[InstanceType, ...] | Refusal:
        """The types of a class, or why it is invalid."""
        described = self._read_region().types if has_expressions(nodeclass) else ()
        refusal = validate(nodeclass, _CLUSTER, self._overheads, described)
        if isinstance(refusal, Refusal):
            return refusal
        try:
            return self.types_of_valid(nodeclass)
        except (QuantityError, KubeletError) as error:
            return Refusal("ValidationFailed", str(error))
        except RequirementError as error:
            return Refusal("ValidationFailed", f"status.amis.requirements: {error}")

    def types_of_valid(self, nodeclass: EC2NodeClass) -> tuple[InstanceType, ...]:
        """Raises QuantityError, KubeletError and RequirementError."""
        key = _inputs(nodeclass)
        if key not in self._known:
            self._known[key] = instance_types(self._read_region(), nodeclass, self._overheads)
        return self._known[key]


def _types_by_class(
    classes: Iterable[EC2NodeClass], sizes: _Sizes
) -> tuple[dict[str, tuple[InstanceType, ...]], tuple[EC2NodeClass, ...]]:
    """The types of every class; and the classes, not Ready where they are invalid."""
    by_class: dict[str, tuple[InstanceType, ...]] = {}
    checked: list[EC2NodeClass] = []
    for nodeclass in classes:
        types = sizes.types(nodeclass)
        by_class[nodeclass.name] = () if isinstance(types, Refusal) else types
        checked.append(assumed_nodeclasses.not_ready(nodeclass, types) if isinstance(types, Refusal) else nodeclass)
    return by_class, tuple(checked)


def _inputs(nodeclass: EC2NodeClass) -> bytes:
    """All of a class that its instance types depend on."""
    return msgspec.json.encode(
        (
            sorted({(subnet.zone, subnet.zone_id) for subnet in nodeclass.subnets}),
            [ami.requirements for ami in nodeclass.amis],
            families.ami_family_name(nodeclass),
            nodeclass.kubelet,
            nodeclass.block_device_mappings,
            nodeclass.instance_store_policy,
            nodeclass.network_interfaces,
            nodeclass.connection_tracking,
            nodeclass.cpu_options,
            nodeclass.placement_group,
            nodeclass.capacity_reservations,
        ),
        order="deterministic",
    )
