"""What every Kubernetes object has, and conditions."""

from datetime import UTC, datetime
from typing import Annotated, Final

import msgspec

#: A time with its zone: one without is no time that another could be compared with.
type ZonedTime = Annotated[datetime, msgspec.Meta(tz=True)]

# The longest duration and the times that Go holds in nanoseconds, about 292 years. No sum of a time and a few durations
# within them is out of a datetime's range, so that one object with an extreme value stops no decision about others.
LONGEST_DURATION_SECONDS: Final = (2**63 - 1) // 10**9
EARLIEST_TIME: Final = datetime(1678, 1, 1, tzinfo=UTC)
LATEST_TIME: Final = datetime(2262, 1, 1, tzinfo=UTC)


# The longest message of a condition that the API server takes, as the CRDs say. An object may have thousands of wrong
# values.
MESSAGE_LENGTH: Final = 32768


class ObjectMeta(msgspec.Struct, frozen=True):
    """Metadata of an object. Times are aware UTC; ``deletion_timestamp`` None = not being deleted."""

    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0
    resource_version: str = ""
    creation_timestamp: ZonedTime | None = msgspec.field(default=None, name="created")
    deletion_timestamp: ZonedTime | None = msgspec.field(default=None, name="deleting")
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    finalizers: tuple[str, ...] = ()
    owner_references: tuple["OwnerReference", ...] = msgspec.field(default=(), name="owners")

    @property
    def key(self) -> str:
        """``namespace/name``, or the name of a cluster-scoped object."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    def without_resource_version(self) -> "ObjectMeta":
        """For a patch that applies whatever else was changed meanwhile."""
        return msgspec.structs.replace(self, resource_version="")


class OwnerReference(msgspec.Struct, frozen=True):
    kind: str
    name: str
    uid: str = ""
    api_version: str = ""


class Condition(msgspec.Struct, frozen=True):
    """A status condition; ``status`` is True, False or Unknown as text."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: ZonedTime | None = msgspec.field(default=None, name="since")
    observed_generation: int = 0


def format_time(at: datetime) -> str:
    """The time in UTC, as Kubernetes writes it: ``2026-01-31T12:00:00Z``. ``at`` is aware."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def bounded_time(at: datetime) -> datetime:
    """The time itself, or the one of EARLIEST_TIME and LATEST_TIME that it is beyond. ``at`` is aware."""
    return at if EARLIEST_TIME <= at <= LATEST_TIME else min(max(at, EARLIEST_TIME), LATEST_TIME)


def parse_time(text: str) -> datetime | None:
    """An RFC 3339 time from EARLIEST_TIME to LATEST_TIME as aware UTC; None for any other text, since anybody may write
    an annotation."""
    try:
        at = datetime.fromisoformat(text)
        return at.astimezone(UTC) if at.tzinfo and EARLIEST_TIME <= at <= LATEST_TIME else None
    except (OverflowError, ValueError):
        return None


def fit_message(message: str) -> str:
    """The message of a condition, cut where it is too long for the API server."""
    return message if len(message) <= MESSAGE_LENGTH else f"{message[: MESSAGE_LENGTH - 3]}..."


def find_condition(conditions: tuple[Condition, ...], kind: str) -> Condition | None:
    return next((condition for condition in conditions if condition.type == kind), None)


def is_condition_true(conditions: tuple[Condition, ...], kind: str) -> bool:
    condition = find_condition(conditions, kind)
    return condition is not None and condition.status == "True"
