"""Launching into capacity reservations: which of them a launch names, and the fields of template and request for it.

Source: the filters of Karpenter's AWS provider (``pkg/providers/instance/filter``);
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
# The order of kinds whose cheapest offerings cost the same.
_KINDS: Final = (DEFAULT, labels.CAPACITY_BLOCK, INTERRUPTIBLE)
# The InstanceLifecycle of instances in a capacity block or an interruptible reservation.
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
    """The reservation of a reserved offering; None = spot or on-demand."""
    if offering.capacity_type != labels.RESERVED:
        return None
    offering_labels = offering.requirements.labels()
    kind = labels.CAPACITY_BLOCK if offering_labels.get(labels.RESERVATION_TYPE) == labels.CAPACITY_BLOCK else DEFAULT
    if offering_labels.get(labels.RESERVATION_INTERRUPTIBLE) == "true":
        kind = INTERRUPTIBLE
    return ReservationTarget(offering_labels.get(labels.RESERVATION_ID, ""), kind, offering.reservation_capacity)


class _ReservedOffering(msgspec.Struct, frozen=True):
    """An offering as the choice between reservations sees it."""

    name: str
    zone: str
    price: int
    reservation: ReservationTarget


def select_reservations(offers: Iterable[tuple[str, str, int, ReservationTarget]]) -> frozenset[str]:
    """Ids of the reservations that a request names, of (instance type, zone, price, reservation).

    A request can ask for a single kind of reservation: the kind of the cheapest offering. It names a single capacity
    block. Of other kinds it names, for each instance type and zone, the reservation with most instances left.
    """
    candidates = [_ReservedOffering(*offer) for offer in offers]
    kind = min(candidates, key=lambda offer: (offer.price, _KINDS.index(offer.reservation.kind))).reservation.kind
    same_kind = [offer for offer in candidates if offer.reservation.kind == kind]
    if kind == labels.CAPACITY_BLOCK:
        cheapest = min(same_kind, key=lambda offer: (offer.price, -_instances_left(offer), offer.reservation.id))
        return frozenset({cheapest.reservation.id})
    most_left: dict[tuple[str, str], _ReservedOffering] = {}
    for offer in sorted(same_kind, key=lambda offer: (_instances_left(offer), offer.reservation.id)):
        most_left[offer.name, offer.zone] = offer
    return frozenset(offer.reservation.id for offer in most_left.values())


def _instances_left(offer: _ReservedOffering) -> int:
    return offer.reservation.available_instance_count


def launch_template_fields(reservation: ReservationTarget | None) -> dict[str, Any]:
    """Fields of a launch template: only this reservation, or no reservation at all, not even an open one."""
    if reservation is None:
        return {"CapacityReservationSpecification": {"CapacityReservationPreference": "none"}}
    target = {"CapacityReservationTarget": {"CapacityReservationId": reservation.id}}
    fields = {"CapacityReservationSpecification": {"CapacityReservationPreference": RESERVATIONS_ONLY} | target}
    return (
        fields if reservation.kind == DEFAULT else fields | {"InstanceMarketOptions": {"MarketType": reservation.kind}}
    )


def create_fleet_fields(kind: str, strategy: str) -> tuple[str, dict[str, Any]]:
    """(DefaultTargetCapacityType, options) of a CreateFleet into reservations of a kind.

    ``strategy``: the allocation strategy for on-demand capacity, which default reservations count as.
    """
    if kind == labels.CAPACITY_BLOCK:
        return labels.CAPACITY_BLOCK, {}
    if kind == INTERRUPTIBLE:
        return "reserved-capacity", {"ReservedCapacityOptions": {"ReservationTypes": [INTERRUPTIBLE]}}
    return labels.ON_DEMAND, {"OnDemandOptions": {"AllocationStrategy": strategy}}


def reservation_labels(offerings: Sequence[Offering], reservation_id: str) -> dict[str, str]:
    """The labels for the reservation that a node was launched into; {} = no reservation."""
    if not reservation_id:
        return {}
    labels_of_offerings = (
        offering.requirements.labels() for offering in offerings if offering.capacity_type == labels.RESERVED
    )
    stated: dict[str, str] = next(
        (
            offering_labels
            for offering_labels in labels_of_offerings
            if offering_labels.get(labels.RESERVATION_ID) == reservation_id
        ),
        {},
    )
    reservation: dict[str, str] = {key: stated[key] for key in labels.RESERVATION_LABELS if key in stated}
    return reservation | {labels.RESERVATION_ID: reservation_id}


def labels_without_reservation(requirements: Requirements) -> dict[str, str]:
    """A type's labels with a single value, without those of reservations, which not all of its instances have."""
    return {key: value for key, value in requirements.labels().items() if key not in labels.RESERVATION_LABELS}
