"""What an account remembers of an offering: how often EC2 had no capacity or interrupted an instance.

All clusters of an account and region share this (``OfferingHealth``). After a failure no launch asks for the offering
for a while, longer after each further failure. A success ends that, and time reduces the counts.
"""

from collections.abc import Iterable
from typing import Final

import msgspec

from spotwright.aws.instance_types import interruption_history, subnet_addresses
from spotwright.aws.instance_types.unavailable_offerings import (
    NO_ADDRESSES,
    QUOTA_PREFIX,
    UnavailableOfferings,
    from_snapshot,
)
from spotwright.model import labels
from spotwright.model.ec2.fleet import OfferingHealth
from spotwright.model.ec2.instance_type import WILDCARD
from spotwright.model.snapshot import UnavailableOffering

INTERRUPTION_CODE: Final = "SpotInterruption"
# How long an offering counts as unavailable after its first failure (Karpenter's figure); doubled by each further one,
# but for quotas.
UNAVAILABLE_MS: Final = 3 * 60 * 1000
MAX_UNAVAILABLE_MS: Final = 30 * 60 * 1000
# Failures of an offering within this time count as a single failure: launches that ran together had the same answer.
SAME_FAILURE_MS: Final = 10_000
# After this time an offering counts a failure less, and an interruption less.
FAILURE_DECAY_MS: Final = 30 * 60 * 1000
INTERRUPTION_DECAY_MS: Final = 6 * 3600 * 1000
# A health row expires after this time.
HEALTH_TTL_SECONDS: Final = 2 * 24 * 3600
# Launches into a reservation count until EC2's description of the reservation includes them.
RESERVATION_LAUNCH_MS: Final = 10 * 60 * 1000
# How far EC2's description of a reservation may be behind launches into it.
DESCRIBE_LAG_MS: Final = 30_000
# By how many percent an offering counts dearer in a launch for a failure, besides its history, and at most.
FAILURE_RISK_PERCENT: Final = 5
MAX_RISK_PERCENT: Final = 50


def from_health_rows(rows: Iterable[OfferingHealth], *, now_ms: int, described_ms: int = 0) -> UnavailableOfferings:
    """What the rows mean at ``now_ms`` (epoch milliseconds). ``described_ms``: when EC2 described the reservations."""
    healths = tuple(rows)
    unavailable_offerings = from_snapshot(to_snapshot(healths, now_ms=now_ms, described_ms=described_ms))
    risks = {(health.capacity_type, health.instance_type, health.zone): _risk(health, now_ms) for health in healths}
    free = {health.instance_type: subnet_addresses.free_addresses(health, now_ms=now_ms) for health in healths}
    return msgspec.structs.replace(
        unavailable_offerings,
        risk_percents={key: risk for key, risk in risks.items() if risk},
        free_addresses={subnet: left for subnet, left in free.items() if left is not None},
    )


def to_snapshot(
    rows: Iterable[OfferingHealth], *, now_ms: int, described_ms: int = 0
) -> tuple[UnavailableOffering, ...]:
    """The unavailable offerings as a snapshot keeps them, sorted. Launches that a description includes are left out."""
    since = max(now_ms - RESERVATION_LAUNCH_MS, described_ms - DESCRIBE_LAG_MS)
    kept = []
    for health in rows:
        offering = UnavailableOffering(
            health.capacity_type, health.instance_type, health.zone, health.code, health.scope, health.cpu_millicores
        )
        launches = sum(count for at, count in health.reservation_launches if at > since)
        free = subnet_addresses.free_addresses(health, now_ms=now_ms)
        if health.unavailable_until_ms > now_ms:
            kept.append(offering)
        elif free is not None and free.certain <= 0:
            kept.append(msgspec.structs.replace(offering, code=NO_ADDRESSES))
        elif launches:
            kept.append(msgspec.structs.replace(offering, reservation_launches=launches))
    return tuple(sorted(kept))


def record_failure(before: OfferingHealth | None, failure: OfferingHealth, *, now_ms: int) -> OfferingHealth | None:
    """The health of an offering after a failure or an interruption; None when the row already counts it."""
    if before is None:
        return _with_history(msgspec.structs.replace(failure, recorded_at_ms=now_ms))
    if failure.interruptions and now_ms in before.interrupted_at_ms:
        # That of a notice is recorded by several steps, between which the offering may fail.
        return None
    if (
        before.code == failure.code
        and now_ms - before.recorded_at_ms < SAME_FAILURE_MS
        and before.cpu_millicores <= failure.cpu_millicores
    ):
        return None
    failures = _decay(before.failures, before.recorded_at_ms, now_ms, FAILURE_DECAY_MS) + failure.failures
    interruptions = (
        _decay(before.interruptions, before.recorded_at_ms, now_ms, INTERRUPTION_DECAY_MS) + failure.interruptions
    )
    # A quota has room again when any node ends, or when AWS raises it.
    is_quota = failure.instance_type.startswith(QUOTA_PREFIX)
    count = 1 if is_quota else interruptions if failure.interruptions else failures
    unavailable_ms = min(MAX_UNAVAILABLE_MS, UNAVAILABLE_MS << min(max(count - 1, 0), 10))
    after = msgspec.structs.replace(
        before,
        unavailable_until_ms=max(before.unavailable_until_ms, now_ms + unavailable_ms),
        code=failure.code,
        failures=failures,
        interruptions=interruptions,
        recorded_at_ms=now_ms,
        cpu_millicores=failure.cpu_millicores,
    )
    return _with_history(after) if failure.interruptions else after


def _with_history(health: OfferingHealth) -> OfferingHealth:
    """An interruption is remembered with its time, too; a failure is not."""
    if not health.interruptions:
        return health
    return interruption_history.record_interruption(health, now_ms=health.recorded_at_ms)


def record_success(before: OfferingHealth, *, now_ms: int) -> OfferingHealth | None:
    """The health of an offering after a launch got an instance: available, with half its failures; None = unchanged."""
    failures = _decay(before.failures, before.recorded_at_ms, now_ms, FAILURE_DECAY_MS)
    if not failures and before.unavailable_until_ms <= now_ms:
        return None
    return msgspec.structs.replace(
        before, unavailable_until_ms=min(before.unavailable_until_ms, now_ms), failures=failures // 2
    )


def record_reservation_launches(
    before: OfferingHealth | None, reservation_id: str, count: int, *, now_ms: int
) -> OfferingHealth:
    """The health row of a reservation after ``count`` instances were launched into it; negative: terminated."""
    health = before or OfferingHealth(labels.RESERVED, reservation_id, WILDCARD, 0, "")
    recent = tuple(
        reservation_launch
        for reservation_launch in health.reservation_launches
        if now_ms - reservation_launch[0] < RESERVATION_LAUNCH_MS
    )
    return msgspec.structs.replace(health, reservation_launches=(*recent, (now_ms, count)))


def _decay(count: int, at: int, now_ms: int, per_ms: int) -> int:
    return max(0, count - max(0, now_ms - at) // per_ms)


def _risk(health: OfferingHealth, now_ms: int) -> int:
    failures = _decay(health.failures, health.recorded_at_ms, now_ms, FAILURE_DECAY_MS)
    penalty = interruption_history.penalty_percent(health, now_ms=now_ms)
    return min(MAX_RISK_PERCENT, FAILURE_RISK_PERCENT * failures + penalty)
