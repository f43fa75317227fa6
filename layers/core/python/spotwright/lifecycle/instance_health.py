"""Which instances are in trouble by EC2's status checks, and for how long that is tolerated.

Source: Karpenter's AWS provider v1.14 ``pkg/providers/instancestatus``. A failing check of volumes is reported and
nothing else: it does not say whether the volume is the node's or a pod's.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from spotwright.model.ec2.instance_status import InstanceStatus, StatusCheck
from spotwright.model.karpenter.repair_policies import UnhealthyCondition

TOLERATION: Final = timedelta(seconds=120)
REPAIRED_CHECKS: Final = (StatusCheck.SYSTEM, StatusCheck.INSTANCE)
_SOURCE: Final = "EC2 status check"


def failing_check(status: InstanceStatus) -> UnhealthyCondition | None:
    """The check of the host or the machine that fails longest; None = neither does."""
    found = [
        UnhealthyCondition(impairment.check.value, "impaired", impairment.since, TOLERATION, _SOURCE)
        for impairment in status.impairments
        if impairment.check in REPAIRED_CHECKS
    ]
    return min(found, key=lambda condition: (condition.since, condition.type), default=None)


def failing_checks(statuses: Iterable[InstanceStatus]) -> dict[str, UnhealthyCondition]:
    """By instance id."""
    return {status.instance_id: condition for status in statuses if (condition := failing_check(status)) is not None}


def volumes_impaired_since(status: InstanceStatus, now: datetime) -> datetime | None:
    """Since when volumes are impaired, if it is longer than is tolerated."""
    times = [each.since for each in status.impairments if each.check is StatusCheck.ATTACHED_EBS]
    return min((since for since in times if now - since >= TOLERATION), default=None)
