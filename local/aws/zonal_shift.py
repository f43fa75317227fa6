"""Application Recovery Controller: zonal shifts of the cluster.

`POST /_local/shift {"zones": ["apne2-az1"], "seconds": 600}` on the control API replaces them (by zone id).
"""

import time
from collections.abc import Mapping
from typing import Any

from local.aws.request import AwsRequest, AwsResponse
from local.aws.world import World

_SECONDS = 3600


class Shifts:
    """Zone id -> when its shift ends, in seconds since the epoch."""

    def __init__(self, _world: World) -> None:
        self.until: dict[str, float] = {}


def add(world: World) -> None:
    world.front("arc-zonal-shift", "GetManagedResource", lambda request: _managed_resource(world, request))
    world.route("POST", "/_local/shift", lambda body, _: _shift(world, body))


def _shift(world: World, body: Mapping[str, Any]) -> dict[str, float]:
    until = time.time() + float(body.get("seconds", _SECONDS))
    shifts = world.part(Shifts)
    shifts.until = {str(zone): until for zone in body["zones"]}
    return shifts.until


def _managed_resource(world: World, request: AwsRequest) -> AwsResponse:
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
        for zone, until in sorted(world.part(Shifts).until.items())
    ]
    return request.reply(
        {"arn": arn, "name": world.cluster, "appliedWeights": {}, "zonalShifts": shifts, "autoshifts": []}
    )
