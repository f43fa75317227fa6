"""Recording which offerings had capacity, for all clusters of the account.

Several functions may record at once: a row is written under its version, and a writer that loses reads it again.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

from spotwright.aws.instance_types import interruption_history, offering_health, subnet_addresses
from spotwright.aws.instance_types.unavailable_offerings import SUBNET_KIND, UnavailableOfferings
from spotwright.aws.launch import fleet_errors
from spotwright.aws.nodeclass.readiness import DiscoveredSubnet
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
    launch: str = "",
    node_addresses: Mapping[str, int] | None = None,
    was_asked_for: Callable[[FleetError], bool] = lambda _: False,
) -> bool:
    """Record a response of CreateFleet: failed offerings are unavailable for a while, launched ones are available.

    ``node_addresses``: what a node and its pods take of a subnet, by instance type. ``was_asked_for``: whether an error
    is about what the request asked for, which then was not known to be unavailable. True when such an offering failed,
    so that the next plan will differ.
    """
    launched, failures = tuple(instances), tuple(errors)
    marks_of = partial(fleet_errors.offering_failures, now_ms=now_ms, cpu_millicores=cpu_millicores, scope=scope)
    marks = marks_of(failures)
    failed = {mark.key for mark in marks}
    launched_keys = {_offering_of(instance, scope).key for instance in launched}
    counted_subnets = False

    def update(health_by_key: HealthByKey) -> Iterable[OfferingHealth | None]:
        nonlocal counted_subnets
        counted_subnets = any(health.subnet for health in health_by_key.values())
        yield from (offering_health.record_failure(health_by_key.get(mark.key), mark, now_ms=now_ms) for mark in marks)
        yield from (
            offering_health.record_success(health_by_key[key], now_ms=now_ms)
            for key in sorted(launched_keys - failed)
            if key in health_by_key
        )

    _write(state, update, now_ms)
    if counted_subnets and launch:
        _record_subnet_use(state, launch, _subnet_use(launched, node_addresses or {}), now_ms=now_ms)
    for reservation, count in sorted(
        Counter(instance.reservation_id for instance in launched if instance.reservation_id).items()
    ):
        record_reservation_use(state, reservation, count, now_ms=now_ms)
    return bool(marks_of(filter(was_asked_for, failures)))


def record_fleet_request(
    state: StatePort, launch: str, subnets: Iterable[str], *, nodes: int, node_addresses: int, now_ms: int
) -> None:
    """Until EC2 answers, the subnets that a launch names are expected to share its nodes equally."""
    named = sorted(set(subnets))
    share = -(-nodes // len(named)) * node_addresses if named else 0
    _record_subnet_use(state, launch, dict.fromkeys(named, (0, share)), now_ms=now_ms)


def record_subnets(state: StatePort, subnets: Iterable[DiscoveredSubnet], *, now_ms: int) -> None:
    """EC2 has described these subnets."""
    described = {subnet.id: subnet for subnet in subnets}

    def update(health_by_key: HealthByKey) -> Iterable[OfferingHealth | None]:
        for id, subnet in sorted(described.items()):
            before = health_by_key.get(OfferingHealth(SUBNET_KIND, id, subnet.zone, 0, "").key)
            free = subnet.available_ip_address_count
            yield subnet_addresses.record_description(before, id, subnet.zone, free, now_ms=now_ms)

    if described:
        _write(state, update, now_ms)


def _subnet_use(launched: Iterable[Instance], node_addresses: Mapping[str, int]) -> dict[str, tuple[int, int]]:
    """Subnet → (instances in it, what they and their pods take)."""
    used: dict[str, tuple[int, int]] = {}
    for instance in launched:
        instances, addresses = used.get(instance.subnet_id, (0, 0))
        used[instance.subnet_id] = (instances + 1, addresses + node_addresses.get(instance.instance_type, 1))
    return used


def _record_subnet_use(state: StatePort, launch: str, used: Mapping[str, tuple[int, int]], *, now_ms: int) -> None:
    """What a launch takes of each subnet that is counted; of those that are not in ``used`` it takes nothing."""

    def update(health_by_key: HealthByKey) -> Iterable[OfferingHealth | None]:
        for health in health_by_key.values():
            instances, addresses = used.get(health.instance_type, (0, 0))
            yield subnet_addresses.record_launch(
                health, launch, instances=instances, addresses=addresses, now_ms=now_ms
            )

    _write(state, update, now_ms)


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


def record_rebalance(state: StatePort, instance_type: str, zone: str, *, now_ms: int) -> None:
    """EC2 recommends to leave a spot pool: it counts dearer for a day, and stays available."""
    key = OfferingHealth(labels.SPOT, instance_type, zone, 0, "").key

    def update(health_by_key: HealthByKey) -> Iterable[OfferingHealth | None]:
        before = health_by_key.get(key)
        after = interruption_history.record_rebalance(before, instance_type, zone, now_ms=now_ms)
        yield after if after != before else None

    _write(state, update, now_ms)


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
