"""The facts of the built-in region, from which its catalog is made."""

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
    """The facts of us-east-1, with every type of Karpenter's published reference whether it is sold there or not."""
    return msgspec.json.decode(zlib.decompress(FACTS_FILE.read_bytes()), type=region_facts.RegionFacts)


def resolved_nodeclass(region: region_facts.RegionFacts, of: EC2NodeClass | None = None) -> EC2NodeClass:
    """``of`` (a class of Amazon Linux 2023 where there is none) with a subnet in every zone and an image for
    everything: what a class finds in an account is not known here."""
    zones = sorted({zone for several in region.zones.values() for zone in several})
    images = tuple(
        AMI(f"ami-{arch}", requirements=(NodeSelectorRequirement("kubernetes.io/arch", "In", (arch,)),))
        for arch in ("amd64", "arm64")
    )
    chosen = of or EC2NodeClass(ObjectMeta("default"), ami_family=families.AL2023)
    return msgspec.structs.replace(chosen, subnets=tuple(Subnet(f"subnet-{zone}", zone) for zone in zones), amis=images)


def default_buyer(region: region_facts.RegionFacts) -> offerings.OfferingContext:
    return offerings.offering_context(resolved_nodeclass(region), families.FAMILIES[families.AL2023])
