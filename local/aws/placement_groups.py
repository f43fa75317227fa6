"""Where placement groups let instances start: one zone, seven to a zone, or a partition each.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/placement-strategies.html. A spread group's limit is said with a
code of capacity; a cluster group that has instances in another zone has an error of its own.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from local.aws.ec2_instances import Instance, Instances, Launch
from local.aws.request import AwsError
from local.aws.reservations import Group, Reserved
from local.aws.world import World

SPREAD_LIMIT = 7
SPREAD_FULL = (
    "You've reached the limit of instances in this spread placement group."
    " A spread placement group can have up to seven instances per Availability Zone."
)


def asked(world: World, placement: Mapping[str, Any]) -> str:
    """Id of the placement group that a template names by id or by name; "" = none."""
    wanted = placement.get("GroupId") or placement.get("GroupName")
    return next((one.id for one in world.part(Reserved).groups.values() if wanted in (one.id, one.name)), "")


def named(world: World, id: str) -> str:
    """The name of a group, by which its ARN is made; "" = there is none."""
    group = _group(world, id)
    return group.name if group else ""


def room(world: World, launch: Launch, wanted: int) -> tuple[int, AwsError | None]:
    """How many of `wanted` the group has room for, and why not for all. Raises AwsError where it has room for none."""
    group = _group(world, launch.group)
    if group is None:
        return wanted, None
    zones = Counter(one.launch.zone for one in _members(world, group))
    others = sorted(set(zones) - {launch.zone})
    if group.strategy == "cluster" and others:
        message = f"The placement group '{group.name}' is in use in another availability zone: {others[0]}"
        raise AwsError("InvalidPlacementGroup.InUse", message)
    if group.strategy == "spread" and zones[launch.zone] + wanted > SPREAD_LIMIT:
        return max(0, SPREAD_LIMIT - zones[launch.zone]), AwsError("UnfulfillableCapacity", SPREAD_FULL)
    return wanted, None


def seat(world: World, started: Iterable[Instance]) -> None:
    """Each instance of a partition group gets the partition it asked for, else the emptiest."""
    for instance in started:
        group = _group(world, instance.launch.group)
        if group is not None and group.partitions:
            taken = Counter(one.partition for one in _members(world, group))
            emptiest = min(range(1, group.partitions + 1), key=lambda number: taken[number])
            instance.partition = instance.launch.partition or emptiest


def shown(world: World, instance: Instance) -> dict[str, Any]:
    """What DescribeInstances says of it."""
    group = _group(world, instance.launch.group)
    if group is None:
        return {"GroupName": ""}
    told: dict[str, Any] = {"GroupName": group.name, "GroupId": group.id}
    return told | ({"PartitionNumber": instance.partition} if instance.partition else {})


def _group(world: World, id: str) -> Group | None:
    return next((one for one in world.part(Reserved).groups.values() if id and one.id == id), None)


def _members(world: World, group: Group) -> list[Instance]:
    alive = ("pending", "running", "stopping", "stopped")
    return [one for one in world.part(Instances).all() if one.launch.group == group.id and one.state in alive]
