"""Launching into capacity reservations: which of them a launch asks for, and how a template and a request say so.

Source: the filters of Karpenter's AWS provider (``pkg/providers/instance/filter``), in our words;
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CapacityReservationSpecification.html and
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_TargetCapacitySpecificationRequest.html.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from spotwright.model import labels
from spotwright.model.ec2.instance_type import Offering
from spotwright.model.requirements import Requirements

DEFAULT: Final = "default"
INTERRUPTIBLE: Final = "interruptible-capacity-reservation"
# Which kind is taken where the cheapest offerings of two cost the same.
_KINDS: Final = (DEFAULT, labels.CAPACITY_BLOCK, INTERRUPTIBLE)
# Instances of a capacity block or an interruptible reservation have it for their InstanceLifecycle.
RESERVED_LIFECYCLES: Final = frozenset({labels.CAPACITY_BLOCK, INTERRUPTIBLE})
RESERVATIONS_ONLY: Final = "capacity-reservations-only"


class ReservationTarget(msgspec.Struct, frozen=True):
    """A reservation to launch into.

    ``kind``: one of DEFAULT, CAPACITY_BLOCK, INTERRUPTIBLE; ``available_instance_count``: instances.
    """

    id: str
    kind: str = DEFAULT
    available_instance_count: int = 0


def reservation_target(offering: Offering) -> ReservationTarget | None:
    """The reservation that an offering comes out of; None = it is bought."""
    if offering.capacity_type != labels.RESERVED:
        return None
    told = offering.requirements.labels()
    kind = labels.CAPACITY_BLOCK if told.get(labels.RESERVATION_TYPE) == labels.CAPACITY_BLOCK else DEFAULT
    if told.get(labels.RESERVATION_INTERRUPTIBLE) == "true":
        kind = INTERRUPTIBLE
    return ReservationTarget(told.get(labels.RESERVATION_ID, ""), kind, offering.reservation_capacity)


class _ReservedOffering(msgspec.Struct, frozen=True):
    """What of a candidate decides between reservations."""

    name: str
    zone: str
    price: int
    reservation: ReservationTarget


def select_reservations(offers: Iterable[tuple[str, str, int, ReservationTarget]]) -> frozenset[str]:
    """Ids of the reservations that one request may name, of (instance type, zone, price, reservation).

    One kind only, since a request can ask for one: that with the cheapest offering. Of capacity blocks a single one;
    of the others the one with most instances left in each pool, since a fleet names a pool once.
    """
    every = [_ReservedOffering(*offer) for offer in offers]
    kind = min(every, key=lambda one: (one.price, _KINDS.index(one.reservation.kind))).reservation.kind
    alike = [one for one in every if one.reservation.kind == kind]
    if kind == labels.CAPACITY_BLOCK:
        return frozenset(
            {
                min(
                    alike, key=lambda one: (one.price, -one.reservation.available_instance_count, one.reservation.id)
                ).reservation.id
            }
        )
    pools: dict[tuple[str, str], _ReservedOffering] = {}
    for reserved_offering in sorted(
        alike, key=lambda one: (one.reservation.available_instance_count, one.reservation.id)
    ):
        pools[reserved_offering.name, reserved_offering.zone] = reserved_offering
    return frozenset(one.reservation.id for one in pools.values())


def launch_template_fields(reservation: ReservationTarget | None) -> dict[str, Any]:
    """How a launch template says it: into that reservation only, or into none, an open one included."""
    if reservation is None:
        return {"CapacityReservationSpecification": {"CapacityReservationPreference": "none"}}
    target = {"CapacityReservationTarget": {"CapacityReservationId": reservation.id}}
    into = {"CapacityReservationSpecification": {"CapacityReservationPreference": RESERVATIONS_ONLY} | target}
    return into if reservation.kind == DEFAULT else into | {"InstanceMarketOptions": {"MarketType": reservation.kind}}


def create_fleet_fields(kind: str, strategy: str) -> tuple[str, dict[str, Any]]:
    """(DefaultTargetCapacityType, options) of a CreateFleet into reservations of a kind.

    ``strategy``: how on-demand capacity is chosen, which reservations of the usual kind count as.
    """
    if kind == labels.CAPACITY_BLOCK:
        return labels.CAPACITY_BLOCK, {}
    if kind == INTERRUPTIBLE:
        return "reserved-capacity", {"ReservedCapacityOptions": {"ReservationTypes": [INTERRUPTIBLE]}}
    return labels.ON_DEMAND, {"OnDemandOptions": {"AllocationStrategy": strategy}}


def reservation_labels(offerings: Sequence[Offering], reservation_id: str) -> dict[str, str]:
    """The labels that say into which reservation a node was launched; {} = into none."""
    if not reservation_id:
        return {}
    told = (offering.requirements.labels() for offering in offerings if offering.capacity_type == labels.RESERVED)
    found: dict[str, str] = next((one for one in told if one.get(labels.RESERVATION_ID) == reservation_id), {})
    kept: dict[str, str] = {key: found[key] for key in labels.RESERVATION_LABELS if key in found}
    return kept | {labels.RESERVATION_ID: reservation_id}


def labels_without_reservation(requirements: Requirements) -> dict[str, str]:
    """A type's certain labels without those of reservations, which are true of some of its instances only."""
    return {key: value for key, value in requirements.labels().items() if key not in labels.RESERVATION_LABELS}
