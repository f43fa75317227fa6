"""Application Recovery Controller: zonal shifts of the cluster.

`POST /_local/shift {"zones": ["apne2-az1"], "seconds": 600}` on the control API replaces them (by zone id).
"""

import time
from collections.abc import Mapping
from typing import Any

from local.aws.calls.request import AwsRequest, AwsResponse
from local.aws.emulator import Emulator

_SECONDS = 3600


class ZonalShifts:
    """Zone id -> when its shift ends, in seconds since the epoch."""

    def __init__(self, _emulator: Emulator) -> None:
        self.end_by_zone: dict[str, float] = {}


def add(emulator: Emulator) -> None:
    emulator.handle("arc-zonal-shift", "GetManagedResource", lambda request: _managed_resource(emulator, request))
    emulator.route("POST", "/_local/shift", lambda body, _: _shift(emulator, body))


def _shift(emulator: Emulator, body: Mapping[str, Any]) -> dict[str, float]:
    until = time.time() + float(body.get("seconds", _SECONDS))
    shifts = emulator.component(ZonalShifts)
    shifts.end_by_zone = {str(zone): until for zone in body["zones"]}
    return shifts.end_by_zone


def _managed_resource(emulator: Emulator, request: AwsRequest) -> AwsResponse:
    """Shifts that have ended stay listed for a while, as not applied."""
    arn, now = request.params["resourceIdentifier"], time.time()
    shifts = [
        {
            "appliedStatus": "APPLIED" if until > now else "NOT_APPLIED",
            "zonalShiftId": f"shift-{zone}",
            "resourceIdentifier": arn,
            "awayFrom": zone,
            "expiryTime": until,
            "startTime": now,
            "comment": "",
        }
        for zone, until in sorted(emulator.component(ZonalShifts).end_by_zone.items())
    ]
    return request.reply(
        {"arn": arn, "name": emulator.cluster, "appliedWeights": {}, "zonalShifts": shifts, "autoshifts": []}
    )
