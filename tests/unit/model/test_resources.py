"""Amounts of resources: sums, and what fits."""

import pytest

from spotwright.model import resources


@pytest.mark.parametrize(
    ("wanted", "available", "fits"),
    [
        ({"cpu": 100}, {"cpu": 100}, True),
        ({"cpu": 101}, {"cpu": 100}, False),
        ({"gpu": 1}, {"cpu": 100}, False),
        ({"gpu": 0}, {"cpu": 100}, True),
        ({"cpu": 1}, {"cpu": 100, "memory": -1}, False),
        ({}, {}, True),
    ],
)
def test_every_amount_must_be_there_and_an_overdrawn_node_takes_nothing(
    wanted: dict[str, int], available: dict[str, int], fits: bool
) -> None:
    assert resources.fits(wanted, available) is fits


def test_a_sum_has_every_name() -> None:
    assert resources.add({"cpu": 1}, {"cpu": 2, "pods": 1}) == {"cpu": 3, "pods": 1}


def test_a_difference_may_be_negative() -> None:
    assert resources.subtract({"cpu": 1}, {"cpu": 2, "gpu": 1}) == {"cpu": -1, "gpu": -1}


def test_the_maximum_is_taken_name_by_name() -> None:
    assert resources.maximum([{"cpu": 1, "memory": 5}, {"cpu": 2}]) == {"cpu": 2, "memory": 5}
