"""What a launch could take that was not meant.

A NodeClaim names types, zones and capacity types, and a launch takes any offering of these that has room for what the
claim requests. Where NodeOverlays give a type other resources in some of its offerings, an offering may be among them
that limits, DaemonSets or the size of a node had ruled out.
"""

from collections.abc import Mapping

from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import Offering
from spotwright.model.requirements import Requirement, Requirements
from spotwright.scheduling.offerings.offering_index import OfferingIndex, iterate_bits


def find_unintended_offerings(
    market: OfferingIndex, template: int, offerings: int, requirements: Requirements, requests: Mapping[str, int]
) -> dict[str, list[Offering]]:
    """Offerings that a launch could take though they are none of these choices, by type; empty = all were meant.

    ``offerings``: choices of one template; ``requirements`` and ``requests``: of the NodeClaim that names them.
    """
    known = market.label_statements(labels.ZONE).items()
    zones = frozenset(zone for zone, choices in known if choices & offerings and isinstance(zone, str))
    asked = [requirement for requirement in requirements if requirement.key != labels.INSTANCE_TYPE]
    asked += [Requirement(labels.ZONE, False, zones)] if zones else []
    reach = market.offerings_of_template[template] & market.offerings_meeting_all(asked) & ~offerings
    names = market.split_types[template].intersection(
        pool_type.instance_type.name for pool_type in market.pool_types if pool_type.offerings & offerings
    )
    found: dict[str, list[Offering]] = {name: [] for name in names}
    for goods in market.pool_types:
        if (
            goods.offerings & reach
            and goods.instance_type.name in names
            and resources.fits(requests, goods.instance_type.allocatable)
        ):
            found[goods.instance_type.name] += [
                market.offerings[choice] for choice in iterate_bits(goods.offerings & reach)
            ]
    places = [requirement for requirement in asked if requirement.key in (labels.ZONE, labels.CAPACITY_TYPE)]
    for entry in market.too_small_for_daemons[template]:
        if entry.name in names and resources.fits(requests, entry.allocatable):
            sold = (
                offering
                for offering in entry.offerings
                if offering.available and market.templates[template].allows(offering)
            )
            found[entry.name] += [
                offering
                for offering in sold
                if all(requirement.has(offering_label(offering, requirement.key)) for requirement in places)
            ]
    return {name: several for name, several in found.items() if several}


def offering_label(offering: Offering, key: str) -> str:
    """Its zone or its capacity type."""
    return offering.zone if key == labels.ZONE else offering.capacity_type
