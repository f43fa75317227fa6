"""Capacity reservations and placement groups, which moto does not have: made, described, ended.

What runs in a reservation counts against it, and so does `used_by_others`, which the control API sets.
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

from local.aws.calls.paging import page
from local.aws.calls.request import AwsError, AwsRequest, AwsResponse
from local.aws.ec2.catalog.offerings import Offerings
from local.aws.ec2.filters import apply_filters
from local.aws.ec2.instances import Instances
from local.aws.emulator import Emulator

CAPACITY_BLOCK = "capacity-block"
BLOCK_END_LEAD = timedelta(minutes=30)
# AWS documents no code for it; the text is ours.
BLOCK_ENDING = ("Server.CapacityBlockEnding", "Server.CapacityBlockEnding: Instance terminated as its block ends")


@dataclass
class CapacityReservation:
    """`end` None: until somebody ends it."""

    id: str
    instance_type: str
    zone: str
    total_count: int
    match_criteria: str
    owner: str
    reservation_type: str = "default"
    interruptible: bool = False
    end: datetime | None = None
    used_by_others: int = 0
    cancelled: bool = False
    tags: dict[str, str] = field(default_factory=dict)

    @property
    def state(self) -> str:
        if self.cancelled:
            return "cancelled"
        return "expired" if self.end and self.end <= datetime.now(UTC) else "active"

    @property
    def is_ending(self) -> bool:
        """Whether its instances are ended: those of a block in its last half hour."""
        return (
            self.reservation_type == CAPACITY_BLOCK
            and self.end is not None
            and datetime.now(UTC) >= self.end - BLOCK_END_LEAD
        )


@dataclass
class PlacementGroup:
    id: str
    name: str
    strategy: str
    partitions: int
    tags: dict[str, str]


class CapacityReservations:
    """The account's reservations by id, and its placement groups by name."""

    def __init__(self, emulator: Emulator) -> None:
        self.reservations: dict[str, CapacityReservation] = {}
        self.placement_groups: dict[str, PlacementGroup] = {}


def available_instances(emulator: Emulator, reservation: CapacityReservation) -> int:
    """Instances that can still be started in it."""
    if reservation.state != "active":
        return 0
    running = [
        instance
        for instance in emulator.component(Instances).all()
        if instance.launch.capacity_reservation_id == reservation.id and instance.state != "terminated"
    ]
    return max(0, reservation.total_count - reservation.used_by_others - len(running))


def add(emulator: Emulator) -> None:
    for action, answer in {
        "CreateCapacityReservation": _create,
        "DescribeCapacityReservations": _describe,
        "CancelCapacityReservation": _cancel,
        "CreatePlacementGroup": _create_group,
        "DescribePlacementGroups": _describe_groups,
        "DeletePlacementGroup": _delete_group,
    }.items():
        emulator.handle("ec2", action, partial(answer, emulator))
    emulator.route("POST", "/_local/reservations/<id>", lambda body, names: _changed(emulator, names["id"], body))
    emulator.run_in_background("capacity blocks", partial(_end_blocks, emulator))


def _end_blocks(emulator: Emulator, stop: threading.Event) -> None:
    while not stop.wait(0.5):
        ending = {
            reservation.id
            for reservation in list(emulator.component(CapacityReservations).reservations.values())
            if reservation.is_ending
        }
        for instance in emulator.component(Instances).all() if ending else ():
            if instance.launch.capacity_reservation_id in ending:
                emulator.component(Instances).terminate(instance.id, BLOCK_ENDING)


def _changed(emulator: Emulator, id: str, body: Any) -> dict[str, Any]:
    """`{"type": "capacity-block", "interruptible": true, "used": 3, "endsInSeconds": 2400}`: what EC2 alone decides."""
    reservation = emulator.component(CapacityReservations).reservations[id]
    reservation.reservation_type = body.get("type", reservation.reservation_type)
    reservation.interruptible = bool(body.get("interruptible", reservation.interruptible))
    reservation.used_by_others = int(body.get("used", reservation.used_by_others))
    if "endsInSeconds" in body:
        reservation.end = datetime.now(UTC) + timedelta(seconds=float(body["endsInSeconds"]))
    return {"id": id, "type": reservation.reservation_type}


def _tags(request: AwsRequest) -> dict[str, str]:
    specifications = request.params.get("TagSpecifications") or []
    return {tag["Key"]: tag.get("Value") or "" for item in specifications for tag in item.get("Tags") or []}


def _create(emulator: Emulator, request: AwsRequest) -> AwsResponse:
    params = request.params
    instance_type, zone = str(params.get("InstanceType") or ""), str(params.get("AvailabilityZone") or "")
    if zone not in emulator.component(Offerings).zones_by_type.get(instance_type, ()):
        raise AwsError("Unsupported", f"{instance_type} is not offered in {zone}")
    count = int(params.get("InstanceCount") or 0)
    if count < 1:
        raise AwsError("InvalidParameterValue", f"Value ({count}) for parameter instanceCount is invalid")
    reservation = CapacityReservation(
        id="cr-" + secrets.token_hex(8) + "0",
        instance_type=instance_type,
        zone=zone,
        total_count=count,
        match_criteria=str(params.get("InstanceMatchCriteria") or "open"),
        owner=emulator.account,
        end=params.get("EndDate"),
        tags=_tags(request),
    )
    emulator.component(CapacityReservations).reservations[reservation.id] = reservation
    return request.reply({"CapacityReservation": _shape(emulator, reservation)})


def _shape(emulator: Emulator, reservation: CapacityReservation) -> dict[str, Any]:
    return {
        "CapacityReservationId": reservation.id,
        "OwnerId": reservation.owner,
        "InstanceType": reservation.instance_type,
        "InstancePlatform": "Linux/UNIX",
        "AvailabilityZone": reservation.zone,
        "Tenancy": "default",
        "TotalInstanceCount": reservation.total_count,
        "AvailableInstanceCount": available_instances(emulator, reservation),
        "State": reservation.state,
        "EndDate": reservation.end,
        "EndDateType": "limited" if reservation.end else "unlimited",
        "InstanceMatchCriteria": reservation.match_criteria,
        "ReservationType": reservation.reservation_type,
        "Interruptible": reservation.interruptible,
        "Tags": [{"Key": key, "Value": value} for key, value in reservation.tags.items()],
    }


def _describe(emulator: Emulator, request: AwsRequest) -> AwsResponse:
    params = request.params
    known = emulator.component(CapacityReservations).reservations
    ids = params.get("CapacityReservationIds") or []
    if ids and params.get("MaxResults"):
        raise AwsError("InvalidParameterCombination", "MaxResults cannot be used with CapacityReservationIds")
    missing = [item for item in ids if item not in known]
    if missing:
        raise AwsError("InvalidCapacityReservationId.NotFound", f"The capacity reservation '{missing[0]}' is not found")
    reservations = apply_filters(
        [known[item] for item in ids] if ids else list(known.values()),
        params.get("Filters") or [],
        values={
            "state": lambda reservation: reservation.state,
            "owner-id": lambda reservation: reservation.owner,
            "instance-match-criteria": lambda reservation: reservation.match_criteria,
            "instance-type": lambda reservation: reservation.instance_type,
            "availability-zone": lambda reservation: reservation.zone,
        },
        tags=lambda reservation: reservation.tags,
    )
    some, token = page(reservations, params, default=1000)
    return request.reply({"CapacityReservations": [_shape(emulator, reservation) for reservation in some]} | token)


def _cancel(emulator: Emulator, request: AwsRequest) -> AwsResponse:
    reservation = emulator.component(CapacityReservations).reservations.get(request.params["CapacityReservationId"])
    if reservation is None:
        raise AwsError("InvalidCapacityReservationId.NotFound", "The capacity reservation is not found")
    reservation.cancelled = True
    return request.reply({"Return": True})


def _create_group(emulator: Emulator, request: AwsRequest) -> AwsResponse:
    params, groups = request.params, emulator.component(CapacityReservations).placement_groups
    name, strategy = str(params.get("GroupName") or ""), str(params.get("Strategy") or "cluster")
    if name in groups:
        raise AwsError("InvalidPlacementGroup.Duplicate", f"The Placement Group '{name}' already exists.")
    partitions = int(params.get("PartitionCount") or 0)
    if strategy == "partition" and not 1 <= partitions <= 7:
        raise AwsError("InvalidParameterValue", "A partition placement group has 1 to 7 partitions")
    groups[name] = PlacementGroup("pg-" + secrets.token_hex(8) + "0", name, strategy, partitions, _tags(request))
    return request.reply({"PlacementGroup": _group(groups[name])})


def _group(placement_group: PlacementGroup) -> dict[str, Any]:
    return {
        "GroupName": placement_group.name,
        "GroupId": placement_group.id,
        "State": "available",
        "Strategy": placement_group.strategy,
        "PartitionCount": placement_group.partitions or None,
        "Tags": [{"Key": key, "Value": value} for key, value in placement_group.tags.items()],
    }


def _describe_groups(emulator: Emulator, request: AwsRequest) -> AwsResponse:
    params, groups = request.params, emulator.component(CapacityReservations).placement_groups
    names, ids = params.get("GroupNames") or [], params.get("GroupIds") or []
    known = {placement_group.id for placement_group in groups.values()} | set(groups)
    missing = [item for item in [*names, *ids] if item not in known]
    if missing:
        raise AwsError("InvalidPlacementGroup.Unknown", f"The Placement Group '{missing[0]}' is unknown.")
    chosen = [
        placement_group
        for placement_group in groups.values()
        if (not names or placement_group.name in names) and (not ids or placement_group.id in ids)
    ]
    placement_groups = apply_filters(
        chosen,
        params.get("Filters") or [],
        values={
            "state": lambda _: "available",
            "strategy": lambda placement_group: placement_group.strategy,
            "group-name": lambda placement_group: placement_group.name,
        },
        tags=lambda placement_group: placement_group.tags,
    )
    return request.reply({"PlacementGroups": [_group(placement_group) for placement_group in placement_groups]})


def _delete_group(emulator: Emulator, request: AwsRequest) -> AwsResponse:
    if emulator.component(CapacityReservations).placement_groups.pop(request.params["GroupName"], None) is None:
        raise AwsError("InvalidPlacementGroup.Unknown", "The Placement Group is unknown.")
    return request.reply({})
