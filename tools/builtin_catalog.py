"""Writes what the command line knows of EC2 without AWS: us-east-1, zones a to c.

    .venv/bin/python tools/builtin_catalog.py

Two files: the region's facts with every type that Karpenter's published reference lists, and the catalog of a plain
class made from them, with the types that can be bought. Types, zones and limits are those of moto's tables (recorded
from EC2) with the corrections of `builtin_facts.json`; on-demand prices are those shipped with Spotwright. No API
states spot prices without an account: each is 35 to 45 % of on-demand, fixed by a hash of type and zone.
"""

import gzip
import hashlib
import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import moto
import msgspec

from spotwright.adapters.aws.ec2 import published_data
from spotwright.adapters.aws.ec2.codecs.instance_type import decode_instance_type
from spotwright.aws.instance_types import capacity, catalog_codec, offerings, region_facts
from spotwright.aws.instance_types.info import Gpu, InstanceTypeInfo
from spotwright.cli.inputs.builtin_catalog import BUILTIN_REGION, CATALOG_FILE
from spotwright.cli.inputs.builtin_region import FACTS_FILE, default_buyer
from spotwright.model.ec2.instance_type import Catalog

ZONES = tuple(BUILTIN_REGION + letter for letter in "abc")
TABLES = Path(moto.__file__).parent / "ec2" / "resources"
FACTS = json.loads(Path(__file__).with_name("builtin_facts.json").read_text())


def region() -> region_facts.RegionFacts:
    prices = published_data.on_demand_picousd(BUILTIN_REGION)
    types = tuple(sorted((*_recorded(), *_retired()), key=lambda info: info.name))
    zones: dict[str, list[str]] = {}
    for offered in _table(f"instance_type_offerings/availability-zone/{BUILTIN_REGION}.json.gz"):
        if offered["Location"] in ZONES:
            zones.setdefault(offered["InstanceType"], []).append(offered["Location"])
    return region_facts.RegionFacts(
        name=BUILTIN_REGION,
        types=types,
        zones={info.name: tuple(sorted(zones[info.name])) for info in types if info.name in zones},
        on_demand={info.name: prices[info.name] for info in types if info.name in prices},
        spot={info.name: _spots(info.name, prices[info.name]) for info in types if info.name in prices},
    )


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


def _spots(name: str, on_demand: int) -> dict[str, int]:
    return {zone: _spot(name, zone, on_demand) for zone in ZONES}


def _spot(name: str, zone: str, on_demand: int) -> int:
    share = int.from_bytes(hashlib.sha256(f"{name}/{zone}".encode()).digest()[:4]) / 2**32
    return round(on_demand * (0.35 + 0.10 * share))


def main() -> None:
    region_facts = region()
    FACTS_FILE.write_bytes(zlib.compress(msgspec.json.encode(region_facts), 9))
    types = offerings.instance_types(region_facts, default_buyer(region_facts), capacity.Overheads())
    sold = tuple(
        instance_type for instance_type in types if any(offering.available for offering in instance_type.offerings)
    )
    body = catalog_codec.encode(Catalog({"": sold}, source=region_facts.name))
    CATALOG_FILE.write_bytes(zlib.compress(body, 9))
    print(f"{len(region_facts.types)} instance types, {FACTS_FILE.stat().st_size} bytes in {FACTS_FILE}")
    print(f"{len(sold)} of them sold, {CATALOG_FILE.stat().st_size} bytes in {CATALOG_FILE}")


if __name__ == "__main__":
    main()
