"""Few pods, or many equal ones: no cheaper nodes exist."""

from tests.unit.scheduling.builders import instance, planned, pods, pool, shown

THREE = instance("three", 3, 6, 0.29)
FOUR = instance("four", 4, 8, 0.40)
SEVEN = instance("seven", 7, 14, 0.66)


def test_equal_pods_get_the_nodes_that_cost_least_together() -> None:
    """Seven hold most for their price; two of them and a four for the rest would be dearer."""
    assert shown(planned(*pods(16, cpu=1, memory="1Gi"), types=(THREE, FOUR, SEVEN))) == [
        "seven x 7",
        "three x 3",
        "three x 3",
        "three x 3",
    ]


def test_pods_of_two_sizes_are_shared_at_the_least_cost() -> None:
    plan = planned(*pods(2, "a", 2, "1Gi"), *pods(3, "b", 1, "1Gi"), types=(THREE, FOUR, SEVEN))
    assert shown(plan) == ["seven x 5"]


def test_a_pod_larger_than_nodes_usually_are_gets_one() -> None:
    huge = instance("huge", 128, 256, 6.0)
    assert shown(planned(*pods(2, cpu=120, memory="1Gi"), types=(FOUR, huge))) == ["huge x 1", "huge x 1"]


def test_limits_are_kept() -> None:
    plan = planned(*pods(4, cpu=3, memory="1Gi"), pools=(pool(limits={"cpu": "6"}),), types=(THREE, FOUR, SEVEN))
    assert shown(plan) == ["three x 1", "three x 1"]
    assert len(plan.unschedulable_pods) == 2
