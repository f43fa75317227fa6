"""What EC2 answers about the resources that selector terms match, into the model."""

from collections.abc import Mapping
from typing import Any

from spotwright.aws.images.amis import Image
from spotwright.aws.nodeclass.readiness import DiscoveredSecurityGroup, DiscoveredSubnet
from spotwright.model.karpenter.nodeclass import (
    CapacityReservation,
    PlacementGroup,
)


def decode_capacity_reservation(one: Mapping[str, Any]) -> CapacityReservation:
    return CapacityReservation(
        id=one["CapacityReservationId"],
        instance_type=one.get("InstanceType") or "",
        zone=one.get("AvailabilityZone") or "",
        owner_id=one.get("OwnerId") or "",
        instance_match_criteria=one.get("InstanceMatchCriteria") or "",
        reservation_type=one.get("ReservationType") or "default",
        interruptible=bool(one.get("Interruptible")),
        end_time=one.get("EndDate"),
        available_instance_count=one.get("AvailableInstanceCount") or 0,
    )


def decode_placement_group(one: Mapping[str, Any]) -> PlacementGroup:
    return PlacementGroup(
        one["GroupId"], one.get("GroupName") or "", one.get("Strategy") or "", one.get("PartitionCount") or 0
    )


def decode_subnet(one: Mapping[str, Any]) -> DiscoveredSubnet:
    return DiscoveredSubnet(
        id=one["SubnetId"],
        zone=one["AvailabilityZone"],
        zone_id=one.get("AvailabilityZoneId") or "",
        available_ip_address_count=one.get("AvailableIpAddressCount") or 0,
        vpc_id=one.get("VpcId") or "",
    )


def decode_security_group(one: Mapping[str, Any]) -> DiscoveredSecurityGroup:
    return DiscoveredSecurityGroup(one["GroupId"], one.get("GroupName") or "", one.get("VpcId") or "")


def decode_image(one: Mapping[str, Any]) -> Image:
    return Image(
        id=one["ImageId"],
        name=one.get("Name") or "",
        creation_date=one.get("CreationDate") or "",
        architecture=one.get("Architecture") or "",
        deprecation_time=one.get("DeprecationTime") or "",
    )
