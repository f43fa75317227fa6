"""What a CreateFleet's errors mean: which offerings to leave alone for a while, and why nothing came.

Source: the CreateFleet and RunInstances error codes of the EC2 API reference; the order of reasons is Karpenter's.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from spotwright.aws.health import SUBNET
from spotwright.model import labels
from spotwright.model.fleet import FleetError, OfferingHealth
from spotwright.model.instancetype import ANY

# How long an empty offering is left alone, milliseconds. Karpenter's figure.
EMPTY_MS: Final = 3 * 60 * 1000

NO_ADDRESSES: Final = "InsufficientFreeAddressesInSubnet"
NO_SPOT_ROLE: Final = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
CAPACITY_CODES: Final = frozenset(
    {
        "InsufficientInstanceCapacity",
        "MaxSpotInstanceCountExceeded",
        "VcpuLimitExceeded",
        "UnfulfillableCapacity",
        "Unsupported",
        NO_ADDRESSES,
        "MaxFleetCountExceeded",
        "ReservationCapacityExceeded",
    }
)
# Codes after which the same launch template would have to be made again.
TEMPLATE_CODES: Final = frozenset(
    {
        "InvalidLaunchTemplateName.NotFoundException",
        "InvalidLaunchTemplateId.NotFound",
        "InvalidLaunchTemplateId.VersionNotFound",
    }
)
# Reason and the texts, any of which in code or message means it; the first match counts.
_REASONS: Final[Sequence[tuple[str, tuple[str, ...]]]] = (
    ("SpotSLRCreationFailed", (NO_SPOT_ROLE,)),
    ("AMIAuthorizationFailure", ("Not authorized for images",)),
    ("Unauthorized", ("UnauthorizedOperation", "not authorized to perform", "permissions boundary", "explicit deny")),
    ("SecurityGroupSubnetVPCMismatch", ("belong to different networks",)),
    ("InstanceProfileNameInvalid", ("Invalid IAM Instance Profile",)),
    ("LaunchTemplateNotFound", tuple(sorted(TEMPLATE_CODES))),
    ("UserDataSizeLimitExceeded", ("User data is limited to",)),
    ("AMINotFound", ("InvalidAMIID.NotFound",)),
    ("InvalidAMIID", ("InvalidAMIID",)),
    ("RequestLimitExceeded", ("RequestLimitExceeded",)),
    ("InternalError", ("InternalError", "InternalFailure")),
    ("FreeTierIneligible", ("not eligible for Free Tier",)),
    ("FleetQuotaExceeded", ("MaxFleetCountExceeded",)),
    ("AccountPendingVerification", ("PendingVerification",)),
    ("SpotQuotaExceeded", ("MaxSpotInstanceCountExceeded",)),
    ("VCPULimitExceeded", ("VcpuLimitExceeded",)),
    (NO_ADDRESSES, (NO_ADDRESSES,)),
)


class Outcome(msgspec.Struct, frozen=True):
    """Why a launch gave no instance.

    ``insufficient``: EC2 has none of what was asked for; other offerings may be tried at once.
    ``reason``: one CamelCase word; ``message``: a sentence with EC2's own words.
    """

    insufficient: bool
    reason: str
    message: str


def marks(errors: Iterable[FleetError], *, now_ms: int) -> tuple[OfferingHealth, ...]:
    """The offerings and subnets to leave alone until three minutes from ``now_ms``; sorted, each once."""
    found = {mark for error in errors for mark in _marks(error, now_ms + EMPTY_MS)}
    return tuple(sorted(found, key=lambda one: (one.capacity_type, one.instance_type, one.zone, one.code)))


def _marks(error: FleetError, until: int) -> Iterator[OfferingHealth]:
    if error.code == NO_SPOT_ROLE:
        yield OfferingHealth(labels.SPOT, ANY, ANY, until, error.code)
    elif error.code in CAPACITY_CODES and error.instance_type and error.zone:
        capacity_type = error.capacity_type or labels.ON_DEMAND
        yield OfferingHealth(capacity_type, error.instance_type, error.zone, until, error.code)
        if error.code == NO_ADDRESSES and error.subnet_id:
            yield OfferingHealth(SUBNET, error.subnet_id, error.zone, until, error.code)


def outcome(errors: Sequence[FleetError]) -> Outcome:
    """Why there is no instance; with no error at all EC2 was silent, which counts as no capacity."""
    if all(error.code in CAPACITY_CODES or error.code == NO_SPOT_ROLE for error in errors):
        return Outcome(True, "InsufficientCapacity", _summary(errors))
    other = next(error for error in errors if error.code not in CAPACITY_CODES)
    return Outcome(False, reason(other), f"{other.code}: {other.message}")


def reason(error: FleetError) -> str:
    """One word for an error; ``LaunchFailed`` for what is not in the table."""
    said = f"{error.code} {error.message}"
    return next((name for name, texts in _REASONS if any(text in said for text in texts)), "LaunchFailed")


def _summary(errors: Sequence[FleetError]) -> str:
    """Codes with the number of offerings, e.g. ``InsufficientInstanceCapacity for 3 offerings``."""
    if not errors:
        return "EC2 returned neither instances nor errors"
    codes = sorted({error.code for error in errors})
    counted = ((code, sum(error.code == code for error in errors)) for code in codes)
    return ", ".join(f"{code} for {number} offering{'s' if number > 1 else ''}" for code, number in counted)
