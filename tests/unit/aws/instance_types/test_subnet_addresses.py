"""What a subnet has left, after a description and launches."""

from spotwright.aws.instance_types import offering_health, subnet_addresses
from spotwright.aws.instance_types.subnet_addresses import record_description, record_launch
from spotwright.aws.instance_types.unavailable_offerings import FreeAddresses
from spotwright.model.ec2.fleet import OfferingHealth

START = 10**12
MINUTE = 60_000


def described(free: int, *, at: int = START, before: OfferingHealth | None = None) -> OfferingHealth:
    row = record_description(before, "subnet-a", "z1", free, now_ms=at)
    assert row is not None
    return row


def launched(row: OfferingHealth, name: str, instances: int, addresses: int, at: int) -> OfferingHealth:
    after = record_launch(row, name, instances=instances, addresses=addresses, now_ms=at)
    assert after is not None
    return after


def left(row: OfferingHealth, at: int) -> FreeAddresses | None:
    return subnet_addresses.free_addresses(row, now_ms=at)


def test_launches_are_subtracted() -> None:
    row = launched(launched(described(100), "a", 2, 20, START), "b", 1, 10, START + MINUTE)
    assert left(row, START + MINUTE) == FreeAddresses(certain=97, expected=70)


def test_a_launch_counts_once_however_often_it_is_recorded() -> None:
    row = launched(launched(described(100), "a", 0, 40, START), "a", 1, 10, START + 1000)
    assert left(row, START + 1000) == FreeAddresses(certain=99, expected=90)
    assert record_launch(row, "a", instances=1, addresses=10, now_ms=START + 1000) is None


def test_a_launch_that_took_nothing_gives_back_what_it_asked_for() -> None:
    row = launched(launched(described(100), "a", 0, 40, START), "a", 0, 0, START + 1000)
    assert left(row, START + 1000) == FreeAddresses(100, 100)


def test_a_description_holds_instances_at_once_and_their_pods_later() -> None:
    row = launched(described(100), "a", 2, 20, START)
    after = described(98, at=START + MINUTE, before=row)
    assert left(after, START + MINUTE) == FreeAddresses(certain=98, expected=78)
    much_later = described(80, at=START + 3 * MINUTE, before=after)
    assert left(much_later, START + 3 * MINUTE) == FreeAddresses(80, 80)
    assert much_later.subnet is not None
    assert not much_later.subnet.launches


def test_a_request_without_an_answer_is_forgotten() -> None:
    row = launched(described(100), "a", 0, 40, START)
    later = launched(row, "b", 1, 1, START + 11 * MINUTE)
    assert left(later, START + 11 * MINUTE) == FreeAddresses(99, 99)


def test_a_large_subnet_is_not_counted() -> None:
    assert record_description(None, "subnet-a", "z1", subnet_addresses.FEW_ADDRESSES, now_ms=START) is None
    grown = described(subnet_addresses.FEW_ADDRESSES, before=described(100))
    assert left(grown, START) is None
    assert record_launch(grown, "a", instances=1, addresses=1, now_ms=START) is None


def test_a_failure_and_a_description_stand_in_one_row() -> None:
    failure = OfferingHealth("subnet", "subnet-a", "z1", START + 1, "InsufficientFreeAddressesInSubnet", failures=1)
    failed = offering_health.record_failure(described(5), failure, now_ms=START)
    assert failed is not None
    both = described(3, at=START + 1000, before=failed)
    assert (both.failures, both.code, left(both, START + 1000)) == (1, failure.code, FreeAddresses(3, 3))
    assert not offering_health.from_health_rows([both], now_ms=START + 1000).has_free_addresses("subnet-a", "z1")


def test_a_subnet_without_addresses_is_unavailable_only_while_that_is_certain() -> None:
    row = launched(described(2), "a", 1, 30, START)
    known = offering_health.from_health_rows([row], now_ms=START)
    assert known.has_free_addresses("subnet-a", "z1")
    assert not known.expects_free_addresses("subnet-a")
    full = launched(row, "b", 1, 30, START)
    assert not offering_health.from_health_rows([full], now_ms=START).has_free_addresses("subnet-a", "z1")
    late = START + subnet_addresses.DESCRIPTION_MS + 1
    assert offering_health.from_health_rows([full], now_ms=late).has_free_addresses("subnet-a", "z1")
