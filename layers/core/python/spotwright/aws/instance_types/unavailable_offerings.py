"""Which offerings no launch asks for now, because EC2 lately had no capacity or a quota was reached; what that leaves.

``offering_health`` says how an offering becomes unavailable, and for how long.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from spotwright.aws.instance_types.vcpu_quotas import quota_family
from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import WILDCARD, Catalog, InstanceType, Offering
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.snapshot import UnavailableOffering

# Health rows of a subnet without free addresses have this instead of a capacity type.
SUBNET_KIND: Final = "subnet"
QUOTA_PREFIX: Final = "quota/"


# What EC2 says of a subnet without free addresses.
NO_ADDRESSES: Final = "InsufficientFreeAddressesInSubnet"

type OfferingKey = tuple[str, str, str, str]


class FreeAddresses(msgspec.Struct, frozen=True):
    """What a subnet has left: ``certain`` less one per instance, ``expected`` less those of the nodes' pods, too.

    Either may be negative.
    """

    certain: int
    expected: int


class UnavailableOfferings(msgspec.Struct, frozen=True):
    """What holds now. ``reasons``: (capacity type, instance type or ``*``, zone or ``*``, scope) → EC2's word.

    ``quota_limits``: (capacity type, quota family) → (millicores from which on EC2 refuses, its word).
    ``risk_percents``: percent by which an offering counts dearer. ``reservation_launches``: instances of a reservation,
    by its id. ``free_addresses``: of subnets that have few, by id.
    """

    reasons: Mapping[OfferingKey, str] = {}
    quota_limits: Mapping[tuple[str, str], tuple[int, str]] = {}
    risk_percents: Mapping[tuple[str, str, str], int] = {}
    reservation_launches: Mapping[str, int] = {}
    free_addresses: Mapping[str, FreeAddresses] = {}

    def reason(
        self, capacity_type: str, instance_type: str, zone: str, *, cpu_millicores: int = 0, scope: str = ""
    ) -> str:
        """EC2's error code for which the offering is unavailable; "" = a launch may ask for it."""
        for type_or_any in (instance_type, WILDCARD):
            for zone_or_any in (zone, WILDCARD):
                for placement in _enclosing_scopes(scope):
                    if reason := self.reasons.get((capacity_type, type_or_any, zone_or_any, placement)):
                        return reason
        least, code = self.quota_limits.get((capacity_type, quota_family(instance_type)), (0, ""))
        return code if code and cpu_millicores >= least else ""

    def is_available(
        self, capacity_type: str, instance_type: str, zone: str, *, cpu_millicores: int = 0, scope: str = ""
    ) -> bool:
        return not self.reason(capacity_type, instance_type, zone, cpu_millicores=cpu_millicores, scope=scope)

    def has_free_addresses(self, subnet: str, zone: str) -> bool:
        return (SUBNET_KIND, subnet, zone, "") not in self.reasons

    def expects_free_addresses(self, subnet: str) -> bool:
        """False while the nodes that join a subnet are expected to take all that it has left."""
        free = self.free_addresses.get(subnet)
        return free is None or free.expected > 0

    def risk_percent(self, capacity_type: str, instance_type: str, zone: str) -> int:
        """By how many percent an offering counts dearer for recent failures and interruptions."""
        return self.risk_percents.get((capacity_type, instance_type, zone), 0)


def from_snapshot(offerings: Iterable[UnavailableOffering]) -> UnavailableOfferings:
    reasons: dict[OfferingKey, str] = {}
    quotas: dict[tuple[str, str], tuple[int, str]] = {}
    launches: dict[str, int] = {}
    for offering in offerings:
        if offering.instance_type.startswith(QUOTA_PREFIX):
            family = (offering.capacity_type, offering.instance_type.removeprefix(QUOTA_PREFIX))
            quotas[family] = min(
                quotas.get(family, (offering.cpu_millicores, offering.code)), (offering.cpu_millicores, offering.code)
            )
        elif offering.reservation_launches:
            launches[offering.instance_type] = offering.reservation_launches
        else:
            key = (offering.capacity_type, offering.instance_type, offering.zone, offering.scope)
            reasons[key] = offering.code or "InsufficientInstanceCapacity"
    return UnavailableOfferings(reasons, quotas, {}, launches)


def apply_to_catalog(
    catalog: Catalog, nodeclasses: Iterable[EC2NodeClass], unavailable: UnavailableOfferings
) -> Catalog:
    """The catalog in which unavailable offerings say so, and why."""
    if not (unavailable.reasons or unavailable.quota_limits or unavailable.reservation_launches):
        return catalog
    nodeclasses = tuple(nodeclasses)
    zones_without_subnets = {
        nodeclass.name: zones_without_addresses(nodeclass, unavailable) for nodeclass in nodeclasses
    }
    groups = {nodeclass.name: placement_group_id(nodeclass) for nodeclass in nodeclasses}
    names = {
        *catalog.by_nodeclass,
        *(name for name in zones_without_subnets if zones_without_subnets[name] or groups[name]),
    }
    by_class = {
        name: _apply_to_types(
            catalog.instance_types(name),
            zones_without_subnets.get(name, frozenset()),
            unavailable,
            groups.get(name, ""),
        )
        for name in sorted(names)
    }
    return msgspec.structs.replace(catalog, by_nodeclass=by_class)


def zones_without_addresses(nodeclass: EC2NodeClass, unavailable: UnavailableOfferings) -> frozenset[str]:
    """Zones in which no subnet of the class has a free address."""
    left = {subnet.zone for subnet in nodeclass.subnets if unavailable.has_free_addresses(subnet.id, subnet.zone)}
    return frozenset(subnet.zone for subnet in nodeclass.subnets) - left


def placement_group_id(nodeclass: EC2NodeClass) -> str:
    """The placement group that nodes of a class start in, "" = none."""
    return nodeclass.placement_group.id if nodeclass.placement_group else ""


def _apply_to_types(
    types: tuple[InstanceType, ...], full_zones: frozenset[str], unavailable_offerings: UnavailableOfferings, group: str
) -> tuple[InstanceType, ...]:
    return tuple(
        msgspec.structs.replace(
            instance_type,
            offerings=tuple(
                apply_to_offering(instance_type, offering, unavailable_offerings, full_zones, group)
                for offering in instance_type.offerings
            ),
        )
        for instance_type in types
    )


def apply_to_offering(
    instance_type: InstanceType,
    offering: Offering,
    unavailable: UnavailableOfferings,
    full_zones: frozenset[str] = frozenset(),
    placement_group: str = "",
) -> Offering:
    """An offering of a type as it can be bought now, in a placement group.

    ``full_zones``: zones without free addresses.
    """
    if not offering.available:
        return offering
    reason = (
        NO_ADDRESSES
        if offering.zone in full_zones
        else unavailable_reason(instance_type, offering, unavailable, placement_group)
    )
    if reason:
        return msgspec.structs.replace(offering, available=False, unavailable_reason=reason)
    launched = unavailable.reservation_launches.get(offering_reservation_id(offering), 0)
    if not launched:
        return offering
    left = max(0, offering.reservation_capacity - launched)
    reason = "" if left else "ReservationCapacityExceeded"
    return msgspec.structs.replace(offering, available=left > 0, reservation_capacity=left, unavailable_reason=reason)


def unavailable_reason(
    instance_type: InstanceType, offering: Offering, unavailable: UnavailableOfferings, placement_group: str = ""
) -> str:
    """EC2's error code for which an offering of a type is unavailable, "" = a launch may ask for it."""
    if offering.capacity_type == labels.RESERVED:
        return unavailable.reason(labels.RESERVED, offering_reservation_id(offering), offering.zone)
    return unavailable.reason(
        offering.capacity_type,
        instance_type.name,
        offering.zone,
        cpu_millicores=instance_type.capacity.get(resources.CPU, 0),
        scope=offering_placement_scope(offering, placement_group),
    )


def offering_reservation_id(offering: Offering) -> str:
    """The id of the reservation an offering is of, "" = none."""
    return offering.requirements.labels().get(labels.RESERVATION_ID, "") if offering.reservation_capacity else ""


def offering_placement_scope(offering: Offering, placement_group: str) -> str:
    """Where instances start: ``<placement group>`` or ``<placement group>/<partition>``; "" = no placement group."""
    key = labels.PLACEMENT_GROUP_PARTITION
    partition = offering.requirements.get(key).sole_value if key in offering.requirements else None
    return f"{placement_group}/{partition}" if placement_group and partition else placement_group


def _enclosing_scopes(scope: str) -> tuple[str, ...]:
    """The scopes whose failures concern a scope: no placement group, its placement group, its partition."""
    group = scope.partition("/")[0]
    return ("", *dict.fromkeys((group, scope))) if scope else ("",)
