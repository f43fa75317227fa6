"""The parts of an EC2NodeClass about network, reservations and placement, as the API server states them."""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from spotwright.model.karpenter.nodeclass import (
    CapacityReservation,
    CapacityReservationSelectorTerm,
    ConnectionTracking,
    CPUOptions,
    NetworkInterface,
    PlacementGroup,
    PlacementGroupSelector,
)

type Json = Mapping[str, Any]

# Hashed fields for which an empty value is another hash than none.
_HASHED_EMPTY: Final = ("tags", "blockDeviceMappings", "networkInterfaces", "userData", "context")


def stated_empty(spec: Json) -> frozenset[str]:
    """The hashed fields that are written out with nothing in them."""
    return frozenset(name for name in _HASHED_EMPTY if spec.get(name) in ({}, [], ""))


def reservation_terms(items: Iterable[Json] | None) -> tuple[CapacityReservationSelectorTerm, ...]:
    return tuple(
        CapacityReservationSelectorTerm(
            tags=dict(one.get("tags") or {}),
            id=one.get("id") or "",
            owner_id=str(one.get("ownerID") or ""),
            instance_match_criteria=one.get("instanceMatchCriteria") or "",
        )
        for one in items or ()
    )


def placement_group_selector(given: Json | None) -> PlacementGroupSelector | None:
    return None if given is None else PlacementGroupSelector(given.get("name") or "", given.get("id") or "")


def network_interfaces(items: Iterable[Json] | None) -> tuple[NetworkInterface, ...]:
    return tuple(
        NetworkInterface(
            one.get("networkCardIndex") or 0, one.get("deviceIndex") or 0, one.get("interfaceType") or "interface"
        )
        for one in items or ()
    )


def connection_tracking(given: Json | None) -> ConnectionTracking | None:
    if given is None:
        return None
    return ConnectionTracking(
        given.get("tcpEstablishedTimeout"), given.get("udpStreamTimeout"), given.get("udpTimeout")
    )


def cpu_options(given: Json | None) -> CPUOptions | None:
    return None if given is None else CPUOptions(given.get("nestedVirtualization") or "")


def capacity_reservations(items: Iterable[Json] | None) -> tuple[CapacityReservation, ...]:
    """As the status states them; how many instances are left is not in it."""
    return tuple(
        CapacityReservation(
            id=one["id"],
            instance_type=one.get("instanceType") or "",
            zone=one.get("availabilityZone") or "",
            owner_id=one.get("ownerID") or "",
            instance_match_criteria=one.get("instanceMatchCriteria") or "",
            reservation_type=one.get("reservationType") or "default",
            interruptible=bool(one.get("interruptible")),
            state=one.get("state") or "active",
            end_time=datetime.fromisoformat(one["endTime"]) if one.get("endTime") else None,
        )
        for one in items or ()
    )


def placement_group(given: Json | None) -> PlacementGroup | None:
    if not given:
        return None
    return PlacementGroup(
        given["id"], given.get("name") or "", given.get("strategy") or "", given.get("partitionCount") or 0
    )
