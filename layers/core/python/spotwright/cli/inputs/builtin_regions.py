"""The regions that come with Spotwright: zones, instance types and prices of every commercial region, without AWS.

tools/builtin_catalog.py writes the files.
"""

import hashlib
import zlib
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

from spotwright.adapters.aws.ec2 import published_data
from spotwright.aws.instance_types.info import InstanceTypeInfo
from spotwright.aws.instance_types.region_facts import RegionFacts
from spotwright.cli import InputError

DEFAULT_REGION: Final = "us-east-1"
TYPES_FILE: Final = Path(__file__).with_name("instance_types.json.z")
REGIONS_FILE: Final = Path(__file__).with_name("regions.json.z")
# Prices of other regions are stated in parts of those of us-east-1.
PARTS: Final = 1_000_000
# EC2 states prices in hundred-thousandths of a dollar.
_PRICE_STEP_PICOUSD: Final = 10**7
_LISTED_IN: Final = "July 2026"


class ShippedRegion(msgspec.Struct, frozen=True):
    """A region. ``zones``: zone → zone id, in the order of the letters, as in the account whose answers were recorded.

    ``sold``: for each type of the types' file, in its order, the zones that offer it: bit n is zone n.
    ``price_parts``: family → on-demand price in millionths of that in us-east-1, {} in us-east-1 itself.
    ``note``: what is assumed of the region beyond that, "" = nothing.
    """

    zones: dict[str, str]
    sold: tuple[int, ...]
    price_parts: dict[str, int]
    note: str = ""


class ShippedRegions(msgspec.Struct, frozen=True):
    """``price_day``: the month whose list prices the shares of us-east-1 come from."""

    price_day: str
    regions: dict[str, ShippedRegion]


def region_names() -> tuple[str, ...]:
    """Regions whose facts are shipped, by name."""
    return tuple(_shipped().regions)


def zone_ids(region: str) -> dict[str, str]:
    """Zone → zone id of a region, in the order of the letters."""
    return _shipped_region(region).zones


@cache
def load_region(name: str) -> RegionFacts:
    """The facts of a region, with all types of Karpenter's published reference, also those that it does not sell.

    Spot is 35 to 45 % of on-demand, fixed by a hash of type and zone: nobody states spot prices without an account.
    Raises InputError for a region whose facts are not shipped.
    """
    shipped = _shipped_region(name)
    types = msgspec.json.decode(zlib.decompress(TYPES_FILE.read_bytes()), type=tuple[InstanceTypeInfo, ...])
    names = tuple(shipped.zones)
    by_mask = {mask: tuple(zone for bit, zone in enumerate(names) if mask >> bit & 1) for mask in set(shipped.sold)}
    zones = {info.name: by_mask[mask] for info, mask in zip(types, shipped.sold, strict=True) if mask}
    on_demand = _on_demand(name, shipped)
    return RegionFacts(
        name=name,
        types=types,
        zones=zones,
        on_demand={info.name: on_demand[info.name] for info in types if info.name in on_demand},
        spot={
            info.name: {zone: _spot(info.name, zone, on_demand[info.name]) for zone in zones.get(info.name, ())}
            for info in types
            if info.name in on_demand
        },
    )


def describe(region: str) -> str:
    """Where instance types and prices of a region come from, as a sentence."""
    prices = f"on-demand prices of {_LISTED_IN}"
    if region != DEFAULT_REGION:
        prices = (
            f"on-demand prices of {DEFAULT_REGION} of {_LISTED_IN}, each times what {region} asked more or less for the"
            f" family in {_shipped().price_day}"
        )
    return f"{region}, built in: {prices}, spot assumed at 35 to 45 % of them"


def content() -> bytes:
    """What all facts are read from."""
    return TYPES_FILE.read_bytes() + REGIONS_FILE.read_bytes()


def assumptions(region: str) -> tuple[str, ...]:
    """What is assumed of a region beyond its prices, as sentences."""
    note = _shipped_region(region).note
    return (f"region {region}: {note}",) if note else ()


@cache
def _shipped() -> ShippedRegions:
    return msgspec.json.decode(zlib.decompress(REGIONS_FILE.read_bytes()), type=ShippedRegions)


def _shipped_region(name: str) -> ShippedRegion:
    regions = _shipped().regions
    if name in regions:
        return regions[name]
    # A zone is easily written instead of its region.
    near = [name[:-1]] if name[:-1] in regions else get_close_matches(name, regions, n=1, cutoff=0.7)
    meant = f"; did you mean {near[0]}?" if near else "."
    raise InputError(
        f"--region {name}: no facts of this region are built in{meant} There are {', '.join(regions)}."
        f" `spotwright catalog --live --output json --region {name}` asks AWS;"
        " `spotwright plan --catalog FILE` reads what it prints"
    )


def _on_demand(name: str, shipped: ShippedRegion) -> dict[str, int]:
    """Picodollars per hour by type, rounded as EC2 states prices."""
    reference = published_data.on_demand_picousd(DEFAULT_REGION)
    if name == DEFAULT_REGION:
        return dict(reference)
    parts = shipped.price_parts
    return {
        instance_type: round(price * parts[family] / PARTS / _PRICE_STEP_PICOUSD) * _PRICE_STEP_PICOUSD
        for instance_type, price in reference.items()
        if (family := instance_type.partition(".")[0]) in parts
    }


def _spot(name: str, zone: str, on_demand: int) -> int:
    share = int.from_bytes(hashlib.sha256(f"{name}/{zone}".encode()).digest()[:4]) / 2**32
    return round(on_demand * (0.35 + 0.10 * share))
