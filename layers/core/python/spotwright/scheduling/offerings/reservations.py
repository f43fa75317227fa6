"""Capacity reservations as a plan sees them: whether they count, and how many instances each of them has left.

Source: Karpenter v1.14 ``scheduling/reservationmanager.go``. We count a node against the one reservation that it is
planned into, not against every reservation that it could use.
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
    """The catalog; without the gate, without what is reserved. Types that have nothing reserved stay the same ones."""
    if RESERVED_CAPACITY in gates:
        return catalog
    by_class = {name: drop_reserved_offerings(types) for name, types in catalog.by_nodeclass.items()}
    by_pool = {name: drop_reserved_offerings(types) for name, types in catalog.by_nodepool.items()}
    same = [types is by_class[name] for name, types in catalog.by_nodeclass.items()]
    same += [types is by_pool[name] for name, types in catalog.by_nodepool.items()]
    return catalog if all(same) else msgspec.structs.replace(catalog, by_nodeclass=by_class, by_nodepool=by_pool)


def available_reservations(template: NodeClaimTemplate) -> list[str]:
    """Ids of the reservations that a pool may be launched into now, cheapest first."""
    offers = [
        offering
        for type_ in template.compatible_instance_types()
        for offering in type_.offerings
        if offering.reservation_capacity and offering.available and template.allows(offering)
    ]
    priced = sorted(
        (offering.price_picousd_per_hour, offering.requirements.get(RESERVATION_ID).sole_value or "")
        for offering in offers
    )
    return list(dict.fromkeys(reservation for _, reservation in priced if reservation))


def restrict_to_reservation(template: NodeClaimTemplate, reservation: str) -> NodeClaimTemplate:
    """The pool as far as it is launched into one reservation; "" = into none."""
    if not reservation:
        return template.with_requirements((Requirement(CAPACITY_TYPE, True, frozenset((RESERVED,))),))
    into = Requirement(RESERVATION_ID, False, frozenset((reservation,)))
    return template.with_requirements((Requirement(CAPACITY_TYPE, False, frozenset((RESERVED,))), into))


def remaining_instances(templates: Iterable[NodeClaimTemplate], snapshot: Snapshot) -> dict[str, int]:
    """Instances by reservation: what offerings say (the fewest, where they disagree) without what is promised."""
    found: dict[str, int] = {}
    for template in templates:
        for offering in (
            one for type_ in template.instance_types for one in type_.offerings if one.reservation_capacity
        ):
            reservation = offering.requirements.get(RESERVATION_ID).sole_value
            if reservation:
                capacity = offering.reservation_capacity
                found[reservation] = min(capacity, found.get(reservation, capacity))
    if not found:
        return found
    promised = _promised(snapshot)
    return {name: max(0, count - promised[name]) for name, count in found.items()}


def _promised(snapshot: Snapshot) -> Counter[str]:
    """Nodes that were decided for a reservation and that EC2 may not have counted yet."""
    shown = {nodeclaim.name for nodeclaim in snapshot.nodeclaims}
    coming = [nodeclaim for nodeclaim in snapshot.nodeclaims if not nodeclaim.provider_id]
    coming += [entry.nodeclaim for entry in snapshot.in_flight if entry.nodeclaim.name not in shown]
    return Counter(name for nodeclaim in coming if (name := claim_reservation_id(nodeclaim)))


def claim_reservation_id(claim: NodeClaim) -> str:
    """The reservation that a claim asks to be launched into; "" = none, or one of several."""
    stated = next((expression for expression in claim.requirements if expression.key == RESERVATION_ID), None)
    return stated.values[0] if stated and stated.operator == "In" and len(stated.values) == 1 else ""
