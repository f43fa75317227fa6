"""Capacity reservations as a plan sees them: whether they count, and how many instances each of them has left.

Source: Karpenter v1.14 ``scheduling/reservationmanager.go``. Here a node counts against the one reservation that it is
planned into, not against every reservation that it could use (ADR 13).
"""

from collections import Counter
from collections.abc import Collection, Iterable

import msgspec

from spotwright.model.ec2.instance_type import Catalog, drop_reserved_offerings
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.labels import CAPACITY_TYPE, RESERVATION_ID, RESERVED
from spotwright.model.requirements import Requirement
from spotwright.model.snapshot import RESERVED_CAPACITY, Snapshot
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate


def apply_feature_gate(catalog: Catalog, gates: Collection[str]) -> Catalog:
    """The catalog; without the gate, without reserved offerings. Types without such offerings stay the same objects."""
    if RESERVED_CAPACITY in gates:
        return catalog
    by_class = {name: drop_reserved_offerings(types) for name, types in catalog.by_nodeclass.items()}
    by_pool = {name: drop_reserved_offerings(types) for name, types in catalog.by_nodepool.items()}
    unchanged = [types is by_class[name] for name, types in catalog.by_nodeclass.items()]
    unchanged += [types is by_pool[name] for name, types in catalog.by_nodepool.items()]
    return catalog if all(unchanged) else msgspec.structs.replace(catalog, by_nodeclass=by_class, by_nodepool=by_pool)


def available_reservations(template: NodeClaimTemplate) -> list[str]:
    """Ids of the reservations that a NodePool may be launched into now, cheapest first."""
    reserved = [
        offering
        for instance_type in template.compatible_instance_types()
        for offering in instance_type.offerings
        if offering.reservation_capacity and offering.available and template.allows(offering)
    ]
    cheapest_first = sorted(
        (offering.price_picousd_per_hour, offering.requirements.get(RESERVATION_ID).sole_value or "")
        for offering in reserved
    )
    return list(dict.fromkeys(reservation for _, reservation in cheapest_first if reservation))


def restrict_to_reservation(template: NodeClaimTemplate, reservation: str) -> NodeClaimTemplate:
    """The NodePool as far as it is launched into one reservation; "" = into none."""
    if not reservation:
        return template.with_requirements((Requirement(CAPACITY_TYPE, True, frozenset((RESERVED,))),))
    into = Requirement(RESERVATION_ID, False, frozenset((reservation,)))
    return template.with_requirements((Requirement(CAPACITY_TYPE, False, frozenset((RESERVED,))), into))


def remaining_instances(templates: Iterable[NodeClaimTemplate], snapshot: Snapshot) -> dict[str, int]:
    """Instances by reservation: what offerings state (the fewest, where they disagree) without what is promised."""
    instances: dict[str, int] = {}
    for template in templates:
        for instance_type in template.instance_types:
            for offering in instance_type.offerings:
                capacity = offering.reservation_capacity
                if capacity and (reservation := offering.requirements.get(RESERVATION_ID).sole_value):
                    instances[reservation] = min(capacity, instances.get(reservation, capacity))
    if not instances:
        return instances
    promised = _count_promised(snapshot)
    return {reservation: max(0, count - promised[reservation]) for reservation, count in instances.items()}


def _count_promised(snapshot: Snapshot) -> Counter[str]:
    """Nodes that were decided for a reservation and that EC2 may not have counted yet."""
    visible = {nodeclaim.name for nodeclaim in snapshot.nodeclaims}
    coming = [nodeclaim for nodeclaim in snapshot.nodeclaims if not nodeclaim.provider_id]
    coming += [in_flight.nodeclaim for in_flight in snapshot.in_flight if in_flight.nodeclaim.name not in visible]
    return Counter(reservation for nodeclaim in coming if (reservation := claim_reservation_id(nodeclaim)))


def claim_reservation_id(nodeclaim: NodeClaim) -> str:
    """The reservation that a NodeClaim asks to be launched into; "" = none, or any of more than one."""
    stated = next((expression for expression in nodeclaim.requirements if expression.key == RESERVATION_ID), None)
    return stated.values[0] if stated and stated.operator == "In" and len(stated.values) == 1 else ""
