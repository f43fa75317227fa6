"""What EC2 says of the health of an instance: its status checks, and what is scheduled for it.

Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceStatus.html.
"""

from datetime import datetime
from enum import StrEnum

import msgspec


class StatusCheck(StrEnum):
    """SYSTEM: the host; INSTANCE: the machine on it; ATTACHED_EBS: its volumes, those of pods among them."""

    SYSTEM = "SystemStatus"
    INSTANCE = "InstanceStatus"
    ATTACHED_EBS = "AttachedEbsStatus"


class Impairment(msgspec.Struct, frozen=True):
    """A check that fails. ``since``: aware UTC."""

    check: StatusCheck
    since: datetime


class ScheduledEvent(msgspec.Struct, frozen=True):
    """Something that EC2 will do to an instance. ``not_before``: None = not said."""

    code: str
    not_before: datetime | None = None

    @property
    def deadline_ms(self) -> int:
        """When EC2 acts, in epoch milliseconds; 0 = it does not say when, so at any time."""
        return int(self.not_before.timestamp() * 1000) if self.not_before else 0


class InstanceStatus(msgspec.Struct, frozen=True):
    """An instance of which EC2 says anything but that it is well."""

    instance_id: str
    impairments: tuple[Impairment, ...] = ()
    events: tuple[ScheduledEvent, ...] = ()

    @property
    def earliest_event(self) -> ScheduledEvent | None:
        """What EC2 does to the instance first; None = nothing."""
        return min(self.events, key=lambda event: (event.deadline_ms, event.code), default=None)
