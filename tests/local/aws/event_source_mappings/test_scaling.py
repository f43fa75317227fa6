"""Batches at once: five, more for as long as they do not suffice, never more than MaximumConcurrency."""

import time
from types import SimpleNamespace
from typing import Any

import pytest

from local.aws.event_source_mappings.pollers import Poller
from local.aws.event_source_mappings.scaling import Scaling


def test_begins_with_five_batches() -> None:
    assert Scaling().batches(0, None, now=100.0) == 5


@pytest.mark.parametrize(("seconds", "batches"), [(0.9, 5), (1.0, 10), (2.5, 15), (60.0, 305), (600.0, 1250)])
def test_grows_by_three_hundred_a_minute_while_all_run(seconds: float, batches: int) -> None:
    scaling = Scaling()
    scaling.batches(5, None, now=100.0)
    assert scaling.batches(5, None, now=100.0 + seconds) == batches


@pytest.mark.parametrize(("maximum", "batches"), [(2, 2), (5, 5), (7, 7), (100, 10)])
def test_maximum_concurrency_bounds_growth(maximum: int, batches: int) -> None:
    scaling = Scaling()
    scaling.batches(5, maximum, now=100.0)
    assert scaling.batches(5, maximum, now=101.0) == batches


def test_growth_begins_anew_when_traffic_was_low() -> None:
    scaling = Scaling()
    scaling.batches(5, None, now=100.0)
    assert scaling.batches(4, None, now=110.0) == 5
    assert scaling.batches(5, None, now=111.0) == 5
    assert scaling.batches(5, None, now=112.0) == 10


def test_a_batch_that_waits_for_growth_starts_as_soon_as_there_is_room() -> None:
    """Nothing wakes its poller: no batch has ended."""
    nothing: Any = SimpleNamespace(scaling_config=None)
    poller = Poller(nothing, nothing, _running=5)
    assert not poller._may_start()
    time.sleep(0.8)
    began = time.monotonic()
    assert poller._slot_free()
    assert time.monotonic() - began < 0.9
