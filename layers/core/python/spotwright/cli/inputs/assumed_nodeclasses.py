"""EC2NodeClasses as a cluster would resolve them: what only AWS knows is assumed, and said.

Subnets, images, capacity reservations and placement groups are the account's. A class with a status keeps what that
says of subnets and images.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

import msgspec

from spotwright.aws.images import aliases, families
from spotwright.aws.images.amis import architecture_requirements
from spotwright.aws.refusal import Refusal
from spotwright.cli.inputs.named_zones import NamedZones
from spotwright.model import labels
from spotwright.model.karpenter.nodeclass import AMI, EC2NodeClass, SelectorTerm, Subnet
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.meta import Condition, ObjectMeta

# Most clusters have subnets in three zones.
_ASSUMED_ZONES: Final = 3
# The newest version with images of every family but AL2, and the last with images of AL2.
_KUBERNETES: Final = "1.35"
_KUBERNETES_OF_AL2: Final = "1.32"
_KUBERNETES_BOUNDS: Final = {
    "al2": f"{_KUBERNETES_OF_AL2} or older, since there are no newer images of AL2",
    "windows2025": f"{_KUBERNETES} or newer, since there are no older images of Windows 2025",
}
_EC2_NAMES: Final = {"amd64": "x86_64", "arm64": "arm64"}
_ARCHITECTURE_IN_TEXT: Final = {
    "amd64": re.compile(r"x86[_-]?64|amd64", re.IGNORECASE),
    "arm64": re.compile(r"arm64|aarch64|graviton", re.IGNORECASE),
}
_WINDOWS_WITHOUT_BUILD: Final = "Windows2022"
_CLASS: Final = ("karpenter.k8s.aws", "EC2NodeClass")


class SubnetZones(msgspec.Struct, frozen=True):
    """``all``: zone → zone id of the region; ``assumed``: where an account is assumed to have subnets."""

    all: dict[str, str]
    assumed: tuple[str, ...]


class MissingNodeClasses(msgspec.Struct, frozen=True):
    """``nodeclasses``: what stands for them; ``assumptions``: sentences."""

    nodeclasses: tuple[EC2NodeClass, ...]
    assumptions: tuple[str, ...]


class Resolved(msgspec.Struct, frozen=True):
    """``assumptions``: what was assumed of the class, as ends of sentences."""

    nodeclass: EC2NodeClass
    assumptions: tuple[str, ...] = ()


def subnet_zones(zone_ids: Mapping[str, str], named: NamedZones) -> SubnetZones:
    """The region's first three zones, and those that manifests name."""
    assumed = (
        zone
        for number, (zone, zone_id) in enumerate(zone_ids.items())
        if number < _ASSUMED_ZONES or zone in named.zones or zone_id in named.zone_ids
    )
    return SubnetZones(dict(zone_ids), tuple(assumed))


def default_nodeclass(zones: SubnetZones, name: str = "default", family: str = families.AL2023) -> EC2NodeClass:
    """A class of a family's newest images with defaults for everything else."""
    term = SelectorTerm(alias=f"{family.lower()}@latest")
    nodeclass = EC2NodeClass(ObjectMeta(name), ami_family=family, ami_selector_terms=(term,))
    return resolve_nodeclass(nodeclass, zones).nodeclass


def resolve_nodeclass(nodeclass: EC2NodeClass, zones: SubnetZones, nodepools: Iterable[NodePool] = ()) -> Resolved:
    """The class with subnets and images. ``nodepools``: those that refer to it.

    A class for whose alias there is no image is not Ready.
    """
    subnets, of_subnets = _subnets(nodeclass, zones)
    images, of_images = _images(nodeclass, nodepools)
    if isinstance(images, Refusal):
        return Resolved(not_ready(nodeclass, images), of_subnets)
    resolved = msgspec.structs.replace(nodeclass, subnets=subnets, amis=images)
    others = (*_of_reservations(nodeclass), *_of_placement_group(nodeclass), *_of_windows(nodeclass))
    return Resolved(resolved, (*of_subnets, *of_images, *others))


def not_ready(nodeclass: EC2NodeClass, refusal: Refusal) -> EC2NodeClass:
    """The class with the condition that the cluster would give it."""
    condition = Condition("Ready", "False", refusal.reason, refusal.message)
    others = (condition for condition in nodeclass.conditions if condition.type != "Ready")
    return msgspec.structs.replace(nodeclass, conditions=(*others, condition))


def missing_nodeclasses(
    nodepools: Sequence[NodePool], nodeclasses: Iterable[EC2NodeClass], zones: SubnetZones
) -> MissingNodeClasses:
    """Classes that NodePools refer to and that are not there.

    Without any class, classes are what was not given: defaults are assumed. Beside others, the name is probably
    misspelt or the class forgotten: as in a cluster, its NodePools are not ready.
    """
    present = [nodeclass.name for nodeclass in nodeclasses]
    pools_by_class: dict[str, list[NodePool]] = {}
    for pool in nodepools:
        name = pool.node_class_ref.name
        if name and name not in present and _refers_to_class(pool):
            pools_by_class.setdefault(name, []).append(pool)
    assumed = [default_nodeclass(zones, name, _family_for(pools)) for name, pools in pools_by_class.items()]
    if present:
        return MissingNodeClasses(tuple(_not_found(nodeclass, present) for nodeclass in assumed), ())
    return MissingNodeClasses(tuple(assumed), tuple(map(_assumption_of_missing, assumed)))


def referring_nodepools(nodeclass: str, nodepools: Iterable[NodePool]) -> tuple[NodePool, ...]:
    return tuple(pool for pool in nodepools if pool.node_class_ref.name == nodeclass and _refers_to_class(pool))


def _refers_to_class(pool: NodePool) -> bool:
    group, kind = _CLASS
    return (pool.node_class_ref.group or group, pool.node_class_ref.kind or kind) == _CLASS


def _subnets(nodeclass: EC2NodeClass, zones: SubnetZones) -> tuple[tuple[Subnet, ...], tuple[str, ...]]:
    if nodeclass.subnets:
        known = (
            msgspec.structs.replace(subnet, zone_id=subnet.zone_id or zones.all.get(subnet.zone, ""))
            for subnet in nodeclass.subnets
        )
        return tuple(known), ()
    named = [_zones_of_term(term, zones.all) for term in nodeclass.subnet_selector_terms]
    if named and all(named):
        chosen = sorted({zone for zones_of_term in named for zone in zones_of_term})
        assumption = f"subnets are assumed in {', '.join(chosen)}, as the tags of its subnetSelectorTerms say"
    else:
        chosen = list(zones.assumed)
        assumption = f"subnets are not known without the account, assumed in {', '.join(chosen)}"
    return tuple(Subnet(f"subnet-{zone}", zone, zones.all[zone]) for zone in chosen), (assumption,)


def _zones_of_term(term: SelectorTerm, zones: Iterable[str]) -> tuple[str, ...]:
    """The zones that the values of a term's tags name, as in ``Name: private-us-east-1a``."""
    values = tuple(term.tags.values())
    patterns = {zone: re.compile(rf"(?<![a-z0-9]){zone}(?![a-z0-9])", re.IGNORECASE) for zone in zones}
    return tuple(zone for zone, pattern in patterns.items() if any(map(pattern.search, values)))


def _images(
    nodeclass: EC2NodeClass, nodepools: Iterable[NodePool]
) -> tuple[tuple[AMI, ...] | Refusal, tuple[str, ...]]:
    """Images of the class: of an alias one for each variant, else one for each architecture."""
    if nodeclass.amis:
        return nodeclass.amis, ()
    alias = next((term.alias for term in nodeclass.ami_selector_terms if term.alias), "")
    if alias:
        version = _KUBERNETES_OF_AL2 if alias.startswith("al2@") else _KUBERNETES
        parameters = aliases.alias_parameters(alias, version)
        if isinstance(parameters, Refusal):
            return parameters, ()
        images = tuple(AMI(parameter.path, requirements=parameter.requirements) for parameter in parameters)
        bound = _KUBERNETES_BOUNDS.get(alias.partition("@")[0])
        return images, (f"the cluster's version is assumed to be {bound}",) if bound else ()
    architectures, assumptions = _architectures(nodeclass, nodepools)
    return tuple(
        AMI(f"ami-{architecture}", requirements=architecture_requirements(_EC2_NAMES[architecture]))
        for architecture in architectures
    ), assumptions


def _architectures(nodeclass: EC2NodeClass, nodepools: Iterable[NodePool]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """What the images of amiSelectorTerms without alias run on: as they say, as the NodePools ask, or assumed.

    An image has a single architecture; several ids, tags and patterns are mostly there for both.
    """
    terms = nodeclass.ami_selector_terms
    named = [_architectures_of_term(term) for term in terms]
    if named and all(named):
        return tuple(sorted({name for names in named for name in names})), ()
    asked = _asked_architectures(nodepools)
    if asked:
        return asked, ()
    single = len(terms) == 1 and not terms[0].tags and "*" not in terms[0].name
    chosen = (
        ("amd64",) if single or families.ami_family_name(nodeclass) in families.WINDOWS_BUILDS else tuple(_EC2_NAMES)
    )
    return chosen, (
        f"the architecture of its images is not known without the account, assumed {' and '.join(sorted(chosen))}",
    )


def _architectures_of_term(term: SelectorTerm) -> tuple[str, ...]:
    texts = (term.name, term.ssm_parameter, *term.tags.values())
    return tuple(name for name, pattern in _ARCHITECTURE_IN_TEXT.items() if any(map(pattern.search, texts)))


def _asked_architectures(nodepools: Iterable[NodePool]) -> tuple[str, ...]:
    """The architectures that all NodePools together ask for; () when a NodePool leaves it open."""
    asked = [_values(pool, labels.ARCH) for pool in nodepools]
    names = {name for values in asked for name in values if name in _EC2_NAMES}
    return tuple(sorted(names)) if asked and all(asked) else ()


def _values(pool: NodePool, key: str) -> tuple[str, ...]:
    """The values of a label that a NodePool's nodes can have, () = it leaves them open."""
    if key in pool.labels:
        return (pool.labels[key],)
    selected = (
        expression.values for expression in pool.requirements if (expression.key, expression.operator) == (key, "In")
    )
    return next((tuple(values) for values in selected), ())


def _family_for(nodepools: Iterable[NodePool]) -> str:
    """Amazon Linux 2023, or the Windows that all of the NodePools ask for."""
    pools = tuple(nodepools)
    builds = [value for pool in pools for value in _values(pool, labels.WINDOWS_BUILD)]
    if not all(_values(pool, labels.OS) == ("windows",) or _values(pool, labels.WINDOWS_BUILD) for pool in pools):
        return families.AL2023
    return next((name for name, build in families.WINDOWS_BUILDS.items() if build in builds), _WINDOWS_WITHOUT_BUILD)


def _of_reservations(nodeclass: EC2NodeClass) -> Iterator[str]:
    if nodeclass.capacity_reservation_selector_terms:
        yield (
            "what its capacityReservationSelectorTerms select is not known without the account, assumed that no"
            " instance is left in a reservation"
        )


def _of_placement_group(nodeclass: EC2NodeClass) -> Iterator[str]:
    if nodeclass.placement_group_selector is not None and nodeclass.placement_group is None:
        yield "its placement group is not known without the account, assumed that every instance type may start in it"


def _of_windows(nodeclass: EC2NodeClass) -> Iterator[str]:
    if families.ami_family_name(nodeclass) in families.WINDOWS_BUILDS:
        yield "prices are those of Linux, as Karpenter compares them; EC2 asks more for Windows"


def inherit_status(nodeclasses: Iterable[EC2NodeClass], known: Iterable[EC2NodeClass]) -> tuple[EC2NodeClass, ...]:
    """Classes without a status with what the cluster resolved for the class of the same name by the same selectors."""
    by_name = {nodeclass.name: nodeclass for nodeclass in known}
    return tuple(_inherit(nodeclass, by_name.get(nodeclass.name, nodeclass)) for nodeclass in nodeclasses)


def _inherit(nodeclass: EC2NodeClass, known: EC2NodeClass) -> EC2NodeClass:
    fields = {
        "subnet_selector_terms": "subnets",
        "ami_selector_terms": "amis",
        "capacity_reservation_selector_terms": "capacity_reservations",
        "placement_group_selector": "placement_group",
    }
    inherited = {
        status: getattr(nodeclass, status) or getattr(known, status)
        for selector, status in fields.items()
        if getattr(nodeclass, selector) == getattr(known, selector)
    }
    return msgspec.structs.replace(nodeclass, **inherited)


def _not_found(nodeclass: EC2NodeClass, present: Sequence[str]) -> EC2NodeClass:
    """The class as NodePools see it in a cluster without it. ``present``: the names of the classes that are there."""
    near = get_close_matches(nodeclass.name, present, n=1)
    others = f"there {'is' if len(present) == 1 else 'are'} {', '.join(sorted(present))}"
    hint = f"did you mean {near[0]}?" if near else others
    return not_ready(nodeclass, Refusal("NodeClassNotFound", f"it is not among these objects; {hint}"))


def _assumption_of_missing(nodeclass: EC2NodeClass) -> str:
    zones = ", ".join(subnet.zone for subnet in nodeclass.subnets)
    family = families.FAMILIES[nodeclass.ami_family]
    disks = {disk.device_name: disk.volume_size for disk in family.block_device_mappings}
    return (
        f"EC2NodeClass {nodeclass.name} is missing: assumed {nodeclass.ami_family}, a {disks[family.ephemeral_device]}"
        f" volume, the kubelet's defaults, and subnets in {zones}"
    )
