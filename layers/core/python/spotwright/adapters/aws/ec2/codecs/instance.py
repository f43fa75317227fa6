"""EC2's answers about instances and fleets, into the model."""

from collections.abc import Iterable, Iterator
from datetime import UTC
from typing import TYPE_CHECKING, Any

from spotwright.aws.launch import capacity_reservations
from spotwright.model import labels
from spotwright.model.ec2.fleet import FleetError, Instance

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef


def decode_fleet_instances(answer: Iterable[Any]) -> Iterator[Instance]:
    for group in answer:
        override = (group.get("LaunchTemplateAndOverrides") or {}).get("Overrides") or {}
        for instance_id in group.get("InstanceIds") or ():
            yield Instance(
                id=instance_id,
                instance_type=group.get("InstanceType") or override.get("InstanceType") or "",
                zone=override.get("AvailabilityZone") or "",
                capacity_type=group.get("Lifecycle") or labels.ON_DEMAND,
                state="pending",
                image_id=override.get("ImageId") or "",
                subnet_id=override.get("SubnetId") or "",
            )


def decode_fleet_error(error: Any, asked: str) -> FleetError:
    """``asked``: the capacity type of the request, which EC2 need not repeat."""
    override = (error.get("LaunchTemplateAndOverrides") or {}).get("Overrides") or {}
    return FleetError(
        code=error.get("ErrorCode") or "",
        message=error.get("ErrorMessage") or "",
        instance_type=override.get("InstanceType") or "",
        zone=override.get("AvailabilityZone") or "",
        capacity_type=error.get("Lifecycle") or asked,
        subnet_id=override.get("SubnetId") or "",
    )


def decode_instance(instance: "InstanceTypeDef") -> Instance:
    launched = instance.get("LaunchTime")
    reservation, placement = _targeted_reservation(instance), instance.get("Placement", {})
    return Instance(
        id=instance["InstanceId"],
        instance_type=instance["InstanceType"],
        zone=placement.get("AvailabilityZone", ""),
        capacity_type=_capacity_type(instance, reservation),
        state=instance["State"]["Name"],
        image_id=instance.get("ImageId", ""),
        subnet_id=instance.get("SubnetId", ""),
        private_dns_name=instance.get("PrivateDnsName", ""),
        launch_time=launched.astimezone(UTC) if launched else None,
        tags={tag["Key"]: tag["Value"] for tag in instance.get("Tags", ())},
        security_groups=tuple(sorted(group["GroupId"] for group in instance.get("SecurityGroups", ()))),
        reservation_id=reservation,
        placement_group_id=placement.get("GroupId") or "",
        partition_number=placement.get("PartitionNumber") or 0,
    )


def _capacity_type(instance: "InstanceTypeDef", reservation: str) -> str:
    if instance.get("InstanceLifecycle") == "spot":
        return labels.SPOT
    return labels.RESERVED if reservation else labels.ON_DEMAND


def _targeted_reservation(instance: "InstanceTypeDef") -> str:
    """The capacity reservation that the launch targeted; "" also where the instance uses an open reservation."""
    preference = instance.get("CapacityReservationSpecification", {}).get("CapacityReservationPreference", "")
    is_targeted = (
        preference == capacity_reservations.RESERVATIONS_ONLY
        or instance.get("InstanceLifecycle", "") in capacity_reservations.RESERVED_LIFECYCLES
    )
    return instance.get("CapacityReservationId", "") if is_targeted else ""
