"""Descriptions of instance types as EC2 gives them, and classes, regions and launches made from them."""

import gzip
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import moto
import msgspec

from spotwright.adapters.aws.ec2 import published_data
from spotwright.adapters.aws.ec2.codecs.instance_type import decode_instance_type
from spotwright.aws.images import aliases, families
from spotwright.aws.instance_types import capacity, offerings, region_facts
from spotwright.aws.instance_types.info import InstanceTypeInfo
from spotwright.model.ec2.fleet import ClusterFacts
from spotwright.model.ec2.instance_type import InstanceType
from spotwright.model.karpenter.nodeclass import AMI, EC2NodeClass, SecurityGroup, SelectorTerm, Subnet
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.scheduling.plan import NewNode

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
REGION = "ap-northeast-2"
ZONES = tuple(REGION + letter for letter in "abc")
CLUSTER = "dev-eks-cluster"
FACTS = ClusterFacts(
    name=CLUSTER,
    endpoint="https://ABC.gr7.ap-northeast-2.eks.amazonaws.com",
    certificate_authority="Y2VydGlmaWNhdGU=",
    version="1.35",
    service_cidr="10.100.0.0/16",
    vpc_id="vpc-1",
    dns_ip="10.100.0.10",
)
VARIANTS = (
    ("x86_64", "standard"),
    ("arm64", "standard"),
    ("x86_64", "nvidia"),
    ("arm64", "nvidia"),
    ("x86_64", "neuron"),
)

_RESOURCES = Path(moto.__file__).parent / "ec2" / "resources"


@cache
def ec2_says() -> Mapping[str, Any]:
    """InstanceTypeInfo by type name."""
    answers: Mapping[str, Any] = json.loads(gzip.decompress((_RESOURCES / "instance_types.json.gz").read_bytes()))
    return answers


@cache
def type_of(name: str) -> InstanceTypeInfo:
    return decode_instance_type(
        ec2_says()[name],
        network_mbps=published_data.network_mbps(),
        branch_interfaces=published_data.branch_interfaces(),
    )


@cache
def zones_of() -> Mapping[str, tuple[str, ...]]:
    file = _RESOURCES / "instance_type_offerings" / "availability-zone" / f"{REGION}.json.gz"
    zones_by_type: dict[str, list[str]] = {}
    for load in json.loads(gzip.decompress(file.read_bytes())):
        zones_by_type.setdefault(load["InstanceType"], []).append(load["Location"])
    return {name: tuple(sorted(zones)) for name, zones in zones_by_type.items()}


def region(*names: str, spot_share: int = 40) -> region_facts.RegionFacts:
    """A region that sells these types, spot at ``spot_share`` percent of on-demand in every zone."""
    prices = published_data.on_demand_picousd(REGION)
    on_demand = {name: prices[name] for name in names if name in prices}
    return region_facts.RegionFacts(
        REGION,
        tuple(type_of(name) for name in names),
        {name: zones_of()[name] for name in names},
        on_demand,
        {name: dict.fromkeys(zones_of()[name], on_demand[name] * spot_share // 100) for name in on_demand},
    )


def nodeclass(**changes: Any) -> EC2NodeClass:
    """A class that is resolved: three subnets, one group, the AL2023 images."""
    nodeclass = EC2NodeClass(
        metadata=ObjectMeta("default", uid="uid-class", generation=1),
        subnet_selector_terms=(SelectorTerm(tags={"karpenter.sh/discovery": CLUSTER}),),
        security_group_selector_terms=(SelectorTerm(tags={"karpenter.sh/discovery": CLUSTER}),),
        ami_selector_terms=(SelectorTerm(alias="al2023@latest"),),
        role=f"KarpenterNodeRole-{CLUSTER}",
        subnets=tuple(Subnet(f"subnet-{zone[-1]}", zone, f"apne2-az{i}") for i, zone in enumerate(ZONES, 1)),
        security_groups=(SecurityGroup("sg-1", "nodes"),),
        amis=tuple(
            AMI(f"ami-{architecture}-{variant}", requirements=aliases.variant_requirements(architecture, variant))
            for architecture, variant in VARIANTS
        ),
        resolved_instance_profile=f"{CLUSTER}_profile",
    )
    return msgspec.structs.replace(nodeclass, **changes)


def types(
    *names: str, of: EC2NodeClass | None = None, sells: region_facts.RegionFacts | None = None
) -> tuple[InstanceType, ...]:
    """The catalog of a class in a region that sells just these types."""
    chosen = of or nodeclass()
    family = families.ami_family(chosen)
    assert isinstance(family, families.AMIFamily)
    return offerings.instance_types(
        sells or region(*names), offerings.offering_context(chosen, family), capacity.Overheads()
    )


def new_node(*names: str, **changes: Any) -> NewNode:
    """A decided node of the pool ``default`` that any of these types may be."""
    built = NewNode(
        nodepool="default",
        nodeclass="default",
        pods=("default/p",),
        instance_types=names,
        requirements=(),
        labels={},
        taints=(),
        startup_taints=(),
        requests={"cpu": 1000, "memory": 2**30, "pods": 1},
        price_picousd_per_hour=0,
        capacity_type="",
        zones=(),
    )
    return msgspec.structs.replace(built, **changes)


def capacity_types(*values: str) -> NodeSelectorRequirement:
    return NodeSelectorRequirement("karpenter.sh/capacity-type", "In", values)
