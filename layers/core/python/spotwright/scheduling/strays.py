"""What a launch could take that was not meant.

A NodeClaim names types, zones and capacity types, and a launch takes any offering of these that has room for what the
claim requests. Where NodeOverlays give a type other resources in some of its offerings, an offering may be among them
that limits, DaemonSets or the size of a node had ruled out.
"""

from collections.abc import Mapping

from spotwright.model import labels, resources
from spotwright.model.instancetype import Offering
from spotwright.model.requirements import Requirement, Requirements
from spotwright.scheduling.market import Market, bits


def strays(
    market: Market, template: int, mask: int, requirements: Requirements, requests: Mapping[str, int]
) -> dict[str, list[Offering]]:
    """Offerings that a launch could take though they are none of these choices, by type; empty = all were meant.

    ``mask``: choices of one template; ``requirements`` and ``requests``: of the NodeClaim that names them.
    """
    known = market.statements(labels.ZONE).items()
    zones = frozenset(zone for zone, choices in known if choices & mask and isinstance(zone, str))
    asked = [one for one in requirements if one.key != labels.INSTANCE_TYPE]
    asked += [Requirement(labels.ZONE, False, zones)] if zones else []
    reach = market.of_template[template] & market.meeting_all(asked) & ~mask
    names = market.divided[template].intersection(one.type.name for one in market.goods if one.mask & mask)
    found: dict[str, list[Offering]] = {name: [] for name in names}
    for goods in market.goods:
        if goods.mask & reach and goods.type.name in names and resources.fits(requests, goods.type.allocatable):
            found[goods.type.name] += [market.offers[choice] for choice in bits(goods.mask & reach)]
    places = [one for one in asked if one.key in (labels.ZONE, labels.CAPACITY_TYPE)]
    for entry in market.cramped[template]:
        if entry.name in names and resources.fits(requests, entry.allocatable):
            sold = (one for one in entry.offerings if one.available and market.templates[template].sells(one))
            found[entry.name] += [one for one in sold if all(each.has(where(one, each.key)) for each in places)]
    return {name: several for name, several in found.items() if several}


def where(offering: Offering, key: str) -> str:
    """Its zone or its capacity type."""
    return offering.zone if key == labels.ZONE else offering.capacity_type
