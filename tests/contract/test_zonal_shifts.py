"""Zones that a cluster's traffic is shifted away from."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import urllib3

from spotwright.adapters.aws.zonal_shifts import ZonalShifts
from tests.contract.conftest import REGION, LocalAws
from tests.unit.aws.samples import CLUSTER


def test_a_zonal_shift_names_the_zone_until_it_ends(local_aws: LocalAws) -> None:
    shifts = ZonalShifts(local_aws.client("arc-zonal-shift"), f"arn:aws:eks:{REGION}:123456789012:cluster/{CLUSTER}")

    def shift(**body: Any) -> None:
        answer = urllib3.request("POST", f"{local_aws.endpoint}/_local/shift", body=json.dumps(body))
        assert answer.status == 200, answer.data

    now = datetime.now(UTC)
    assert shifts.shifted_zone_ids(now) == frozenset()
    shift(zones=["apne2-az1", "apne2-az3"])
    assert shifts.shifted_zone_ids(now) == {"apne2-az1", "apne2-az3"}
    assert shifts.shifted_zone_ids(now + timedelta(hours=2)) == frozenset()
    shift(zones=[])
    assert shifts.shifted_zone_ids(now) == frozenset()
