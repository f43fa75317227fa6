"""Which capacity reservation a launch uses: the one it targets, an open one that matches, or none; and what is left.

https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-reservations-launch.html. A launch that targets a
reservation gets no instance beyond it (ReservationCapacityExceeded); one that would merely fall into an open
reservation goes on as on-demand.
"""

from collections.abc import Mapping
from typing import Any

from local.aws.calls.request import AwsError
from local.aws.ec2.instances import Instance
from local.aws.ec2.launches.capacity_reservations import (
    CAPACITY_BLOCK,
    CapacityReservation,
    CapacityReservations,
    available_instances,
)
from local.aws.emulator import Emulator

PREFERENCES = ("open", "none", "capacity-reservations-only")
INTERRUPTIBLE = "interruptible-capacity-reservation"


def target_reservation(data: Mapping[str, Any]) -> str:
    """The id of the reservation that template data or a request targets; "" = none."""
    target = _specification(data).get("CapacityReservationTarget") or {}
    return str(target.get("CapacityReservationId") or "")


def reservation_preference(data: Mapping[str, Any]) -> str:
    return str(_specification(data).get("CapacityReservationPreference") or "open")


def _specification(data: Mapping[str, Any]) -> Mapping[str, Any]:
    return data.get("CapacityReservationSpecification") or {}


def check_reservation(
    emulator: Emulator, data: Mapping[str, Any], *, instance_type: str, zone: str, capacity_type: str
) -> None:
    """Raises AwsError where EC2 would refuse to start this type, in this zone, in the reservation it names."""
    if reservation_preference(data) not in PREFERENCES:
        raise AwsError(
            "InvalidParameterValue",
            f"Value ({reservation_preference(data)}) for CapacityReservationPreference is invalid",
        )
    market = str((data.get("InstanceMarketOptions") or {}).get("MarketType") or "")
    id = target_reservation(data)
    if not id:
        if market in (CAPACITY_BLOCK, INTERRUPTIBLE):
            raise AwsError("MissingParameter", f"Market type {market} needs the target of a capacity reservation")
        return
    if capacity_type == "spot":
        raise AwsError("InvalidParameterCombination", "Spot Instances cannot be launched into a capacity reservation")
    reservation = emulator.component(CapacityReservations).reservations.get(id)
    if reservation is None:
        raise AwsError("InvalidCapacityReservationId.NotFound", f"The capacity reservation '{id}' is not found")
    if reservation.state != "active":
        raise AwsError("InvalidCapacityReservationState", f"The capacity reservation '{id}' is {reservation.state}")
    if (reservation.instance_type, reservation.zone) != (instance_type, zone):
        raise AwsError(
            "InvalidParameterValue",
            f"The capacity reservation '{id}' is for {reservation.instance_type} in {reservation.zone},"
            f" not {instance_type} in {zone}",
        )
    if market != _market(reservation):
        raise AwsError(
            "InvalidParameterCombination", f"'{id}' needs market type {_market(reservation) or 'none'}, not {market}"
        )


def _market(reservation: CapacityReservation) -> str:
    return (
        INTERRUPTIBLE
        if reservation.interruptible
        else CAPACITY_BLOCK
        if reservation.reservation_type == CAPACITY_BLOCK
        else ""
    )


def remaining_instances(emulator: Emulator, id: str) -> int:
    """Instances that a reservation has left."""
    return available_instances(emulator, emulator.component(CapacityReservations).reservations[id])


def find_open_reservation(emulator: Emulator, *, instance_type: str, zone: str) -> tuple[str, int]:
    """(id, instances left) of an open reservation that a launch without preference falls into; ("", 0) = none."""
    for reservation in emulator.component(CapacityReservations).reservations.values():
        matches = (
            reservation.instance_type,
            reservation.zone,
            reservation.match_criteria,
            reservation.reservation_type,
        ) == (
            instance_type,
            zone,
            "open",
            "default",
        )
        if matches and not reservation.interruptible and available_instances(emulator, reservation):
            return reservation.id, available_instances(emulator, reservation)
    return "", 0


def reservation_shape(emulator: Emulator, instance: Instance) -> dict[str, Any]:
    """What DescribeInstances says of it: a reservation that ended is no longer named, the wish for it is."""
    launch = instance.launch
    stated: dict[str, Any] = {"CapacityReservationPreference": launch.capacity_reservation_preference}
    if launch.capacity_reservation_target:
        stated["CapacityReservationTarget"] = {"CapacityReservationId": launch.capacity_reservation_target}
    shape: dict[str, Any] = {"CapacityReservationSpecification": stated}
    reservation = emulator.component(CapacityReservations).reservations.get(launch.capacity_reservation_id)
    if reservation is not None and reservation.state == "active":
        shape["CapacityReservationId"] = reservation.id
    if launch.capacity_type in (CAPACITY_BLOCK, INTERRUPTIBLE):
        shape["InstanceLifecycle"] = launch.capacity_type
    return shape
