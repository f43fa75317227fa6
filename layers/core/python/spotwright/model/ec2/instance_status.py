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


class InstanceStatus(msgspec.Struct, frozen=True):
    """An instance of which EC2 says anything but that it is well."""

    instance_id: str
    impairments: tuple[Impairment, ...] = ()
    events: tuple[ScheduledEvent, ...] = ()
