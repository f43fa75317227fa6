"""The memory of offerings: how long one that failed is left alone, and what a catalog is worth under it."""

import msgspec
import pytest

from spotwright.aws.instance_types import offering_health, unavailable_offerings
from spotwright.model import labels
from spotwright.model.ec2.fleet import OfferingHealth
from spotwright.model.ec2.instance_type import Catalog, Offering
from spotwright.model.karpenter.nodeclass import PlacementGroup, Subnet
from spotwright.model.requirements import from_labels
from spotwright.simulation import builders

MINUTE = 60_000
START = 1_000 * MINUTE
EMPTY = OfferingHealth(
    "spot", "m5.large", "z1", START + offering_health.UNAVAILABLE_MS, "InsufficientInstanceCapacity", failures=1
)


def failed(before: OfferingHealth | None, at: int) -> OfferingHealth:
    health = offering_health.record_failure(
        before,
        msgspec.structs.replace(EMPTY, unavailable_until_ms=at + offering_health.UNAVAILABLE_MS),
        now_ms=at,
    )
    assert health is not None
    return health


def test_an_offering_that_fails_again_is_left_alone_longer() -> None:
    spans, at, row = [], START, None
    for _ in range(6):
        row = failed(row, at)
        spans.append((row.unavailable_until_ms - at) // MINUTE)
        at = row.unavailable_until_ms
    assert spans == [3, 6, 12, 24, 30, 30]


def test_a_quota_is_tried_again_after_three_minutes_however_often_it_was_reached() -> None:
    """Nodes that go make room in it, and so does AWS when it is asked."""
    spans, row = [], None
    for number in range(4):
        at = START + number * MINUTE
        quota = OfferingHealth(
            "on-demand", "quota/standard", "*", 0, "VcpuLimitExceeded", failures=1, cpu_millicores=8000 >> number
        )
        quota = msgspec.structs.replace(quota, unavailable_until_ms=at + offering_health.UNAVAILABLE_MS)
        row = offering_health.record_failure(row, quota, now_ms=at)
        assert row is not None
        spans.append((row.unavailable_until_ms - at) // MINUTE)
    assert spans == [3, 3, 3, 3]


def test_what_several_launches_hear_at_once_is_one_failure() -> None:
    row = failed(None, START)
    assert offering_health.record_failure(row, EMPTY, now_ms=START + offering_health.SAME_FAILURE_MS - 1) is None
    again = offering_health.record_failure(row, EMPTY, now_ms=START + offering_health.SAME_FAILURE_MS)
    assert again is not None
    assert again.failures == 2


def test_a_success_opens_an_offering_and_forgives_half() -> None:
    row = failed(failed(failed(failed(None, START), START + MINUTE), START + 2 * MINUTE), START + 3 * MINUTE)
    now = START + 4 * MINUTE
    better = offering_health.record_success(row, now_ms=now)
    assert better is not None
    assert (better.unavailable_until_ms, better.failures) == (now, 2)
    assert offering_health.from_health_rows([better], now_ms=now).is_available("spot", "m5.large", "z1")
    assert offering_health.record_success(msgspec.structs.replace(better, failures=0), now_ms=now) is None


def test_failures_fade_with_time() -> None:
    row = failed(failed(None, START), START + MINUTE)
    much_later = START + MINUTE + 2 * offering_health.FAILURE_DECAY_MS
    assert failed(row, much_later).unavailable_until_ms - much_later == offering_health.UNAVAILABLE_MS
    assert offering_health.from_health_rows([row], now_ms=much_later).risk_percent("spot", "m5.large", "z1") == 0


def test_a_mark_never_ends_sooner_because_of_another() -> None:
    long = msgspec.structs.replace(failed(None, START), unavailable_until_ms=START + 30 * MINUTE)
    assert failed(long, START + MINUTE).unavailable_until_ms == START + 30 * MINUTE


def test_interruptions_are_remembered_for_hours_and_make_an_offering_count_dearer() -> None:
    mark = OfferingHealth(
        "spot",
        "m5.large",
        "z1",
        START + offering_health.UNAVAILABLE_MS,
        offering_health.INTERRUPTION_CODE,
        interruptions=1,
    )
    row = offering_health.record_failure(None, mark, now_ms=START)
    assert row is not None
    for number in range(1, 3):
        row = offering_health.record_failure(row, mark, now_ms=START + number * 60 * MINUTE)
        assert row is not None
    assert row.interruptions == 3
    after = START + 3 * 60 * MINUTE
    unavailable = offering_health.from_health_rows([row], now_ms=after)
    assert unavailable.is_available("spot", "m5.large", "z1")
    assert unavailable.risk_percent("spot", "m5.large", "z1") == 16
    assert offering_health.from_health_rows([row], now_ms=after + 24 * 60 * MINUTE).risk_percents == {}


def bought(catalog: Catalog, nodeclass: str = "default") -> set[tuple[str, str, str]]:
    return {
        (instance_type.name, offering.capacity_type, offering.zone)
        for instance_type in catalog.instance_types(nodeclass)
        for offering in instance_type.offerings
        if offering.available
    }


def sold_out(*rows: OfferingHealth, catalog: Catalog | None = None) -> Catalog:
    unavailable = unavailable_offerings.from_snapshot(offering_health.to_snapshot(rows, now_ms=START))
    return unavailable_offerings.apply_to_catalog(
        catalog or builders.small_catalog(), [builders.nodeclass()], unavailable
    )


def test_a_zone_is_out_only_when_every_subnet_of_the_class_is() -> None:
    def full(subnet: str) -> OfferingHealth:
        return OfferingHealth("subnet", subnet, builders.ZONES[0], START + 1, "InsufficientFreeAddressesInSubnet")

    two = builders.nodeclass(subnets=(Subnet("s-1", builders.ZONES[0]), Subnet("s-2", builders.ZONES[0])))
    for marks, left in ((["s-1"], True), (["s-1", "s-2"], False)):
        unavailable = offering_health.from_health_rows(map(full, marks), now_ms=START)
        catalog = unavailable_offerings.apply_to_catalog(builders.small_catalog(), [two], unavailable)
        assert any(zone == builders.ZONES[0] for _, _, zone in bought(catalog)) == left
        assert any(zone == builders.ZONES[0] for _, _, zone in bought(catalog, "another class"))


def test_a_reached_quota_leaves_smaller_types() -> None:
    quota = OfferingHealth("spot", "quota/standard", "*", START + 1, "VcpuLimitExceeded", cpu_millicores=4000)
    names = {name for name, kind, _ in bought(sold_out(quota)) if kind == "spot"}
    assert names == {"m5.large", "c5.large"}
    assert {name for name, kind, _ in bought(sold_out(quota)) if kind == "on-demand"} > names


def test_a_closed_offering_says_what_ec2_said() -> None:
    catalog = sold_out(EMPTY, msgspec.structs.replace(EMPTY, zone="*", instance_type="c5.large"))
    said = {
        offering.unavailable_reason
        for instance_type in catalog.instance_types("default")
        if instance_type.name == "c5.large"
        for offering in instance_type.offerings
    }
    assert said == {"", "InsufficientInstanceCapacity"}


@pytest.mark.parametrize(("taken", "left"), [(0, 5), (2, 3), (5, 0), (7, 0)])
def test_what_was_launched_into_a_reservation_is_not_promised_again(taken: int, left: int) -> None:
    zone = builders.ZONES[0]
    requirements = from_labels(
        {labels.ZONE: zone, labels.CAPACITY_TYPE: labels.RESERVED, labels.RESERVATION_ID: "cr-1"}
    )
    instance_type = builders.instance_type("m5.large", 2, 8, on_demand=0.1)
    reserved = Offering(zone, labels.RESERVED, 1, True, requirements, reservation_capacity=5)
    catalog = Catalog({"": (msgspec.structs.replace(instance_type, offerings=(reserved,)),)})
    row = offering_health.record_reservation_launches(None, "cr-1", taken, now_ms=START - 1)
    (offering,) = sold_out(row, catalog=catalog).instance_types("default")[0].offerings
    assert (offering.reservation_capacity, offering.available) == (left, left > 0)


def test_launches_into_a_reservation_are_counted_until_its_description_knows_them() -> None:
    row = offering_health.record_reservation_launches(
        offering_health.record_reservation_launches(None, "cr-1", 2, now_ms=START),
        "cr-1",
        1,
        now_ms=START + MINUTE,
    )
    taken = {
        unavailable_offering.instance_type: unavailable_offering.reservation_launches
        for unavailable_offering in offering_health.to_snapshot(
            [row], now_ms=START + offering_health.RESERVATION_LAUNCH_MS
        )
    }
    assert taken == {"cr-1": 1}


def test_what_is_full_in_a_placement_group_is_full_for_its_classes_only() -> None:
    full = msgspec.structs.replace(EMPTY, zone=builders.ZONES[0], scope="pg-1")
    grouped = builders.nodeclass("grouped", placement_group=PlacementGroup("pg-1", "one", "cluster"))
    catalog = unavailable_offerings.apply_to_catalog(
        builders.small_catalog(),
        [builders.nodeclass(), grouped],
        offering_health.from_health_rows([full], now_ms=START),
    )

    def closed(name: str) -> int:
        return sum(
            bool(offering.unavailable_reason)
            for instance_type in catalog.instance_types(name)
            for offering in instance_type.offerings
        )

    assert (closed("default"), closed("grouped")) == (0, 1)


@pytest.mark.parametrize(
    ("scope", "closed"),
    [("", {"", "pg-1", "pg-1/1", "pg-1/2"}), ("pg-1", {"pg-1", "pg-1/1", "pg-1/2"}), ("pg-1/2", {"pg-1/2"})],
)
def test_a_partition_is_closed_with_its_group_and_not_the_other_way_round(scope: str, closed: set[str]) -> None:
    unavailable = offering_health.from_health_rows([msgspec.structs.replace(EMPTY, scope=scope)], now_ms=START)
    every = ("", "pg-1", "pg-1/1", "pg-1/2")
    assert {
        candidate for candidate in every if not unavailable.is_available("spot", "m5.large", "z1", scope=candidate)
    } == closed
