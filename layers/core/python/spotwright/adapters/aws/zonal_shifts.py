"""Zones that a cluster's traffic is shifted away from: Amazon Application Recovery Controller (ZonalShiftPort).

Source: https://docs.aws.amazon.com/arc-zonal-shift/latest/api/API_GetManagedResource.html. A shift names the id of a
zone.
"""

from datetime import datetime
from typing import Any, Final

from spotwright.adapters.aws.errors import translate_errors

_APPLIED: Final = "APPLIED"


class ZonalShifts:
    """Zonal shifts that people started, and those that AWS started (autoshift)."""

    def __init__(self, client: Any, cluster_arn: str) -> None:
        self._client, self._arn = client, cluster_arn

    def shifted_zone_ids(self, now: datetime) -> frozenset[str]:
        with translate_errors("GetManagedResource"):
            resource = self._client.get_managed_resource(resourceIdentifier=self._arn)
        started = [zonal_shift for zonal_shift in resource.get("zonalShifts", ()) if zonal_shift["expiryTime"] > now]
        shifts = (*started, *resource.get("autoshifts", ()))
        return frozenset(shift["awayFrom"] for shift in shifts if shift["appliedStatus"] == _APPLIED)
