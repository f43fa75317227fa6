"""EC2's answers about the health of instances, into the model."""

from collections.abc import Iterable, Iterator
from datetime import UTC
from typing import TYPE_CHECKING, Any, Final

from spotwright.model.ec2.instance_status import Impairment, InstanceStatus, ScheduledEvent, StatusCheck
from spotwright.model.kubernetes.meta import bounded_time

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceStatusTypeDef

EVENT_CODES: Final = ("instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop")
# An event that is over stays in the answer for a week, with one of these before its description.
# https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/monitoring-instances-status-check_sched.html
_OVER: Final = ("[Completed]", "[Canceled]")


def decode_instance_status(status: "InstanceStatusTypeDef") -> InstanceStatus:
    """Checks that do not say since when they fail are left out: they prove nothing."""
    return InstanceStatus(
        status["InstanceId"], tuple(_impairments(status)), tuple(_scheduled_events(status.get("Events") or ()))
    )


def _impairments(status: Any) -> Iterator[Impairment]:
    for check in StatusCheck:
        summary = status.get(check.value) or {}
        times = [
            bounded_time(detail["ImpairedSince"]).astimezone(UTC)
            for detail in summary.get("Details") or ()
            if detail.get("Status") == "failed" and detail.get("ImpairedSince")
        ]
        if times and summary.get("Status") == "impaired":
            yield Impairment(check, min(times))


def _scheduled_events(events: Iterable[Any]) -> Iterator[ScheduledEvent]:
    for event in events:
        is_over = str(event.get("Description") or "").startswith(_OVER)
        if event.get("Code") in EVENT_CODES and not is_over:
            not_before = event.get("NotBefore")
            yield ScheduledEvent(event["Code"], bounded_time(not_before).astimezone(UTC) if not_before else None)
