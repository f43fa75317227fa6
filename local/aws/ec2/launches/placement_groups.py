"""Where placement groups let instances start: one zone, seven to a zone, or a partition each.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/placement-strategies.html. A spread group's limit is said with a
code of capacity; a cluster group that has instances in another zone has an error of its own.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from local.aws.calls.request import AwsError
from local.aws.ec2.instances import Instance, Instances, LaunchSpecification
from local.aws.ec2.launches.capacity_reservations import CapacityReservations, PlacementGroup
from local.aws.emulator import Emulator

SPREAD_LIMIT = 7
SPREAD_FULL = (
    "You've reached the limit of instances in this spread placement group."
    " A spread placement group can have up to seven instances per Availability Zone."
)


def requested_group(emulator: Emulator, placement: Mapping[str, Any]) -> str:
    """Id of the placement group that a template names by id or by name; "" = none."""
    wanted = placement.get("GroupId") or placement.get("GroupName")
    return next(
        (
            placement_group.id
            for placement_group in emulator.component(CapacityReservations).placement_groups.values()
            if wanted in (placement_group.id, placement_group.name)
        ),
        "",
    )


def group_name(emulator: Emulator, id: str) -> str:
    """The name of a group, by which its ARN is made; "" = there is none."""
    group = _group(emulator, id)
    return group.name if group else ""


def available_places(emulator: Emulator, launch: LaunchSpecification, wanted: int) -> tuple[int, AwsError | None]:
    """How many of `wanted` the group has room for, and why not for all. Raises AwsError where it has room for none."""
    group = _group(emulator, launch.placement_group_id)
    if group is None:
        return wanted, None
    zones = Counter(instance.launch.zone for instance in _members(emulator, group))
    others = sorted(set(zones) - {launch.zone})
    if group.strategy == "cluster" and others:
        message = f"The placement group '{group.name}' is in use in another availability zone: {others[0]}"
        raise AwsError("InvalidPlacementGroup.InUse", message)
    if group.strategy == "spread" and zones[launch.zone] + wanted > SPREAD_LIMIT:
        return max(0, SPREAD_LIMIT - zones[launch.zone]), AwsError("UnfulfillableCapacity", SPREAD_FULL)
    return wanted, None


def assign_partitions(emulator: Emulator, started: Iterable[Instance]) -> None:
    """Each instance of a partition group gets the partition it asked for, else the emptiest."""
    for instance in started:
        group = _group(emulator, instance.launch.placement_group_id)
        if group is not None and group.partitions:
            taken = Counter(instance.partition_number for instance in _members(emulator, group))
            emptiest = min(range(1, group.partitions + 1), key=lambda number: taken[number])
            instance.partition_number = instance.launch.partition_number or emptiest


def placement_shape(emulator: Emulator, instance: Instance) -> dict[str, Any]:
    """What DescribeInstances says of it."""
    group = _group(emulator, instance.launch.placement_group_id)
    if group is None:
        return {"GroupName": ""}
    told: dict[str, Any] = {"GroupName": group.name, "GroupId": group.id}
    return told | ({"PartitionNumber": instance.partition_number} if instance.partition_number else {})


def _group(emulator: Emulator, id: str) -> PlacementGroup | None:
    return next(
        (
            placement_group
            for placement_group in emulator.component(CapacityReservations).placement_groups.values()
            if id and placement_group.id == id
        ),
        None,
    )


def _members(emulator: Emulator, group: PlacementGroup) -> list[Instance]:
    alive = ("pending", "running", "stopping", "stopped")
    return [
        instance
        for instance in emulator.component(Instances).all()
        if instance.launch.placement_group_id == group.id and instance.state in alive
    ]
