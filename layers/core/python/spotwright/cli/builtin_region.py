"""The facts of the built-in region, from which its catalog is made."""

import zlib
from pathlib import Path
from typing import Final

import msgspec

from spotwright.aws.images import families
from spotwright.aws.instance_types import offerings
from spotwright.cli.builtin import REGION
from spotwright.model.karpenter.nodeclass import AMI, EC2NodeClass, Subnet
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.requirements import NodeSelectorRequirement

FACTS: Final = Path(__file__).with_name(f"{REGION}.facts.json.z")


def region() -> offerings.RegionFacts:
    """The facts of us-east-1, with every type of Karpenter's published reference whether it is sold there or not."""
    return msgspec.json.decode(zlib.decompress(FACTS.read_bytes()), type=offerings.RegionFacts)


def plain_class(region: offerings.RegionFacts, of: EC2NodeClass | None = None) -> EC2NodeClass:
    """``of`` (a class of Amazon Linux 2023 where there is none) with a subnet in every zone and an image for
    everything: what a class finds in an account is not known here."""
    zones = sorted({zone for several in region.zones.values() for zone in several})
    images = tuple(
        AMI(f"ami-{arch}", requirements=(NodeSelectorRequirement("kubernetes.io/arch", "In", (arch,)),))
        for arch in ("amd64", "arm64")
    )
    chosen = of or EC2NodeClass(ObjectMeta("default"), ami_family=families.AL2023)
    return msgspec.structs.replace(chosen, subnets=tuple(Subnet(f"subnet-{zone}", zone) for zone in zones), amis=images)


def buyer(region: offerings.RegionFacts) -> offerings.OfferingContext:
    return offerings.offering_context(plain_class(region), families.FAMILIES[families.AL2023])
