"""When pods that come and go begin consolidateAfter anew."""

from datetime import timedelta

import msgspec
import pytest

from spotwright.model.karpenter.consolidation_timer import POD_EVENT_DEDUPLICATION, begins_anew
from tests.unit.disruption.builders import NOW, claim


@pytest.mark.parametrize(
    ("seconds_ago", "is_anew"),
    [(0, False), (9, False), (10, True), (3600, True), (-5, False), (-3600, True)],
)
def test_pod_events_within_ten_seconds_of_each_other_count_once(seconds_ago: int, is_anew: bool) -> None:
    """One of a time to come would otherwise keep all others from counting until then."""
    assert timedelta(seconds=10) == POD_EVENT_DEDUPLICATION
    seen = msgspec.structs.replace(claim("a"), last_pod_event_time=NOW - timedelta(seconds=seconds_ago))
    assert begins_anew(seen, NOW) == is_anew
    assert begins_anew(msgspec.structs.replace(seen, last_pod_event_time=None), NOW)
