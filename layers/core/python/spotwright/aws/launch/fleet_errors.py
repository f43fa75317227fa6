"""What the errors of a CreateFleet mean: which offerings become unavailable, and why the launch has no instance.

The reason of every code that is not named here is ``LaunchFailed``: the NodeClaims say it, and the launch is retried.

Source: the CreateFleet and RunInstances error codes of the EC2 API reference; the order of reasons is Karpenter's.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from spotwright.aws.instance_types.offering_health import UNAVAILABLE_MS
from spotwright.aws.instance_types.unavailable_offerings import NO_ADDRESSES, QUOTA_PREFIX, SUBNET_KIND
from spotwright.aws.instance_types.vcpu_quotas import increase_command, quota_family, vcpu_quota
from spotwright.model import labels
from spotwright.model.ec2.fleet import FleetError, OfferingHealth
from spotwright.model.ec2.instance_type import WILDCARD

NO_SPOT_ROLE: Final = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
RESERVATION_FULL: Final = "ReservationCapacityExceeded"
# A cluster placement group is in a single zone: the zone of the instances it has.
PLACEMENT_GROUP_IN_USE: Final = "InvalidPlacementGroup.InUse"
# The message when a spread placement group has its seven instances in a zone; the code is a capacity code.
SPREAD_GROUP_LIMIT: Final = "limit of instances in this spread placement group"
# A quota of the account is reached: EC2 refuses types of the same quota family and at least this size, too.
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
# Codes after which the launch template must be created again.
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
# Reason and texts: the reason holds when code or message contains a text; the first match counts.
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
    """Why a launch has no instance.

    ``insufficient_capacity``: EC2 has no capacity in the offerings of the request; others may be tried at once.
    ``reason``: a CamelCase word; ``message``: a sentence with EC2's message.
    """

    insufficient_capacity: bool
    reason: str
    message: str


def offering_failures(
    errors: Iterable[FleetError], *, now_ms: int, cpu_millicores: Mapping[str, int] | None = None, scope: str = ""
) -> tuple[OfferingHealth, ...]:
    """Offerings that are unavailable until three minutes from ``now_ms``; sorted, without duplicates.

    ``cpu_millicores``: by instance type, for quotas of vCPUs; ``scope``: the launch's placement group or tenancy.
    """
    failures: dict[str, OfferingHealth] = {}
    for error in errors:
        for failure in _offering_failures(error, now_ms + UNAVAILABLE_MS, cpu_millicores or {}, scope):
            before = failures.get(failure.key)
            if before is None or failure.cpu_millicores < before.cpu_millicores:
                failures[failure.key] = failure
    return tuple(failures[key] for key in sorted(failures))


def _offering_failures(error: FleetError, until: int, sizes: Mapping[str, int], scope: str) -> Iterator[OfferingHealth]:
    capacity_type = error.capacity_type or labels.ON_DEMAND
    if error.code == NO_SPOT_ROLE:
        if error.capacity_type == labels.ON_DEMAND:
            # It buys no spot, so that it would be the same without.
            return
        yield OfferingHealth(labels.SPOT, WILDCARD, WILDCARD, until, error.code, failures=1)
    elif error.code == NO_ADDRESSES and error.subnet_id:
        # Other subnets of the zone may have free addresses, whatever the type.
        yield OfferingHealth(SUBNET_KIND, error.subnet_id, error.zone, until, error.code, failures=1)
    elif error.code in CAPACITY_CODES and error.reservation_id:
        yield OfferingHealth(labels.RESERVED, error.reservation_id, WILDCARD, until, error.code, failures=1)
    elif scope and error.zone and (error.code == PLACEMENT_GROUP_IN_USE or SPREAD_GROUP_LIMIT in error.message):
        # Holds for every type and capacity type; other placement groups may still start nodes in the zone.
        for kind in (labels.ON_DEMAND, labels.SPOT):
            yield OfferingHealth(kind, WILDCARD, error.zone, until, error.code, scope, failures=1)
    elif error.code in QUOTA_CODES and error.instance_type in sizes:
        family, size = QUOTA_PREFIX + quota_family(error.instance_type), sizes[error.instance_type]
        yield OfferingHealth(capacity_type, family, WILDCARD, until, error.code, failures=1, cpu_millicores=size)
    elif error.code in CAPACITY_CODES and error.instance_type and error.zone:
        yield OfferingHealth(capacity_type, error.instance_type, error.zone, until, error.code, scope, failures=1)


def launch_failure(errors: Sequence[FleetError], *, scope: str = "") -> LaunchFailure:
    """Why there is no instance; an answer without instances and errors counts as insufficient capacity.

    ``scope``: the launch's placement group or tenancy.
    """
    fleet_error = next((error for error in errors if not _closes_offerings(error, scope)), None)
    if fleet_error is None:
        return LaunchFailure(True, "InsufficientCapacity", _summary(errors))
    return LaunchFailure(False, failure_reason(fleet_error), f"{fleet_error.code}: {fleet_error.message}")


def _closes_offerings(error: FleetError, scope: str) -> bool:
    """What refuses the whole request names neither type nor zone: nothing is closed, and the next plan is the same."""
    sizes = {error.instance_type: 0} if error.instance_type else {}
    return any(_offering_failures(error, 0, sizes, scope))


def failure_reason(error: FleetError) -> str:
    """The reason of an error; ``LaunchFailed`` for an error that is not in the table."""
    error_text = f"{error.code} {error.message}"
    return next((reason for reason, texts in _REASONS if any(text in error_text for text in texts)), UNKNOWN_FAILURE)


class FailureCount(msgspec.Struct, frozen=True, order=True):
    """A number of offerings with the same error, which Karpenter counts as ``instance_launch_failures_total``."""

    reason: str
    code: str
    zone: str
    capacity_type: str
    offerings: int


def count_failures(errors: Iterable[FleetError]) -> tuple[FailureCount, ...]:
    """The errors of an answer, counted by reason, code, zone and capacity type; sorted."""
    counts = Counter((_reason_or_code(error), error.code, error.zone, error.capacity_type) for error in errors)
    return tuple(sorted(FailureCount(*key, count) for key, count in counts.items()))


def _reason_or_code(error: FleetError) -> str:
    """The reason; the code itself for a capacity code that has no reason in the table."""
    reason = failure_reason(error)
    return error.code if reason == UNKNOWN_FAILURE and error.code in CAPACITY_CODES else reason


def _summary(errors: Sequence[FleetError]) -> str:
    """Codes with the number of offerings, e.g. ``InsufficientInstanceCapacity for 3 offerings``, and quotas by name."""
    if not errors:
        return "EC2 returned neither instances nor errors"
    codes = sorted({error.code for error in errors})
    counts = ((code, sum(error.code == code for error in errors)) for code in codes)
    counted = ", ".join(f"{code} for {number} offering{'s' if number > 1 else ''}" for code, number in counts)
    return "; ".join([counted, *_reached_quotas(errors)])


def _reached_quotas(errors: Sequence[FleetError]) -> list[str]:
    """A sentence for each quota of the account that is used up, with the next step; sorted."""
    reached = [error for error in errors if error.code in QUOTA_CODES]
    quotas = {
        vcpu_quota(error.capacity_type or labels.ON_DEMAND, quota_family(error.instance_type))
        for error in reached
        if error.instance_type
    }
    named = sorted(quota for quota in quotas if quota)
    if not named:
        return sorted({error.message for error in reached if error.message})
    return [
        f"the account's quota of vCPUs for {quota.name} instances is used up: {increase_command(quota.code, 'VCPUS')}"
        for quota in named
    ]
