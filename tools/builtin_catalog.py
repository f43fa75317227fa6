"""Writes the instance catalog that comes with the command line: us-east-1, zones a to c, every type with a price.

    .venv/bin/python tools/builtin_catalog.py

Types, zones and limits are those of moto's tables (recorded from EC2), on-demand prices those shipped with Spotwright.
No API states spot prices without an account: each is 35 to 45 % of on-demand, fixed by a hash of type and zone.
"""

import gzip
import hashlib
import json
import zlib
from pathlib import Path
from typing import Any

import moto

from spotwright import data
from spotwright.adapters import ec2_types
from spotwright.aws import catalog_wire, families, offerings, sizing
from spotwright.model.instancetype import Catalog
from spotwright.model.nodeclass import Ami, EC2NodeClass, Subnet
from spotwright.model.objects import Metadata
from spotwright.model.requirements import Selector

REGION = "us-east-1"
ZONES = tuple(REGION + letter for letter in "abc")
TABLES = Path(moto.__file__).parent / "ec2" / "resources"
TARGET = Path(__file__).parent.parent / "layers/core/python/spotwright/cli" / f"{REGION}.json.z"


def region() -> offerings.Region:
    prices = data.on_demand_picousd(REGION)
    types = tuple(
        ec2_types.described(raw, network_mbps=data.network_mbps(), branch_interfaces=data.branch_interfaces())
        for name, raw in sorted(_table("instance_types.json.gz").items())
        if name in prices
    )
    zones: dict[str, list[str]] = {}
    for offered in _table(f"instance_type_offerings/availability-zone/{REGION}.json.gz"):
        if offered["Location"] in ZONES:
            zones.setdefault(offered["InstanceType"], []).append(offered["Location"])
    return offerings.Region(
        name=REGION,
        types=types,
        zones={name: tuple(sorted(several)) for name, several in sorted(zones.items())},
        on_demand={name: prices[name] for name in sorted(prices)},
        spot={name: {zone: _spot(name, zone, prices[name]) for zone in ZONES} for name in sorted(prices)},
    )


def _table(name: str) -> Any:
    return json.loads(gzip.decompress((TABLES / name).read_bytes()))


def _spot(name: str, zone: str, on_demand: int) -> int:
    share = int.from_bytes(hashlib.sha256(f"{name}/{zone}".encode()).digest()[:4]) / 2**32
    return round(on_demand * (0.35 + 0.10 * share))


def node_class() -> EC2NodeClass:
    """A class that runs on everything: AL2023 for both architectures, a subnet in every zone."""
    images = tuple(
        Ami(f"ami-{arch}", requirements=(Selector("kubernetes.io/arch", "In", (arch,)),)) for arch in ("amd64", "arm64")
    )
    return EC2NodeClass(
        Metadata("default"),
        ami_family=families.AL2023,
        subnets=tuple(Subnet(f"subnet-{zone[-1]}", zone) for zone in ZONES),
        amis=images,
    )


def main() -> None:
    who = offerings.buyer(node_class(), families.FAMILIES[families.AL2023])
    types = offerings.instance_types(region(), who, sizing.Overheads())
    sold = tuple(one for one in types if any(offering.available for offering in one.offerings))
    body = catalog_wire.encode(Catalog({"": sold}, source=REGION))
    TARGET.write_bytes(zlib.compress(body, 9))
    print(f"{len(sold)} instance types, {TARGET.stat().st_size} bytes in {TARGET}")


if __name__ == "__main__":
    main()
