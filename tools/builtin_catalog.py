"""Writes what the command line knows of EC2 without AWS: instance types, regions, and the catalog of a plain class.

    make regions

Three files: the instance types that a node can run on, with every type of Karpenter's published reference; for each
commercial region its zones, which type EC2 offers in which of them, and prices; and the catalog of a class with
defaults in us-east-1. Types, zones and limits are those of moto's tables (recorded from EC2) with the corrections of
`builtin_facts.json`. On-demand prices of us-east-1 are those shipped with Spotwright. For other regions libcloud has
list prices of an earlier day, and among them prices of dedicated instances: of a family counts the share of the price
in us-east-1 that most of its sizes show. A family that has none there has that of the family before it (m8g: m7g),
else the middle of its category and processor, else of the region; so has a family whose price fell in us-east-1 since
that day. Of a region that moto does not know, libcloud says
which types are sold; its zones are assumed.
"""

import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from statistics import median_low
from typing import Any

import libcloud
import moto
import msgspec

from spotwright.adapters.aws.ec2 import published_data
from spotwright.adapters.aws.ec2.codecs.instance_type import decode_instance_type
from spotwright.aws.instance_types import catalog_codec
from spotwright.aws.instance_types.info import Gpu, InstanceTypeInfo
from spotwright.cli.inputs import builtin_catalog, builtin_regions
from spotwright.cli.inputs.builtin_regions import DEFAULT_REGION, PARTS, ShippedRegion

TABLES = Path(moto.__file__).parent / "ec2" / "resources"
LIST_PRICES = json.loads((Path(libcloud.__file__).parent / "data" / "pricing.json").read_text())
FACTS = json.loads(Path(__file__).with_name("builtin_facts.json").read_text())
_FAMILY = re.compile(r"^([a-z]+)(\d+)(.*)$")
# A share that is so many times the region's middle one compares prices of different days.
_STALE = 1.35


def instance_types() -> tuple[InstanceTypeInfo, ...]:
    return tuple(sorted((*_recorded(), *_retired()), key=lambda info: info.name))


def _recorded() -> Iterator[InstanceTypeInfo]:
    """The types that EC2 described and a node can run on, as the reference states them; macOS is no node's."""
    tables = {"network_mbps": published_data.network_mbps(), "branch_interfaces": published_data.branch_interfaces()}
    for _, raw in sorted(_table("instance_types.json.gz").items()):
        info = decode_instance_type(raw, **tables)
        if info.arch:
            yield _corrected(info)


def _corrected(info: InstanceTypeInfo) -> InstanceTypeInfo:
    family, _, size = info.name.partition(".")
    without = FACTS["not_trunking"]
    trunks = not (
        family in without["families"]
        or (size.startswith("metal") and family in without["metal_of"])
        or info.name in without["types"]
    )
    return msgspec.structs.replace(
        info,
        clock_mhz=FACTS["clock_mhz"].get(family, info.clock_mhz),
        network_mbps=FACTS["network_mbps"].get(info.name, info.network_mbps),
        interfaces=FACTS["interfaces"].get(info.name, info.interfaces),
        branch_interfaces=info.branch_interfaces if trunks else 0,
    )


def _retired() -> Iterator[InstanceTypeInfo]:
    """Types of the reference that the recorded descriptions no longer have: all of them G4ad."""
    for name, facts in FACTS["described"].items():
        yield InstanceTypeInfo(
            name=name,
            architectures=("x86_64",),
            usage_classes=("on-demand", "spot"),
            cpu_manufacturer="AMD",
            clock_mhz=3000,
            hypervisor="nitro",
            encryption_in_transit=True,
            ena=True,
            placement_strategies=("cluster", "partition", "spread"),
            cards=(facts["interfaces"],),
            local_nvme=True,
            network_mbps=published_data.network_mbps()[name],
            branch_interfaces=published_data.branch_interfaces()[name],
            **facts | {"gpus": (Gpu("Radeon Pro V520", "AMD", facts["gpus"], 8192),)},
        )


def _table(name: str) -> Any:
    return json.loads(gzip.decompress((TABLES / name).read_bytes()))


def regions(types: tuple[InstanceTypeInfo, ...]) -> dict[str, ShippedRegion]:
    """Every commercial region of which something is known, by name."""
    recorded = {path.name.removesuffix(".json.gz") for path in (TABLES / "instance_type_offerings/region").iterdir()}
    return {name: _region(name, types, recorded) for name in sorted(recorded | FACTS["assumed_regions"].keys())}


def _region(name: str, types: tuple[InstanceTypeInfo, ...], recorded: set[str]) -> ShippedRegion:
    known = name in recorded
    zones, sold = _recorded_zones(name) if known else _assumed_zones(name)
    families = sorted({info.name.partition(".")[0] for info in types if any(info.name in sold[zone] for zone in zones)})
    parts = {} if name == DEFAULT_REGION else _family_parts(name, families)
    masks = tuple(sum(1 << bit for bit, zone in enumerate(zones) if info.name in sold[zone]) for info in types)
    return ShippedRegion(zones, masks, parts, "" if known else FACTS["assumed_regions"][name]["note"])


def _recorded_zones(region: str) -> tuple[dict[str, str], dict[str, set[str]]]:
    """Zone → its id, and zone → types. The tables do not say which zone has which id, the types offered there do."""
    zones, ids = _offered("availability-zone", region), _offered("availability-zone-id", region)
    by_zone: dict[str, str] = {}
    for zone in sorted(zones):
        by_zone[zone] = next(id for id in sorted(ids) if ids[id] == zones[zone] and id not in by_zone.values())
    return by_zone, zones


def _offered(kind: str, region: str) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for offered in _table(f"instance_type_offerings/{kind}/{region}.json.gz"):
        found.setdefault(offered["Location"], set()).add(offered["InstanceType"])
    return found


def _assumed_zones(region: str) -> tuple[dict[str, str], dict[str, set[str]]]:
    sold = {name for name, prices in LIST_PRICES["compute"]["ec2_linux"].items() if region in prices}
    prefix = FACTS["assumed_regions"][region]["zone_id_prefix"]
    zones = {f"{region}{letter}": f"{prefix}-az{number}" for number, letter in enumerate("abc", start=1)}
    return zones, dict.fromkeys(zones, sold)


def _family_parts(region: str, families: Iterable[str]) -> dict[str, int]:
    """Family → the region's price in parts of that in us-east-1."""
    listed = _listed_parts(region)
    return {family: listed.get(family) or _estimated_part(family, listed) for family in families}


def _listed_parts(region: str) -> dict[str, int]:
    """Of families with list prices of the region: the part that most sizes show."""
    reference = published_data.on_demand_picousd(DEFAULT_REGION)
    parts: dict[str, list[int]] = {}
    for name, prices in LIST_PRICES["compute"]["ec2_linux"].items():
        if prices.get(region) and name in reference:
            part = round(prices[region] * 10**12 * PARTS / reference[name])
            parts.setdefault(name.partition(".")[0], []).append(part)
    common = {family: _most_common(found) for family, found in parts.items()}
    middle = median_low(common.values())
    return {family: part for family, part in common.items() if part <= _STALE * middle}


def _most_common(parts: list[int]) -> int:
    """The middle of the most frequent value to a hundredth, of equally frequent ones the lowest.

    Prices of dedicated instances are a few percent higher, never lower.
    """
    rounded = Counter(round(part / PARTS, 2) for part in parts)
    most = max(rounded.values())
    chosen = min(value for value, count in rounded.items() if count == most)
    return median_low(part for part in parts if round(part / PARTS, 2) == chosen)


def _estimated_part(family: str, listed: Mapping[str, int]) -> int:
    shape = _FAMILY.match(family)
    if shape:
        line, generation, processor = shape[1], int(shape[2]), shape[3]
        before = [f"{line}{earlier}{processor}" for earlier in range(generation - 1, 0, -1)]
        if earlier := next((listed[name] for name in before if name in listed), 0):
            return earlier
        same = [listed[name] for name in listed if (other := _FAMILY.match(name)) and _kind(other) == _kind(shape)]
        if same:
            return median_low(same)
    return median_low(listed.values())


def _kind(shape: re.Match[str]) -> tuple[str, str]:
    """Category and processor: of m8gd m and g; without a letter Intel's."""
    return shape[1], next((letter for letter in shape[3] if letter in "agi"), "i")


def list_price_day() -> str:
    return f"{datetime.fromtimestamp(LIST_PRICES['updated'], UTC):%B %Y}"


def main() -> None:
    types = instance_types()
    shipped = builtin_regions.ShippedRegions(list_price_day(), regions(types))
    for file, content in ((builtin_regions.TYPES_FILE, types), (builtin_regions.REGIONS_FILE, shipped)):
        file.write_bytes(zlib.compress(msgspec.json.encode(content), 9))
        print(f"{len(types)} instance types, {len(shipped.regions)} regions, {file.stat().st_size} bytes in {file}")
    catalog = builtin_catalog.make_default_catalog()
    builtin_catalog.CATALOG_FILE.write_bytes(zlib.compress(catalog_codec.encode(catalog), 9))
    sold, size = len(catalog.instance_types("")), builtin_catalog.CATALOG_FILE.stat().st_size
    print(f"{sold} of them sold in {DEFAULT_REGION}, {size} bytes in {builtin_catalog.CATALOG_FILE}")


if __name__ == "__main__":
    main()
