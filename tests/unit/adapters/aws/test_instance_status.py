"""EC2's answers about the health of instances."""

from datetime import UTC, datetime
from typing import Any

import pytest

from spotwright.adapters.aws.ec2.codecs.instance_status import decode_instance_status
from spotwright.model.ec2.instance_status import Impairment, StatusCheck
from spotwright.model.kubernetes.meta import EARLIEST_TIME, LATEST_TIME

SINCE = datetime(2026, 1, 1, 12, tzinfo=UTC)


def impairments(status: str, detail: str, **more: Any) -> tuple[Impairment, ...]:
    summary = {"Status": status, "Details": [{"Name": "reachability", "Status": detail, "ImpairedSince": SINCE} | more]}
    answer: Any = {"InstanceId": "i-1", "SystemStatus": summary}
    return decode_instance_status(answer).impairments


def test_a_check_that_fails_says_since_when() -> None:
    assert impairments("impaired", "failed") == (Impairment(StatusCheck.SYSTEM, SINCE),)


@pytest.mark.parametrize(
    ("status", "detail"),
    [("insufficient-data", "failed"), ("initializing", "failed"), ("ok", "failed"), ("impaired", "passed")],
)
def test_a_time_from_before_makes_nobody_impaired(status: str, detail: str) -> None:
    assert impairments(status, detail) == ()


@pytest.mark.parametrize("at", [datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)])
def test_times_that_nothing_could_be_added_to_are_the_earliest_and_the_latest(at: datetime) -> None:
    """They may be those of an instance of somebody else, which must not keep a cluster from being repaired."""
    (impairment,) = impairments("impaired", "failed", ImpairedSince=at)
    assert impairment.since in (EARLIEST_TIME, LATEST_TIME)
    event = {"Code": "instance-stop", "NotBefore": at}
    answer: Any = {"InstanceId": "i-1", "Events": [event]}
    (scheduled,) = decode_instance_status(answer).events
    assert scheduled.not_before in (EARLIEST_TIME, LATEST_TIME)


def test_a_check_that_does_not_say_since_when_proves_nothing() -> None:
    assert impairments("impaired", "failed", ImpairedSince=None) == ()
