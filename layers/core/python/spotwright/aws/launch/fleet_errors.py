"""What a CreateFleet's errors mean: which offerings to leave alone for a while, and why nothing came.

Every code that is not named here is ``LaunchFailed``: said on the claims, counted, and tried again.

Source: the CreateFleet and RunInstances error codes of the EC2 API reference; the order of reasons is Karpenter's.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from spotwright.aws.instance_types.unavailable_offerings import QUOTA_PREFIX, SUBNET_KIND, UNAVAILABLE_MS, quota_family
from spotwright.model import labels
from spotwright.model.ec2.fleet import FleetError, OfferingHealth
from spotwright.model.ec2.instance_type import WILDCARD

NO_ADDRESSES: Final = "InsufficientFreeAddressesInSubnet"
NO_SPOT_ROLE: Final = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
RESERVATION_FULL: Final = "ReservationCapacityExceeded"
# A cluster placement group is in one zone: that of the instances it has.
PLACEMENT_GROUP_IN_USE: Final = "InvalidPlacementGroup.InUse"
# How EC2 says that a spread placement group has its seven instances in a zone; the code is one of capacity.
SPREAD_GROUP_LIMIT: Final = "limit of instances in this spread placement group"
# A quota of the account is reached: types of the same family and at least this size would be refused as well.
QUOTA_CODES: Final = frozenset({"MaxSpotInstanceCountExceeded", "VcpuLimitExceeded"})
CAPACITY_CODES: Final = frozenset(
    {
        "InsufficientInstanceCapacity",
        "MaxSpotInstanceCountExceeded",
        "VcpuLimitExceeded",
        "UnfulfillableCapacity",
        "Unsupported",
        NO_ADDRESSES,
        "MaxFleetCountExceeded",
        RESERVATION_FULL,
        PLACEMENT_GROUP_IN_USE,
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
THROTTLING_CODES: Final = frozenset({"RequestLimitExceeded", "Throttling", "ThrottlingException"})
LAUNCH_TEMPLATE_NOT_FOUND: Final = "LaunchTemplateNotFound"
UNKNOWN_FAILURE: Final = "LaunchFailed"
# Reason and the texts, any of which in code or message means it; the first match counts.
_REASONS: Final[Sequence[tuple[str, tuple[str, ...]]]] = (
    ("SpotSLRCreationFailed", (NO_SPOT_ROLE,)),
    ("AMIAuthorizationFailure", ("Not authorized for images",)),
    ("Unauthorized", ("UnauthorizedOperation", "not authorized to perform", "permissions boundary", "explicit deny")),
    ("SecurityGroupSubnetVPCMismatch", ("belong to different networks",)),
    ("InstanceProfileNameInvalid", ("Invalid IAM Instance Profile",)),
    (LAUNCH_TEMPLATE_NOT_FOUND, tuple(sorted(TEMPLATE_CODES))),
    ("UserDataSizeLimitExceeded", ("User data is limited to",)),
    ("AMINotFound", ("InvalidAMIID.NotFound",)),
    ("InvalidAMIID", ("InvalidAMIID",)),
    ("RequestLimitExceeded", tuple(sorted(THROTTLING_CODES))),
    ("InternalError", ("InternalError", "InternalFailure")),
    ("FreeTierIneligible", ("not eligible for Free Tier",)),
    ("FleetQuotaExceeded", ("MaxFleetCountExceeded",)),
    ("AccountPendingVerification", ("PendingVerification",)),
    ("SpotQuotaExceeded", ("MaxSpotInstanceCountExceeded",)),
    ("VCPULimitExceeded", ("VcpuLimitExceeded",)),
    (NO_ADDRESSES, (NO_ADDRESSES,)),
)


class LaunchFailure(msgspec.Struct, frozen=True):
    """Why a launch gave no instance.

    ``insufficient_capacity``: EC2 has none of what was asked for; other offerings may be tried at once.
    ``failure_reason``: one CamelCase word; ``message``: a sentence with EC2's own words.
    """

    insufficient_capacity: bool
    reason: str
    message: str


def offering_failures(
    errors: Iterable[FleetError], *, now_ms: int, cpu_millicores: Mapping[str, int] | None = None, scope: str = ""
) -> tuple[OfferingHealth, ...]:
    """What to leave alone until three minutes from ``now_ms``; sorted, each once.

    ``cpu_millicores``: by instance type, for quotas of vCPUs; ``scope``: the placement group or tenancy asked for.
    """
    found: dict[str, OfferingHealth] = {}
    for error in errors:
        for mark in _offering_failures(error, now_ms + UNAVAILABLE_MS, cpu_millicores or {}, scope):
            before = found.get(mark.key)
            if before is None or mark.cpu_millicores < before.cpu_millicores:
                found[mark.key] = mark
    return tuple(found[key] for key in sorted(found))


def _offering_failures(error: FleetError, until: int, sizes: Mapping[str, int], scope: str) -> Iterator[OfferingHealth]:
    capacity_type = error.capacity_type or labels.ON_DEMAND
    if error.code == NO_SPOT_ROLE:
        yield OfferingHealth(labels.SPOT, WILDCARD, WILDCARD, until, error.code, failures=1)
    elif error.code == NO_ADDRESSES and error.subnet_id:
        # The zone's other subnets may have some; the type is not at fault.
        yield OfferingHealth(SUBNET_KIND, error.subnet_id, error.zone, until, error.code, failures=1)
    elif error.code in CAPACITY_CODES and error.reservation_id:
        yield OfferingHealth(labels.RESERVED, error.reservation_id, WILDCARD, until, error.code, failures=1)
    elif scope and error.zone and (error.code == PLACEMENT_GROUP_IN_USE or SPREAD_GROUP_LIMIT in error.message):
        # True of every type, however it is bought; other groups may still start nodes there.
        for kind in (labels.ON_DEMAND, labels.SPOT):
            yield OfferingHealth(kind, WILDCARD, error.zone, until, error.code, scope, failures=1)
    elif error.code in QUOTA_CODES and error.instance_type in sizes:
        family, size = QUOTA_PREFIX + quota_family(error.instance_type), sizes[error.instance_type]
        yield OfferingHealth(capacity_type, family, WILDCARD, until, error.code, failures=1, cpu_millicores=size)
    elif error.code in CAPACITY_CODES and error.instance_type and error.zone:
        yield OfferingHealth(capacity_type, error.instance_type, error.zone, until, error.code, scope, failures=1)


def launch_failure(errors: Sequence[FleetError]) -> LaunchFailure:
    """Why there is no instance; with no error at all EC2 was silent, which counts as no capacity."""
    if all(error.code in CAPACITY_CODES or error.code == NO_SPOT_ROLE for error in errors):
        return LaunchFailure(True, "InsufficientCapacity", _summary(errors))
    other_fleet_error = next(error for error in errors if error.code not in CAPACITY_CODES)
    return LaunchFailure(
        False, failure_reason(other_fleet_error), f"{other_fleet_error.code}: {other_fleet_error.message}"
    )


def failure_reason(error: FleetError) -> str:
    """One word for an error; ``LaunchFailed`` for what is not in the table."""
    said = f"{error.code} {error.message}"
    return next((name for name, texts in _REASONS if any(text in said for text in texts)), UNKNOWN_FAILURE)


class FailureCount(msgspec.Struct, frozen=True, order=True):
    """Offerings that failed alike: what Karpenter counts as ``instance_launch_failures_total``, with EC2's code."""

    reason: str
    code: str
    zone: str
    capacity_type: str
    offerings: int


def count_failures(errors: Iterable[FleetError]) -> tuple[FailureCount, ...]:
    """The errors of an answer, those of one reason, code, zone and capacity type together; sorted."""
    counted = Counter((_word(error), error.code, error.zone, error.capacity_type) for error in errors)
    return tuple(sorted(FailureCount(*key, count) for key, count in counted.items()))


def _word(error: FleetError) -> str:
    """The reason; what has no word of its own is its own code when it is about capacity."""
    named = failure_reason(error)
    return error.code if named == UNKNOWN_FAILURE and error.code in CAPACITY_CODES else named


def _summary(errors: Sequence[FleetError]) -> str:
    """Codes with the number of offerings, e.g. ``InsufficientInstanceCapacity for 3 offerings``."""
    if not errors:
        return "EC2 returned neither instances nor errors"
    codes = sorted({error.code for error in errors})
    counted = ((code, sum(error.code == code for error in errors)) for code in codes)
    return ", ".join(f"{code} for {number} offering{'s' if number > 1 else ''}" for code, number in counted)
