"""Capacity reservations and placement groups, which moto does not have: made, described, ended.

What runs in a reservation counts against it, and `used` besides, which the control API sets: what others have of it.
One past its end date is expired. A capacity block is one whose `ReservationType` the control API sets, since EC2 sells
them by another call; its instances are ended half an hour before it is
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-using.html).
"""

import secrets
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from local.aws.ec2_filters import matching
from local.aws.ec2_instances import Instances
from local.aws.offerings import Offerings
from local.aws.paging import page
from local.aws.request import AwsError, AwsRequest, AwsResponse
from local.aws.world import World

BLOCK = "capacity-block"
TAKEN_BACK = timedelta(minutes=30)
# AWS documents no code for it; the text is ours.
BLOCK_ENDING = ("Server.CapacityBlockEnding", "Server.CapacityBlockEnding: Instance terminated as its block ends")


@dataclass
class Reservation:
    """`end` None: until somebody ends it."""

    id: str
    instance_type: str
    zone: str
    total: int
    criteria: str
    owner: str
    kind: str = "default"
    interruptible: bool = False
    end: datetime | None = None
    used: int = 0
    cancelled: bool = False
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def state(self) -> str:
        if self.cancelled:
            return "cancelled"
        return "expired" if self.end and self.end <= datetime.now(UTC) else "active"

    @property
    def takes_back(self) -> bool:
        """Whether its instances are ended: those of a block in its last half hour."""
        return self.kind == BLOCK and self.end is not None and datetime.now(UTC) >= self.end - TAKEN_BACK


@dataclass
class Group:
    id: str
    name: str
    strategy: str
    partitions: int
    tags: dict[str, str]


class Reserved:
    """The account's reservations by id, and its placement groups by name."""

    def __init__(self, world: World) -> None:
        self.reservations: dict[str, Reservation] = {}
        self.groups: dict[str, Group] = {}


def left(world: World, one: Reservation) -> int:
    """Instances that can still be started in it."""
    if one.state != "active":
        return 0
    running = [it for it in world.part(Instances).all() if it.launch.reservation == one.id and it.state != "terminated"]
    return max(0, one.total - one.used - len(running))


def add(world: World) -> None:
    for action, answer in {
        "CreateCapacityReservation": _create,
        "DescribeCapacityReservations": _describe,
        "CancelCapacityReservation": _cancel,
        "CreatePlacementGroup": _create_group,
        "DescribePlacementGroups": _describe_groups,
        "DeletePlacementGroup": _delete_group,
    }.items():
        world.front("ec2", action, partial(answer, world))
    world.route("POST", "/_local/reservations/<id>", lambda body, names: _changed(world, names["id"], body))
    world.background("capacity blocks", partial(_end_blocks, world))


def _end_blocks(world: World, stop: threading.Event) -> None:
    while not stop.wait(0.5):
        ending = {one.id for one in list(world.part(Reserved).reservations.values()) if one.takes_back}
        for instance in world.part(Instances).all() if ending else ():
            if instance.launch.reservation in ending:
                world.part(Instances).terminate(instance.id, BLOCK_ENDING)


def _changed(world: World, id: str, body: Any) -> dict[str, Any]:
    """`{"type": "capacity-block", "interruptible": true, "used": 3, "endsInSeconds": 2400}`: what EC2 alone decides."""
    one = world.part(Reserved).reservations[id]
    one.kind = body.get("type", one.kind)
    one.interruptible = bool(body.get("interruptible", one.interruptible))
    one.used = int(body.get("used", one.used))
    if "endsInSeconds" in body:
        one.end = datetime.now(UTC) + timedelta(seconds=float(body["endsInSeconds"]))
    return {"id": id, "type": one.kind}


def _tags(request: AwsRequest) -> dict[str, str]:
    specifications = request.params.get("TagSpecifications") or []
    return {tag["Key"]: tag.get("Value") or "" for item in specifications for tag in item.get("Tags") or []}


def _create(world: World, request: AwsRequest) -> AwsResponse:
    params = request.params
    instance_type, zone = str(params.get("InstanceType") or ""), str(params.get("AvailabilityZone") or "")
    if zone not in world.part(Offerings).zones_of.get(instance_type, ()):
        raise AwsError("Unsupported", f"{instance_type} is not offered in {zone}")
    count = int(params.get("InstanceCount") or 0)
    if count < 1:
        raise AwsError("InvalidParameterValue", f"Value ({count}) for parameter instanceCount is invalid")
    one = Reservation(
        id="cr-" + secrets.token_hex(8) + "0",
        instance_type=instance_type,
        zone=zone,
        total=count,
        criteria=str(params.get("InstanceMatchCriteria") or "open"),
        owner=world.account,
        end=params.get("EndDate"),
        tags=_tags(request),
    )
    world.part(Reserved).reservations[one.id] = one
    return request.reply({"CapacityReservation": _shape(world, one)})


def _shape(world: World, one: Reservation) -> dict[str, Any]:
    return {
        "CapacityReservationId": one.id,
        "OwnerId": one.owner,
        "InstanceType": one.instance_type,
        "InstancePlatform": "Linux/UNIX",
        "AvailabilityZone": one.zone,
        "Tenancy": "default",
        "TotalInstanceCount": one.total,
        "AvailableInstanceCount": left(world, one),
        "State": one.state,
        "EndDate": one.end,
        "EndDateType": "limited" if one.end else "unlimited",
        "InstanceMatchCriteria": one.criteria,
        "ReservationType": one.kind,
        "Interruptible": one.interruptible,
        "Tags": [{"Key": key, "Value": value} for key, value in one.tags.items()],
    }


def _describe(world: World, request: AwsRequest) -> AwsResponse:
    params = request.params
    known = world.part(Reserved).reservations
    ids = params.get("CapacityReservationIds") or []
    if ids and params.get("MaxResults"):
        raise AwsError("InvalidParameterCombination", "MaxResults cannot be used with CapacityReservationIds")
    missing = [item for item in ids if item not in known]
    if missing:
        raise AwsError("InvalidCapacityReservationId.NotFound", f"The capacity reservation '{missing[0]}' is not found")
    found = matching(
        [known[item] for item in ids] if ids else list(known.values()),
        params.get("Filters") or [],
        values={
            "state": lambda one: one.state,
            "owner-id": lambda one: one.owner,
            "instance-match-criteria": lambda one: one.criteria,
            "instance-type": lambda one: one.instance_type,
            "availability-zone": lambda one: one.zone,
        },
        tags=lambda one: one.tags,
    )
    some, token = page(found, params, default=1000)
    return request.reply({"CapacityReservations": [_shape(world, one) for one in some]} | token)


def _cancel(world: World, request: AwsRequest) -> AwsResponse:
    one = world.part(Reserved).reservations.get(request.params["CapacityReservationId"])
    if one is None:
        raise AwsError("InvalidCapacityReservationId.NotFound", "The capacity reservation is not found")
    one.cancelled = True
    return request.reply({"Return": True})


def _create_group(world: World, request: AwsRequest) -> AwsResponse:
    params, groups = request.params, world.part(Reserved).groups
    name, strategy = str(params.get("GroupName") or ""), str(params.get("Strategy") or "cluster")
    if name in groups:
        raise AwsError("InvalidPlacementGroup.Duplicate", f"The Placement Group '{name}' already exists.")
    partitions = int(params.get("PartitionCount") or 0)
    if strategy == "partition" and not 1 <= partitions <= 7:
        raise AwsError("InvalidParameterValue", "A partition placement group has 1 to 7 partitions")
    groups[name] = Group("pg-" + secrets.token_hex(8) + "0", name, strategy, partitions, _tags(request))
    return request.reply({"PlacementGroup": _group(groups[name])})


def _group(one: Group) -> dict[str, Any]:
    return {
        "GroupName": one.name,
        "GroupId": one.id,
        "State": "available",
        "Strategy": one.strategy,
        "PartitionCount": one.partitions or None,
        "Tags": [{"Key": key, "Value": value} for key, value in one.tags.items()],
    }


def _describe_groups(world: World, request: AwsRequest) -> AwsResponse:
    params, groups = request.params, world.part(Reserved).groups
    names, ids = params.get("GroupNames") or [], params.get("GroupIds") or []
    known = {one.id for one in groups.values()} | set(groups)
    missing = [item for item in [*names, *ids] if item not in known]
    if missing:
        raise AwsError("InvalidPlacementGroup.Unknown", f"The Placement Group '{missing[0]}' is unknown.")
    chosen = [one for one in groups.values() if (not names or one.name in names) and (not ids or one.id in ids)]
    found = matching(
        chosen,
        params.get("Filters") or [],
        values={
            "state": lambda _: "available",
            "strategy": lambda one: one.strategy,
            "group-name": lambda one: one.name,
        },
        tags=lambda one: one.tags,
    )
    return request.reply({"PlacementGroups": [_group(one) for one in found]})


def _delete_group(world: World, request: AwsRequest) -> AwsResponse:
    if world.part(Reserved).groups.pop(request.params["GroupName"], None) is None:
        raise AwsError("InvalidPlacementGroup.Unknown", "The Placement Group is unknown.")
    return request.reply({})
