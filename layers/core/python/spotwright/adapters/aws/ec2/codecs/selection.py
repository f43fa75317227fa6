"""EC2's answers about the resources that selector terms match, into the model."""

from collections.abc import Mapping
from typing import Any

from spotwright.aws.images.amis import Image
from spotwright.aws.nodeclass.readiness import DiscoveredSecurityGroup, DiscoveredSubnet
from spotwright.model.karpenter.nodeclass import (
    CapacityReservation,
    PlacementGroup,
)


def decode_capacity_reservation(reservation: Mapping[str, Any]) -> CapacityReservation:
    return CapacityReservation(
        id=reservation["CapacityReservationId"],
        instance_type=reservation.get("InstanceType") or "",
        zone=reservation.get("AvailabilityZone") or "",
        owner_id=reservation.get("OwnerId") or "",
        instance_match_criteria=reservation.get("InstanceMatchCriteria") or "",
        reservation_type=reservation.get("ReservationType") or "default",
        interruptible=bool(reservation.get("Interruptible")),
        end_time=reservation.get("EndDate"),
        available_instance_count=reservation.get("AvailableInstanceCount") or 0,
    )


def decode_placement_group(group: Mapping[str, Any]) -> PlacementGroup:
    return PlacementGroup(
        group["GroupId"], group.get("GroupName") or "", group.get("Strategy") or "", group.get("PartitionCount") or 0
    )


def decode_subnet(subnet: Mapping[str, Any]) -> DiscoveredSubnet:
    return DiscoveredSubnet(
        id=subnet["SubnetId"],
        zone=subnet["AvailabilityZone"],
        zone_id=subnet.get("AvailabilityZoneId") or "",
        available_ip_address_count=subnet.get("AvailableIpAddressCount") or 0,
        vpc_id=subnet.get("VpcId") or "",
    )


def decode_security_group(group: Mapping[str, Any]) -> DiscoveredSecurityGroup:
    return DiscoveredSecurityGroup(group["GroupId"], group.get("GroupName") or "", group.get("VpcId") or "")


def decode_image(image: Mapping[str, Any]) -> Image:
    return Image(
        id=image["ImageId"],
        name=image.get("Name") or "",
        creation_date=image.get("CreationDate") or "",
        architecture=image.get("Architecture") or "",
        deprecation_time=image.get("DeprecationTime") or "",
    )
