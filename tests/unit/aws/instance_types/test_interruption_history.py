"""What EC2's notices of a day make of a spot offering: dearer in choosing, less so with time, never unavailable."""

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from spotwright.aws.instance_types import interruption_history, offering_health
from spotwright.aws.instance_types.interruption_history import MEMORY_MS, NOTICES_KEPT
from spotwright.decisions.decide import decide
from spotwright.model import labels
from spotwright.model.ec2.fleet import OfferingHealth
from spotwright.model.ec2.instance_type import PICOUSD, Catalog
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.requirements import NodeSelectorRequirement, Operator
from spotwright.model.snapshot import OfferingHistory
from tests.unit.scheduling.builders import ZONES, instance, pod, pods, pool, snapshot

HOUR = 3_600_000
NOW = 100 * 24 * HOUR
A = instance("a.large", 2, 4, 0.10, spot=0.040)
B = instance("b.large", 2, 4, 0.10, spot=0.042)
CATALOG = Catalog({"": (A, B)})


def spot_pool() -> NodePool:
    return pool("default", NodeSelectorRequirement(labels.CAPACITY_TYPE, Operator.IN, ("spot",)))


def interrupted(*hours_ago: int) -> OfferingHealth:
    row: OfferingHealth | None = None
    for hours in sorted(hours_ago, reverse=True):
        mark = OfferingHealth(labels.SPOT, "a.large", "z1", 0, offering_health.INTERRUPTION_CODE, interruptions=1)
        row = offering_health.record_failure(row, mark, now_ms=NOW - hours * HOUR)
    assert row is not None
    return row


def history_of(*rows: OfferingHealth, now_ms: int = NOW) -> tuple[OfferingHistory, ...]:
    return interruption_history.to_histories(rows, now_ms=now_ms)


def often(instance_type: str = "a.large", percent: int = 12) -> tuple[OfferingHistory, ...]:
    return tuple(OfferingHistory(instance_type, zone, 3, 0, percent) for zone in ZONES)


def test_an_interruption_counts_six_percent_at_first_and_nothing_after_a_day() -> None:
    percents = [history_of(interrupted(0), now_ms=NOW + hours * HOUR) for hours in (0, 12, 23, 24)]
    assert [found[0].penalty_percent if found else None for found in percents] == [6, 3, 0, None]


def test_interruptions_add_up_and_recommendations_weigh_less() -> None:
    (three,) = history_of(interrupted(0, 4, 8))
    assert (three.interruptions, three.penalty_percent) == (3, 15)
    row = interruption_history.record_rebalance(interrupted(0), "a.large", "z1", now_ms=NOW)
    (both,) = history_of(row)
    assert (both.interruptions, both.rebalances, both.penalty_percent) == (1, 1, 8)


def test_a_recommendation_leaves_an_offering_available() -> None:
    row = interruption_history.record_rebalance(None, "a.large", "z1", now_ms=NOW)
    assert offering_health.from_health_rows([row], now_ms=NOW).is_available("spot", "a.large", "z1")
    again = interruption_history.record_rebalance(row, "a.large", "z1", now_ms=NOW + 60_000)
    assert again == row, "EC2 tells every instance of the pool"


def test_a_success_and_a_failure_keep_the_history() -> None:
    row = interrupted(2)
    failure = OfferingHealth(labels.SPOT, "a.large", "z1", NOW + 1, "InsufficientInstanceCapacity", failures=1)
    failed = offering_health.record_failure(row, failure, now_ms=NOW)
    assert failed is not None
    launched = offering_health.record_success(failed, now_ms=NOW + 1)
    assert launched is not None
    assert launched.interrupted_at_ms == row.interrupted_at_ms
    assert history_of(launched)[0].troubled_at_ms == NOW


def test_the_same_interruption_counts_once_though_the_offering_failed_in_between() -> None:
    """It is recorded when the replacement is planned, and again when the instance has ended."""
    failure = OfferingHealth(labels.SPOT, "a.large", "z1", NOW + 1, "InsufficientInstanceCapacity", failures=1)
    failed = offering_health.record_failure(interrupted(0), failure, now_ms=NOW + 3_000)
    again = OfferingHealth(labels.SPOT, "a.large", "z1", 0, offering_health.INTERRUPTION_CODE, interruptions=1)
    assert failed is not None
    assert offering_health.record_failure(failed, again, now_ms=NOW) is None
    assert offering_health.record_failure(failed, again, now_ms=NOW + 60_000) is not None


@given(st.lists(st.integers(0, 60 * 24 * HOUR), max_size=60))
def test_a_row_stays_small_and_a_penalty_is_bounded(pauses: list[int]) -> None:
    row, at = OfferingHealth(labels.SPOT, "a.large", "z1", 0, ""), NOW
    for pause in pauses:
        at += pause
        row = interruption_history.record_interruption(row, now_ms=at)
        row = interruption_history.record_rebalance(row, "a.large", "z1", now_ms=at)
    assert max(len(row.interrupted_at_ms), len(row.rebalanced_at_ms)) <= NOTICES_KEPT
    percents = [interruption_history.penalty_percent(row, now_ms=at + later) for later in range(0, MEMORY_MS + 1, HOUR)]
    assert percents == sorted(percents, reverse=True)
    assert percents[0] <= interruption_history.MAX_PERCENT
    assert percents[-1] == 0


def test_without_a_history_the_catalog_is_the_same_object() -> None:
    assert interruption_history.apply_to_catalog(CATALOG, ()) is CATALOG
    quiet = (OfferingHistory("a.large", "z1", 1, 0, 0, NOW),)
    assert interruption_history.apply_to_catalog(CATALOG, quiet) is CATALOG


def test_a_pool_that_is_often_interrupted_is_passed_over_for_a_slightly_dearer_one_and_the_plan_says_why() -> None:
    before = snapshot(pod("web", 1), pools=(spot_pool(),))
    (calm,) = decide(before, CATALOG).new_nodes
    assert calm.instance_types[0] == "a.large"
    (node,) = decide(msgspec.structs.replace(before, offering_histories=often()), CATALOG).new_nodes
    assert node.instance_types == ("b.large", "a.large"), "it may still be launched"
    assert node.price_picousd_per_hour == 0.042 * PICOUSD, "a price is what is paid"
    assert node.reason.endswith("a.large in z1 was interrupted 3 times in 24 h: counts as 12 % dearer")
    assert [other.price_picousd_per_hour for other in node.alternatives] == [0.04 * PICOUSD]


def test_a_pool_that_is_much_cheaper_is_used_all_the_same_and_the_plan_says_what_it_counts_as() -> None:
    cheap = Catalog({"": (instance("a.large", 2, 4, 0.10, spot=0.02), B)})
    waiting = snapshot(pod("web", 1), pools=(spot_pool(),), offering_histories=often())
    (node,) = decide(waiting, cheap).new_nodes
    assert node.instance_types[0] == "a.large"
    assert node.price_picousd_per_hour == 0.02 * PICOUSD
    assert "a.large in z1 was interrupted 3 times in 24 h: counts as 12 % dearer" in node.reason


def test_another_zone_of_the_same_type_counts_as_what_it_costs() -> None:
    waiting = snapshot(pod("web", 1), pools=(spot_pool(),), offering_histories=often()[:1])
    (node,) = decide(waiting, CATALOG).new_nodes
    assert node.instance_types[0] == "a.large"
    assert "interrupted" not in node.reason


@given(st.integers(1, 40), st.lists(st.tuples(st.sampled_from(("a.large", "b.large")), st.integers(1, 30)), max_size=2))
def test_no_plan_costs_less_than_its_bound_whatever_offerings_count_as(
    count: int, penalties: list[tuple[str, int]]
) -> None:
    histories = tuple(history for name, percent in dict(penalties).items() for history in often(name, percent))
    larger = instance("c.xlarge", 4, 8, 0.20, spot=0.081)
    waiting = snapshot(*pods(count, cpu=0.7), pools=(spot_pool(),), offering_histories=histories)
    plan = decide(waiting, Catalog({"": (A, B, larger)}))
    assert not plan.unschedulable_pods
    assert plan.lower_bound_picousd_per_hour <= plan.price_picousd_per_hour
