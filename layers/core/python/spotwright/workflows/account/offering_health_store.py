"""Recording which offerings had capacity, for all clusters of the account.

Several functions may record at once: a row is written under its version, and a writer that loses reads it again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from spotwright.aws.instance_types import offering_health
from spotwright.aws.instance_types.unavailable_offerings import UnavailableOfferings
from spotwright.aws.launch import fleet_errors
from spotwright.errors import Conflict
from spotwright.model import labels
from spotwright.model.ec2.fleet import FleetError, Instance, OfferingHealth
from spotwright.model.ec2.instance_type import WILDCARD
from spotwright.workflows.ports.state import StatePort

ATTEMPTS: Final = 4

type HealthByKey = Mapping[str, OfferingHealth]
type HealthUpdate = Callable[[HealthByKey], Iterable[OfferingHealth | None]]


def record_fleet_response(
    state: StatePort,
    instances: Iterable[Instance],
    errors: Iterable[FleetError],
    *,
    now_ms: int,
    cpu_millicores: Mapping[str, int],
    scope: str = "",
) -> bool:
    """Record a response of CreateFleet: failed offerings are unavailable for a while, launched ones are available.

    True when an offering failed, so that the next plan will differ.
    """
    launched = tuple(instances)
    marks = fleet_errors.offering_failures(errors, now_ms=now_ms, cpu_millicores=cpu_millicores, scope=scope)
    failed = {mark.key for mark in marks}
    launched_keys = {_offering_of(instance, scope).key for instance in launched}

    def update(health_by_key: HealthByKey) -> Iterable[OfferingHealth | None]:
        yield from (offering_health.record_failure(health_by_key.get(mark.key), mark, now_ms=now_ms) for mark in marks)
        yield from (
            offering_health.record_success(health_by_key[key], now_ms=now_ms)
            for key in sorted(launched_keys - failed)
            if key in health_by_key
        )

    _write(state, update, now_ms)
    for reservation, count in sorted(
        Counter(instance.reservation_id for instance in launched if instance.reservation_id).items()
    ):
        record_reservation_use(state, reservation, count, now_ms=now_ms)
    return bool(marks)


def _offering_of(instance: Instance, scope: str) -> OfferingHealth:
    if instance.reservation_id:
        return OfferingHealth(labels.RESERVED, instance.reservation_id, WILDCARD, 0, "")
    return OfferingHealth(instance.capacity_type, instance.instance_type, instance.zone, 0, "", scope)


def current_health(state: StatePort, *, now_ms: int) -> UnavailableOfferings:
    """The offerings that are unavailable now."""
    rows = state.offering_health(now_ms)
    return offering_health.from_health_rows(rows, now_ms=now_ms, described_ms=reservations_described_ms(state, rows))


def reservations_described_ms(state: StatePort, rows: Iterable[OfferingHealth]) -> int:
    """When the catalog last counted the instances left in reservations; 0 when none was launched into one lately."""
    return state.catalog_stored_at() if any(health.reservation_launches for health in rows) else 0


def record_interruption(state: StatePort, instance_type: str, zone: str, *, now_ms: int) -> None:
    """A spot pool that was interrupted is unavailable for a while, longer with each further interruption."""
    mark = OfferingHealth(
        labels.SPOT,
        instance_type,
        zone,
        now_ms + offering_health.UNAVAILABLE_MS,
        offering_health.INTERRUPTION_CODE,
        interruptions=1,
    )
    _write(
        state,
        lambda health_by_key: [offering_health.record_failure(health_by_key.get(mark.key), mark, now_ms=now_ms)],
        now_ms,
    )


def record_reservation_use(state: StatePort, reservation: str, count: int, *, now_ms: int) -> None:
    """``count`` instances were launched into a reservation; negative: instances of it were terminated."""
    key = offering_health.record_reservation_launches(None, reservation, count, now_ms=now_ms).key
    _write(
        state,
        lambda health_by_key: [
            offering_health.record_reservation_launches(health_by_key.get(key), reservation, count, now_ms=now_ms)
        ],
        now_ms,
    )


def record_reservation_loss(state: StatePort, reservation: str, *, now_ms: int) -> None:
    """EC2 took back an instance of an interruptible reservation, which is unavailable for a while."""
    mark = OfferingHealth(
        labels.RESERVED,
        reservation,
        WILDCARD,
        now_ms + offering_health.UNAVAILABLE_MS,
        fleet_errors.RESERVATION_FULL,
        interruptions=1,
    )
    _write(
        state,
        lambda health_by_key: [offering_health.record_failure(health_by_key.get(mark.key), mark, now_ms=now_ms)],
        now_ms,
    )


def _write(state: StatePort, update: HealthUpdate, now_ms: int) -> None:
    for _ in range(ATTEMPTS):
        health_by_key = {health.key: health for health in state.offering_health(now_ms)}
        try:
            for row in update(health_by_key):
                if row is not None:
                    state.save_offering_health(row)
        except Conflict:
            continue
        return
