"""EC2's answers about the health of instances."""

from datetime import UTC, datetime
from typing import Any

import pytest

from spotwright.adapters.aws.ec2.codecs.instance_status import decode_instance_status
from spotwright.model.ec2.instance_status import Impairment, StatusCheck

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


def test_a_check_that_does_not_say_since_when_proves_nothing() -> None:
    assert impairments("impaired", "failed", ImpairedSince=None) == ()
