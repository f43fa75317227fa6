"""Which offerings are known to be empty right now, and how sure that is.

The memory is shared by all clusters of an account and region: what one learns, all know. An offering that fails is
left alone for a while, longer each time it fails again; a success shortens that, and time makes it forgotten.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from spotwright.model import labels, resources
from spotwright.model.ec2.fleet import OfferingHealth
from spotwright.model.ec2.instance_type import WILDCARD, Catalog, InstanceType, Offering
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.snapshot import UnavailableOffering

# Marks on a subnet without free addresses stand under this word in the place of the capacity type.
SUBNET_KIND: Final = "subnet"
QUOTA_PREFIX: Final = "quota/"
INTERRUPTION_CODE: Final = "SpotInterruption"

# How long an offering is left alone the first time, milliseconds (Karpenter's figure); doubled each time after it.
UNAVAILABLE_MS: Final = 3 * 60 * 1000
MAX_UNAVAILABLE_MS: Final = 30 * 60 * 1000
# What several launches hear of one offering within this time is one failure.
SAME_FAILURE_MS: Final = 10_000
# One failure less is held against an offering for each of these that pass, and one interruption.
FAILURE_DECAY_MS: Final = 30 * 60 * 1000
INTERRUPTION_DECAY_MS: Final = 6 * 3600 * 1000
# Nothing is remembered for longer, seconds.
HEALTH_TTL_SECONDS: Final = 2 * 24 * 3600
# Launches into a reservation count until its description must have caught up.
RESERVATION_LAUNCH_MS: Final = 10 * 60 * 1000
# A description of a reservation may be that much behind the launches into it.
DESCRIBE_LAG_MS: Final = 30_000
# By how much dearer an offering counts for each failure and each interruption, percent, and at most.
FAILURE_RISK_PERCENT: Final = 5
INTERRUPTION_RISK_PERCENT: Final = 10
MAX_RISK_PERCENT: Final = 50

type OfferingKey = tuple[str, str, str, str]


class UnavailableOfferings(msgspec.Struct, frozen=True):
    """What holds now. ``reasons``: (capacity type, instance type or ``*``, zone or ``*``, scope) → EC2's word.

    ``quota_limits``: (capacity type, quota family) → (millicores from which on EC2 refuses, its word).
    ``risk_percents``: percent by which an offering counts dearer. ``reservation_launches``: instances of a reservation,
    by its id.
    """

    reasons: Mapping[OfferingKey, str] = {}
    quota_limits: Mapping[tuple[str, str], tuple[int, str]] = {}
    risk_percents: Mapping[tuple[str, str, str], int] = {}
    reservation_launches: Mapping[str, int] = {}

    def reason(
        self, capacity_type: str, instance_type: str, zone: str, *, cpu_millicores: int = 0, scope: str = ""
    ) -> str:
        """EC2's word for why this offering, or what it belongs to, is left alone; "" = it may be asked for."""
        for name in (instance_type, WILDCARD):
            for place in (zone, WILDCARD):
                for where in _wider(scope):
                    if found := self.reasons.get((capacity_type, name, place, where)):
                        return found
        least, code = self.quota_limits.get((capacity_type, quota_family(instance_type)), (0, ""))
        return code if code and cpu_millicores >= least else ""

    def is_available(
        self, capacity_type: str, instance_type: str, zone: str, *, cpu_millicores: int = 0, scope: str = ""
    ) -> bool:
        return not self.reason(capacity_type, instance_type, zone, cpu_millicores=cpu_millicores, scope=scope)

    def has_free_addresses(self, subnet: str, zone: str) -> bool:
        return (SUBNET_KIND, subnet, zone, "") not in self.reasons

    def risk_percent(self, capacity_type: str, instance_type: str, zone: str) -> int:
        """By how much dearer an offering counts that failed or was taken back lately."""
        return self.risk_percents.get((capacity_type, instance_type, zone), 0)


def from_health_rows(rows: Iterable[OfferingHealth], *, now_ms: int, described_ms: int = 0) -> UnavailableOfferings:
    """What the memory says at ``now_ms`` (epoch milliseconds). ``described_ms``: when reservations were described."""
    healths = tuple(rows)
    unavailable_offerings = from_snapshot(to_snapshot(healths, now_ms=now_ms, described_ms=described_ms))
    risks = {(health.capacity_type, health.instance_type, health.zone): _risk(health, now_ms) for health in healths}
    return msgspec.structs.replace(
        unavailable_offerings, risk_percents={key: risk for key, risk in risks.items() if risk}
    )


def to_snapshot(
    rows: Iterable[OfferingHealth], *, now_ms: int, described_ms: int = 0
) -> tuple[UnavailableOffering, ...]:
    """What a snapshot keeps of the memory, sorted. Launches that a description knows do not count against it again."""
    since = max(now_ms - RESERVATION_LAUNCH_MS, described_ms - DESCRIBE_LAG_MS)
    found = []
    for health in rows:
        offering = UnavailableOffering(
            health.capacity_type, health.instance_type, health.zone, health.code, health.scope, health.cpu_millicores
        )
        taken = sum(count for at, count in health.reservation_launches if at > since)
        if health.unavailable_until_ms > now_ms:
            found.append(offering)
        elif taken:
            found.append(msgspec.structs.replace(offering, reservation_launches=taken))
    return tuple(sorted(found))


def from_snapshot(offerings: Iterable[UnavailableOffering]) -> UnavailableOfferings:
    closed: dict[OfferingKey, str] = {}
    quotas: dict[tuple[str, str], tuple[int, str]] = {}
    taken: dict[str, int] = {}
    for offering in offerings:
        if offering.instance_type.startswith(QUOTA_PREFIX):
            family = (offering.capacity_type, offering.instance_type.removeprefix(QUOTA_PREFIX))
            quotas[family] = min(
                quotas.get(family, (offering.cpu_millicores, offering.code)), (offering.cpu_millicores, offering.code)
            )
        elif offering.reservation_launches:
            taken[offering.instance_type] = offering.reservation_launches
        else:
            key = (offering.capacity_type, offering.instance_type, offering.zone, offering.scope)
            closed[key] = offering.code or "InsufficientInstanceCapacity"
    return UnavailableOfferings(closed, quotas, {}, taken)


def record_failure(before: OfferingHealth | None, failure: OfferingHealth, *, now_ms: int) -> OfferingHealth | None:
    """The memory of an offering after it failed, or was taken back, once more; None when that is known already."""
    if before is None:
        return msgspec.structs.replace(failure, recorded_at_ms=now_ms)
    if (
        before.code == failure.code
        and now_ms - before.recorded_at_ms < SAME_FAILURE_MS
        and before.cpu_millicores <= failure.cpu_millicores
    ):
        return None
    failures = _faded(before.failures, before.recorded_at_ms, now_ms, FAILURE_DECAY_MS) + failure.failures
    interruptions = (
        _faded(before.interruptions, before.recorded_at_ms, now_ms, INTERRUPTION_DECAY_MS) + failure.interruptions
    )
    times = interruptions if failure.interruptions else failures
    span = min(MAX_UNAVAILABLE_MS, UNAVAILABLE_MS << min(max(times - 1, 0), 10))
    return msgspec.structs.replace(
        failure,
        unavailable_until_ms=max(before.unavailable_until_ms, now_ms + span),
        failures=failures,
        interruptions=interruptions,
        recorded_at_ms=now_ms,
        reservation_launches=before.reservation_launches,
        version=before.version,
    )


def record_success(before: OfferingHealth, *, now_ms: int) -> OfferingHealth | None:
    """The memory of an offering after it gave an instance: open at once, half its failures forgiven; None = as is."""
    failures = _faded(before.failures, before.recorded_at_ms, now_ms, FAILURE_DECAY_MS)
    if not failures and before.unavailable_until_ms <= now_ms:
        return None
    return msgspec.structs.replace(
        before, unavailable_until_ms=min(before.unavailable_until_ms, now_ms), failures=failures // 2
    )


def record_reservation_launches(
    before: OfferingHealth | None, reservation_id: str, count: int, *, now_ms: int
) -> OfferingHealth:
    """The memory of a reservation after ``count`` instances were launched into it (negative: one was given back)."""
    health = before or OfferingHealth(labels.RESERVED, reservation_id, WILDCARD, 0, "")
    recent = tuple(
        reservation_launch
        for reservation_launch in health.reservation_launches
        if now_ms - reservation_launch[0] < RESERVATION_LAUNCH_MS
    )
    return msgspec.structs.replace(health, reservation_launches=(*recent, (now_ms, count)))


def apply_to_catalog(
    catalog: Catalog, nodeclasses: Iterable[EC2NodeClass], unavailable: UnavailableOfferings
) -> Catalog:
    """The catalog as it can be bought now: what is closed is unavailable and says why."""
    if not (unavailable.reasons or unavailable.quota_limits or unavailable.reservation_launches):
        return catalog
    nodeclasses = tuple(nodeclasses)
    dry = {nodeclass.name: zones_without_addresses(nodeclass, unavailable) for nodeclass in nodeclasses}
    groups = {nodeclass.name: placement_group_id(nodeclass) for nodeclass in nodeclasses}
    names = {*catalog.by_nodeclass, *(name for name in dry if dry[name] or groups[name])}
    by_class = {
        name: _without(catalog.instance_types(name), dry.get(name, frozenset()), unavailable, groups.get(name, ""))
        for name in sorted(names)
    }
    return msgspec.structs.replace(catalog, by_nodeclass=by_class)


def zones_without_addresses(nodeclass: EC2NodeClass, unavailable: UnavailableOfferings) -> frozenset[str]:
    """Zones in which every subnet of the class is out of addresses."""
    left = {subnet.zone for subnet in nodeclass.subnets if unavailable.has_free_addresses(subnet.id, subnet.zone)}
    return frozenset(subnet.zone for subnet in nodeclass.subnets) - left


def placement_group_id(nodeclass: EC2NodeClass) -> str:
    """The placement group that nodes of a class start in, "" = none: what is full there may be had elsewhere."""
    return nodeclass.placement_group.id if nodeclass.placement_group else ""


def _without(
    types: tuple[InstanceType, ...], dry: frozenset[str], unavailable_offerings: UnavailableOfferings, group: str
) -> tuple[InstanceType, ...]:
    return tuple(
        msgspec.structs.replace(
            instance_type,
            offerings=tuple(
                apply_to_offering(instance_type, offering, unavailable_offerings, dry, group)
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
    why = (
        "InsufficientFreeAddressesInSubnet"
        if offering.zone in full_zones
        else unavailable_reason(instance_type, offering, unavailable, placement_group)
    )
    if why:
        return msgspec.structs.replace(offering, available=False, unavailable_reason=why)
    taken = unavailable.reservation_launches.get(offering_reservation_id(offering), 0)
    if not taken:
        return offering
    still = max(0, offering.reservation_capacity - taken)
    why = "" if still else "ReservationCapacityExceeded"
    return msgspec.structs.replace(offering, available=still > 0, reservation_capacity=still, unavailable_reason=why)


def unavailable_reason(
    instance_type: InstanceType, offering: Offering, unavailable: UnavailableOfferings, placement_group: str = ""
) -> str:
    """EC2's word for why an offering of a type is left alone, "" = it may be asked for."""
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
    """What an offering of a class is had in: ``placement_group``, or its partition of it; "" = no placement group."""
    key = labels.PLACEMENT_GROUP_PARTITION
    partition = offering.requirements.get(key).sole_value if key in offering.requirements else None
    return f"{placement_group}/{partition}" if placement_group and partition else placement_group


def _wider(scope: str) -> tuple[str, ...]:
    """Where something may be closed for it: anywhere, in its placement group, in its partition."""
    group = scope.partition("/")[0]
    return ("", *dict.fromkeys((group, scope))) if scope else ("",)


def quota_family(instance_type: str) -> str:
    """The vCPU quota that a type counts against.

    Source: https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html; spot has the same families.
    """
    letters = instance_type.partition(".")[0].rstrip("0123456789").lower()
    for start, family in _QUOTAS:
        if letters.startswith(start):
            return family
    return "standard"


_QUOTAS: Final = (
    ("hpc", "hpc"), ("inf", "inf"), ("trn", "trn"), ("dl", "dl"), ("u-", "high-memory"), ("u7", "high-memory"),
    ("vt", "g"), ("g", "g"), ("p", "p"), ("f", "f"), ("x", "x"),
)  # fmt: skip


def _faded(count: int, at: int, now_ms: int, per_ms: int) -> int:
    return max(0, count - max(0, now_ms - at) // per_ms)


def _risk(health: OfferingHealth, now_ms: int) -> int:
    failures = _faded(health.failures, health.recorded_at_ms, now_ms, FAILURE_DECAY_MS)
    interruptions = _faded(health.interruptions, health.recorded_at_ms, now_ms, INTERRUPTION_DECAY_MS)
    return min(MAX_RISK_PERCENT, FAILURE_RISK_PERCENT * failures + INTERRUPTION_RISK_PERCENT * interruptions)
