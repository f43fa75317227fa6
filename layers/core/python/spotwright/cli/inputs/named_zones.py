"""Which zones and regions manifests name, and the region that a plan of them is for."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any, Final

import msgspec

from spotwright.cli.inputs import builtin_regions
from spotwright.cli.inputs.builtin_regions import DEFAULT_REGION
from spotwright.model import labels
from spotwright.model.snapshot import Snapshot

_ZONE_KEYS: Final = frozenset({labels.ZONE, "failure-domain.beta.kubernetes.io/zone", "topology.ebs.csi.aws.com/zone"})
_REGION_KEYS: Final = frozenset({labels.REGION, "failure-domain.beta.kubernetes.io/region"})
_KEYS: Final = _ZONE_KEYS | _REGION_KEYS | {labels.ZONE_ID}
# A zone, or a local zone such as us-west-2-lax-1a.
_ZONE: Final = re.compile(r"(?P<region>[a-z]{2}(?:-[a-z]+)+-[0-9]+)(?:-[a-z]{3}-[0-9]+)?[a-z]")
_ZONE_IN_TEXT: Final = re.compile(r"(?<![a-z0-9])[a-z]{2}-(?:gov-)?[a-z]+-[0-9][a-z](?![a-z0-9])")
_EXCLUDING: Final = ("NotIn", "DoesNotExist")


class NamedZones(msgspec.Struct, frozen=True):
    """``zones``, ``zone_ids``: names and ids that something asks for. ``by_region``: region → its zones, ids or its own
    name as they are written, most often named first."""

    zones: frozenset[str] = frozenset()
    zone_ids: frozenset[str] = frozenset()
    by_region: dict[str, tuple[str, ...]] = {}


class ChosenRegion(msgspec.Struct, frozen=True):
    """``reason``: why this region, "" = asked for or the default; ``notes``: what is named of other regions."""

    name: str
    reason: str = ""
    notes: tuple[str, ...] = ()


def find_named_zones(objects: Iterable[Any]) -> NamedZones:
    """What selectors, requirements and labels of Kubernetes objects name."""
    zones, ids = set[str](), set[str]()
    counts, written = Counter[str](), dict[str, dict[str, None]]()
    for key, operator, value in (mention for content in objects for mention in _mentions(content)):
        region = _region_of(key, value)
        if region:
            counts[region] += 1
            written.setdefault(region, {})[value] = None
        # Of what is excluded, and of subnets, only the region counts: a class says itself where its subnets are.
        if operator not in _EXCLUDING:
            (ids if key == labels.ZONE_ID else zones if key in _ZONE_KEYS else set()).add(value)
    order = sorted(counts, key=lambda region: (-counts[region], region))
    return NamedZones(frozenset(zones), frozenset(ids), {region: tuple(sorted(written[region])) for region in order})


def objects_of_cluster(snapshot: Snapshot) -> list[Any]:
    """What a running cluster says of zones: labels of its nodes, subnets of its EC2NodeClasses."""
    nodes = [node.metadata.labels for node in snapshot.nodes]
    subnets = (subnet for nodeclass in snapshot.nodeclasses for subnet in nodeclass.subnets)
    return [*nodes, *({labels.ZONE: subnet.zone} for subnet in subnets)]


def _mentions(content: Any) -> Iterator[tuple[str, str, str]]:
    """Key, operator and value of every selector, requirement and label about zones and regions."""
    match content:
        case {"key": str(key), "values": list(values)} if key in _KEYS:
            operator = content.get("operator")
            yield from ((key, str(operator), value) for value in values if isinstance(value, str))
        case {"subnetSelectorTerms": list(terms), **others}:
            yield from ((labels.ZONE, "NotIn", zone) for zone in _zones_of_tags(terms))
            yield from _mentions(others)
        case {"subnets": list(subnets), **others}:
            # The status of an EC2NodeClass, which keeps its subnets.
            zones = (subnet.get("zone") for subnet in subnets if isinstance(subnet, dict))
            yield from ((labels.ZONE, "NotIn", zone) for zone in zones if isinstance(zone, str))
            yield from _mentions(others)
        case dict():
            for key, entry in content.items():
                if isinstance(entry, str):
                    if key in _KEYS:
                        yield key, "In", entry
                else:
                    yield from _mentions(entry)
        case list():
            for entry in content:
                yield from _mentions(entry)


def _zones_of_tags(terms: list[Any]) -> list[str]:
    """Zones in the values of tags, as in ``Name: private-us-west-2a``."""
    tags = [term.get("tags") for term in terms if isinstance(term, dict)]
    values = [str(value) for each in tags if isinstance(each, dict) for value in each.values()]
    return [zone[0] for value in values for zone in _ZONE_IN_TEXT.finditer(value)]


def _region_of(key: str, value: str) -> str:
    """The region of a zone, of a zone id, or itself; "" = not known."""
    if key in _REGION_KEYS:
        return value
    if key == labels.ZONE_ID:
        regions = builtin_regions.region_names()
        return next((region for region in regions if value in builtin_regions.zone_ids(region).values()), "")
    zone = _ZONE.fullmatch(value)
    return zone["region"] if zone else ""


def choose_region(wanted: str | None, named: NamedZones) -> ChosenRegion:
    """``wanted`` or else the region that the manifests name most, if its facts are built in, or else the default."""
    known = [region for region in named.by_region if region in builtin_regions.region_names()]
    # An empty name is a variable without a value.
    name = next(iter(known), DEFAULT_REGION) if wanted is None else wanted
    notes = tuple(
        f"The prices are of {name}: {_other_region(region, named)}" for region in named.by_region if region != name
    )
    if wanted is not None or name == DEFAULT_REGION:
        return ChosenRegion(name, notes=notes)
    shown = ", ".join(named.by_region[name][:3])
    return ChosenRegion(name, f"region {name}, since the manifests name {shown}; --region names another", notes)


def _other_region(region: str, named: NamedZones) -> str:
    places = [place for place in named.by_region[region] if place != region]
    shown = f"the manifests name {', '.join(places[:3])} of {region}" if places else f"the manifests name {region}"
    known = builtin_regions.region_names()
    if region in known:
        return f"{shown}; to plan for that region add --region {region}"
    near = get_close_matches(region, known, n=1, cutoff=0.8)
    meant = f" (did you mean {near[0]}?)" if near else ""
    return f"{shown}, of which nothing is built in{meant}; --catalog FILE takes types of another region"
