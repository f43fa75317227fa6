"""The built-in region facts, from which the built-in catalog is made."""

import zlib
from pathlib import Path
from typing import Final

import msgspec

from spotwright.aws.images import families
from spotwright.aws.instance_types import offerings, region_facts
from spotwright.cli.inputs.builtin_catalog import BUILTIN_REGION
from spotwright.model.karpenter.nodeclass import AMI, EC2NodeClass, Subnet
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.requirements import NodeSelectorRequirement

FACTS_FILE: Final = Path(__file__).with_name(f"{BUILTIN_REGION}.facts.json.z")


def load_builtin_region() -> region_facts.RegionFacts:
    """The facts of us-east-1, with all types of Karpenter's published reference, also those that it does not sell."""
    return msgspec.json.decode(zlib.decompress(FACTS_FILE.read_bytes()), type=region_facts.RegionFacts)


def resolved_nodeclass(region: region_facts.RegionFacts, of: EC2NodeClass | None = None) -> EC2NodeClass:
    """``of``, or an Amazon Linux 2023 class, with a subnet in every zone and an image for every architecture, since the
    subnets and images of the user's account are not known."""
    zones = sorted({zone for zones_of_type in region.zones.values() for zone in zones_of_type})
    images = tuple(
        AMI(f"ami-{arch}", requirements=(NodeSelectorRequirement("kubernetes.io/arch", "In", (arch,)),))
        for arch in ("amd64", "arm64")
    )
    nodeclass = of or EC2NodeClass(ObjectMeta("default"), ami_family=families.AL2023)
    return msgspec.structs.replace(
        nodeclass, subnets=tuple(Subnet(f"subnet-{zone}", zone) for zone in zones), amis=images
    )


def default_buyer(region: region_facts.RegionFacts) -> offerings.OfferingContext:
    return offerings.offering_context(resolved_nodeclass(region), families.FAMILIES[families.AL2023])
