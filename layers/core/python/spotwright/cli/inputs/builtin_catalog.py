"""The built-in catalog: instance types of us-east-1 for an EC2NodeClass with defaults, without a call to AWS.

tools/builtin_catalog.py writes its file.
"""

import zlib
from pathlib import Path
from typing import Final

from spotwright.aws.images import families
from spotwright.aws.instance_types import catalog_codec, offerings
from spotwright.aws.instance_types.capacity import Overheads
from spotwright.aws.instance_types.region_facts import RegionFacts
from spotwright.aws.refusal import Refusal
from spotwright.cli.inputs.assumed_nodeclasses import SubnetZones, default_nodeclass, subnet_zones
from spotwright.cli.inputs.builtin_regions import DEFAULT_REGION, load_region, zone_ids
from spotwright.cli.inputs.named_zones import NamedZones
from spotwright.model.ec2.instance_type import Catalog, InstanceType
from spotwright.model.karpenter.nodeclass import EC2NodeClass

CATALOG_FILE: Final = Path(__file__).with_name(f"{DEFAULT_REGION}.json.z")


def load_builtin_catalog() -> Catalog:
    """All types that EC2 sells in the first three zones of us-east-1, for an EC2NodeClass with defaults."""
    return catalog_codec.decode(zlib.decompress(CATALOG_FILE.read_bytes()))


def builtin_zones() -> SubnetZones:
    """The zones of the built-in catalog."""
    return subnet_zones(zone_ids(DEFAULT_REGION), NamedZones())


def make_default_catalog() -> Catalog:
    """What ``load_builtin_catalog`` reads, computed from the region's facts; without types that cannot be bought."""
    types = instance_types(load_region(DEFAULT_REGION), default_nodeclass(builtin_zones()), Overheads())
    sold = (kind for kind in types if any(offering.available for offering in kind.offerings))
    return Catalog({"": tuple(sold)}, source=DEFAULT_REGION)


def instance_types(region: RegionFacts, nodeclass: EC2NodeClass, overheads: Overheads) -> tuple[InstanceType, ...]:
    """The types of a resolved class; () without a known AMI family. Raises QuantityError and KubeletError."""
    family = families.ami_family(nodeclass)
    if isinstance(family, Refusal):
        return ()
    return offerings.instance_types(region, offerings.offering_context(nodeclass, family), overheads)
