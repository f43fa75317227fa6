"""What Spotwright knows of EC2 without asking: the facts of one region, and the catalog of a plain class there.

Both files are written by tools/builtin_catalog.py.
"""

import zlib
from pathlib import Path
from typing import Final

import msgspec

from spotwright.aws import catalog_wire, families, offerings
from spotwright.model.instancetype import Catalog
from spotwright.model.nodeclass import Ami, EC2NodeClass, Subnet
from spotwright.model.objects import Metadata
from spotwright.model.requirements import Selector

REGION: Final = "us-east-1"
FACTS: Final = Path(__file__).with_name(f"{REGION}.facts.json.z")
CATALOG: Final = Path(__file__).with_name(f"{REGION}.json.z")
ABOUT: Final = (
    "us-east-1, built in: on-demand prices of July 2026, spot assumed at 35 to 45 % of them"
    " (another catalog: --catalog FILE)"
)


def catalog() -> Catalog:
    """Every type that a plain class can buy in us-east-1, zones a to c."""
    return catalog_wire.decode(zlib.decompress(CATALOG.read_bytes()))


def region() -> offerings.Region:
    """The facts of us-east-1, with every type of Karpenter's published reference whether it is sold there or not."""
    return msgspec.json.decode(zlib.decompress(FACTS.read_bytes()), type=offerings.Region)


def plain_class(region: offerings.Region, of: EC2NodeClass | None = None) -> EC2NodeClass:
    """``of`` (a class of Amazon Linux 2023 where there is none) with a subnet in every zone and an image for
    everything: what a class finds in an account is not known here."""
    zones = sorted({zone for several in region.zones.values() for zone in several})
    images = tuple(
        Ami(f"ami-{arch}", requirements=(Selector("kubernetes.io/arch", "In", (arch,)),)) for arch in ("amd64", "arm64")
    )
    chosen = of or EC2NodeClass(Metadata("default"), ami_family=families.AL2023)
    return msgspec.structs.replace(chosen, subnets=tuple(Subnet(f"subnet-{zone}", zone) for zone in zones), amis=images)


def buyer(region: offerings.Region) -> offerings.Buyer:
    return offerings.buyer(plain_class(region), families.FAMILIES[families.AL2023])
