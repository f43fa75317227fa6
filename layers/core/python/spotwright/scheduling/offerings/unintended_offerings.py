"""What a launch could take that was not meant.

A NodeClaim names types, zones and capacity types, and a launch takes any offering of these that has room for what the
NodeClaim requests. Where NodeOverlays give a type other resources in some of its offerings, an offering may be among
them that limits, DaemonSets or the size of a node had ruled out.
"""

from collections.abc import Mapping

from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import Offering
from spotwright.model.requirements import Requirement, Requirements
from spotwright.scheduling.offerings.bit_sets import iterate_bits
from spotwright.scheduling.offerings.offering_index import OfferingIndex


def find_unintended_offerings(
    index: OfferingIndex, template: int, offerings: int, requirements: Requirements, requests: Mapping[str, int]
) -> dict[str, list[Offering]]:
    """Offerings that a launch could take though they are none of ``offerings``, by type; empty = all were meant.

    ``offerings``: of one template; ``requirements`` and ``requests``: of the NodeClaim that names them.
    """
    statements = index.by_label.statements(labels.ZONE).items()
    zones = frozenset(zone for zone, stating in statements if stating & offerings and isinstance(zone, str))
    of_launch = [requirement for requirement in requirements if requirement.key != labels.INSTANCE_TYPE]
    of_launch += [Requirement(labels.ZONE, False, zones)] if zones else []
    reachable = index.offerings_of_template[template] & index.by_label.meeting_all(of_launch) & ~offerings
    names = index.split_types[template].intersection(
        pool_type.instance_type.name for pool_type in index.pool_types if pool_type.offerings & offerings
    )
    unintended: dict[str, list[Offering]] = {name: [] for name in names}
    for pool_type in index.pool_types:
        name, in_reach = pool_type.instance_type.name, pool_type.offerings & reachable
        if in_reach and name in names and resources.fits(requests, pool_type.instance_type.allocatable):
            unintended[name] += [index.offerings[offering] for offering in iterate_bits(in_reach)]
    places = [requirement for requirement in of_launch if requirement.key in (labels.ZONE, labels.CAPACITY_TYPE)]
    for entry in index.too_small_for_daemons[template]:
        if entry.name in names and resources.fits(requests, entry.allocatable):
            unintended[entry.name] += [
                offering
                for offering in entry.offerings
                if offering.available
                and index.templates[template].allows(offering)
                and all(requirement.has(offering_label(offering, requirement.key)) for requirement in places)
            ]
    return {name: of_type for name, of_type in unintended.items() if of_type}


def offering_label(offering: Offering, key: str) -> str:
    """Its zone or its capacity type."""
    return offering.zone if key == labels.ZONE else offering.capacity_type
