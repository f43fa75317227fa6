"""What EC2's notices of the last day say of spot offerings: the more of them, the dearer an offering counts.

An interruption counts most just after it happened, and for nothing a day later; a rebalance recommendation, by which
EC2 says that interruptions have become likely, counts a third of that. No offering is ruled out by it: a pool that is
much cheaper than all others is still used.
"""

from collections.abc import Iterable, Mapping
from typing import Final

import msgspec

from spotwright.model import labels
from spotwright.model.ec2.fleet import OfferingHealth
from spotwright.model.ec2.instance_type import Catalog, InstanceType, Offering
from spotwright.model.plurals import counted
from spotwright.model.snapshot import OfferingHistory

# How long a notice counts; less and less.
MEMORY_MS: Final = 24 * 3600 * 1000
# By how many percent an offering counts dearer just after a notice, and at most.
INTERRUPTION_PERCENT: Final = 6
REBALANCE_PERCENT: Final = 2
MAX_PERCENT: Final = 30
# Times kept of each kind: more of them would count no more.
NOTICES_KEPT: Final = 20
# Rebalance recommendations of a pool within this time count once: EC2 sends them to all of its instances.
SAME_RECOMMENDATION_MS: Final = 5 * 60 * 1000


def record_interruption(health: OfferingHealth, *, now_ms: int) -> OfferingHealth:
    """The health of an offering that EC2 interrupted now."""
    return msgspec.structs.replace(health, interrupted_at_ms=_with(health.interrupted_at_ms, now_ms))


def record_rebalance(before: OfferingHealth | None, instance_type: str, zone: str, *, now_ms: int) -> OfferingHealth:
    """The health of a spot offering that EC2 recommends to leave; it stays available."""
    health = before or OfferingHealth(labels.SPOT, instance_type, zone, 0, "")
    if health.rebalanced_at_ms and now_ms - health.rebalanced_at_ms[-1] < SAME_RECOMMENDATION_MS:
        return health
    return msgspec.structs.replace(health, rebalanced_at_ms=_with(health.rebalanced_at_ms, now_ms))


def _with(times: tuple[int, ...], now_ms: int) -> tuple[int, ...]:
    return (*_recent(times, now_ms), now_ms)[-NOTICES_KEPT:]


def _recent(times: Iterable[int], now_ms: int) -> list[int]:
    return [at for at in times if now_ms - at < MEMORY_MS]


def penalty_percent(health: OfferingHealth, *, now_ms: int) -> int:
    """By how many percent an offering counts dearer at ``now_ms`` for what happened to it; rounded down."""
    parts = INTERRUPTION_PERCENT * _weight(health.interrupted_at_ms, now_ms)
    parts += REBALANCE_PERCENT * _weight(health.rebalanced_at_ms, now_ms)
    return min(MAX_PERCENT, parts // MEMORY_MS)


def _weight(times: Iterable[int], now_ms: int) -> int:
    """How much of a day is left of each of these, together, in milliseconds."""
    return sum(MEMORY_MS - max(0, now_ms - at) for at in _recent(times, now_ms))


def to_histories(rows: Iterable[OfferingHealth], *, now_ms: int) -> tuple[OfferingHistory, ...]:
    """The spot offerings that were in trouble within the last day, sorted."""
    histories = list[OfferingHistory]()
    for health in rows:
        if health.capacity_type != labels.SPOT:
            continue
        interruptions, rebalances = _recent(health.interrupted_at_ms, now_ms), _recent(health.rebalanced_at_ms, now_ms)
        troubled = max(_recent([*interruptions, health.recorded_at_ms], now_ms), default=0)
        if rebalances or troubled:
            histories.append(
                OfferingHistory(
                    health.instance_type,
                    health.zone,
                    len(interruptions),
                    len(rebalances),
                    penalty_percent(health, now_ms=now_ms),
                    troubled,
                )
            )
    return tuple(sorted(histories))


def apply_to_catalog(catalog: Catalog, histories: Iterable[OfferingHistory]) -> Catalog:
    """The catalog in which spot offerings with a history count dearer, and say why."""
    penalized = {(history.instance_type, history.zone): history for history in histories if history.penalty_percent > 0}
    if not penalized:
        return catalog
    names = {name for name, _ in penalized}

    def apply(types: Mapping[str, tuple[InstanceType, ...]]) -> dict[str, tuple[InstanceType, ...]]:
        return {
            key: tuple(_apply_to_type(of_key, penalized) if of_key.name in names else of_key for of_key in of_class)
            for key, of_class in types.items()
        }

    return msgspec.structs.replace(
        catalog, by_nodeclass=apply(catalog.by_nodeclass), by_nodepool=apply(catalog.by_nodepool)
    )


def _apply_to_type(instance_type: InstanceType, penalized: Mapping[tuple[str, str], OfferingHistory]) -> InstanceType:
    def apply(offering: Offering) -> Offering:
        history = penalized.get((instance_type.name, offering.zone))
        if history is None or offering.capacity_type != labels.SPOT:
            return offering
        return msgspec.structs.replace(
            offering, penalty_percent=history.penalty_percent, penalty_reason=describe(history)
        )

    return msgspec.structs.replace(instance_type, offerings=tuple(map(apply, instance_type.offerings)))


def describe(history: OfferingHistory) -> str:
    """``m5.large in us-east-1a was interrupted 3 times in 24 h: counts as 12 % dearer``."""
    return f"{describe_notices(history)}: counts as {history.penalty_percent} % dearer"


def describe_notices(history: OfferingHistory) -> str:
    """``m5.large in us-east-1a was interrupted 3 times in 24 h``."""
    said = list[str]()
    if history.interruptions:
        said.append(f"was interrupted {counted(history.interruptions, 'time')}")
    if history.rebalances:
        said.append(f"had {counted(history.rebalances, 'rebalance recommendation')}")
    return f"{history.instance_type} in {history.zone} {' and '.join(said)} in 24 h"


def weight(history: OfferingHistory) -> int:
    """How bad the notices of a day are, however long ago: to compare offerings by."""
    return INTERRUPTION_PERCENT * history.interruptions + REBALANCE_PERCENT * history.rebalances
