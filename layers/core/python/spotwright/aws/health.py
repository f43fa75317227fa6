"""Which offerings are known to be empty right now.

The marks are shared by all clusters of an account and region: what one learns, all know.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from spotwright.model.fleet import OfferingHealth
from spotwright.model.instancetype import ANY

# Marks on a subnet without free addresses stand under this word in the place of the capacity type.
SUBNET: Final = "subnet"


class Health(msgspec.Struct, frozen=True):
    """Marks that hold: (capacity type, instance type or ``*``, zone or ``*``)."""

    marks: frozenset[tuple[str, str, str]] = frozenset()

    def allows(self, capacity_type: str, instance_type: str, zone: str) -> bool:
        """False when this offering, or everything it belongs to, is marked empty."""
        return not any(
            (capacity_type, kind, place) in self.marks for kind in (instance_type, ANY) for place in (zone, ANY)
        )

    def allows_subnet(self, subnet: str, zone: str) -> bool:
        return (SUBNET, subnet, zone) not in self.marks


def of(marks: Iterable[OfferingHealth], *, now_ms: int) -> Health:
    """The marks that have not expired at ``now_ms`` (epoch milliseconds)."""
    return Health(frozenset((one.capacity_type, one.instance_type, one.zone) for one in marks if one.until > now_ms))
