"""Orphans: few go, many stay, and whatever a person acknowledged goes; what is used is none."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spotwright.lifecycle.orphans import ACKNOWLEDGED, MAXIMUM_ORPHANS, ORPHAN_AGE, find_orphans, is_acknowledged
from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance

NOW = datetime(2026, 7, 1, tzinfo=UTC)
LAUNCH = "launch-1"


def instance(
    number: int, *, acknowledged: bool = False, state: str = "running", age: timedelta = ORPHAN_AGE
) -> Instance:
    tags = {labels.ORPHAN_TAG: ACKNOWLEDGED} if acknowledged else {}
    return Instance(f"i-{number}", "m5.large", "z", "spot", state, launch_time=NOW - age, tags=tags)


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=60))
def test_the_unused_are_split_by_their_number_and_what_a_person_said(kinds: list[tuple[bool, bool]]) -> None:
    """(used, acknowledged) of each instance."""
    instances = [instance(number, acknowledged=acknowledged) for number, (_, acknowledged) in enumerate(kinds)]
    used = {f"i-{number}" for number, (is_used, _) in enumerate(kinds) if is_used}
    found = find_orphans(instances, assigned=used, launching=(), now=NOW)
    everyone = [*found.to_terminate, *found.refused]
    assert sorted(one.id for one in everyone) == sorted(one.id for one in instances if one.id not in used)
    assert not any(map(is_acknowledged, found.refused)), "a person's word counts"
    unsaid = [one for one in everyone if not is_acknowledged(one)]
    is_many = len(unsaid) > max(MAXIMUM_ORPHANS, len(instances) // 10)
    assert list(found.refused) == (unsaid if is_many else [])


@pytest.mark.parametrize("acknowledged", [False, True])
@pytest.mark.parametrize("state", ["shutting-down", "terminated"])
def test_what_ends_or_is_young_or_belongs_to_a_launch_is_none(acknowledged: bool, state: str) -> None:
    of_launch = instance(3, acknowledged=acknowledged)
    of_launch.tags[labels.LAUNCH_TAG] = LAUNCH
    instances = [
        instance(1, acknowledged=acknowledged, state=state),
        instance(2, acknowledged=acknowledged, age=ORPHAN_AGE - timedelta(seconds=1)),
        of_launch,
    ]
    found = find_orphans(instances, assigned=(), launching={LAUNCH}, now=NOW)
    assert (found.to_terminate, found.refused) == ((), ())
    assert find_orphans([of_launch], assigned=(), launching=(), now=NOW).to_terminate == (of_launch,)
