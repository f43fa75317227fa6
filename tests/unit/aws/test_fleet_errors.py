"""What the errors of a CreateFleet mean."""

import pytest

from spotwright.aws import fleet_errors, health
from spotwright.model.ec2.fleet import FleetError, OfferingHealth

NOW = 1_000_000
UNTIL = NOW + 180_000


def error(code: str, message: str = "", kind: str = "t3.large", zone: str = "z1", spot: str = "spot") -> FleetError:
    return FleetError(code, message, kind, zone, spot, "subnet-1")


@pytest.mark.parametrize("code", sorted(fleet_errors.CAPACITY_CODES - {fleet_errors.NO_ADDRESSES}))
def test_an_empty_offering_is_left_alone_for_three_minutes(code: str) -> None:
    marks = fleet_errors.marks([error(code), error(code)], now_ms=NOW)
    assert marks == (OfferingHealth("spot", "t3.large", "z1", UNTIL, code, failures=1),)
    assert not health.of(marks, now_ms=UNTIL - 1).allows("spot", "t3.large", "z1")
    assert health.of(marks, now_ms=UNTIL).allows("spot", "t3.large", "z1")
    assert health.of(marks, now_ms=NOW).allows("spot", "t3.large", "z2")
    assert health.of(marks, now_ms=NOW).allows("on-demand", "t3.large", "z1")


def test_a_subnet_without_addresses_is_left_alone_and_the_type_is_not_at_fault() -> None:
    marks = fleet_errors.marks([error("InsufficientFreeAddressesInSubnet")], now_ms=NOW)
    known = health.of(marks, now_ms=NOW)
    assert not known.allows_subnet("subnet-1", "z1")
    assert known.allows_subnet("subnet-2", "z1")
    assert known.allows("spot", "t3.large", "z1")


@pytest.mark.parametrize("code", sorted(fleet_errors.QUOTA_CODES))
def test_a_quota_of_vcpus_closes_its_family_from_the_size_that_was_refused(code: str) -> None:
    sizes = {"t3.large": 2000, "m5.xlarge": 4000}
    marks = fleet_errors.marks([error(code, kind="m5.xlarge"), error(code)], now_ms=NOW, cpu_millicores=sizes)
    known = health.of(marks, now_ms=NOW)
    assert not known.allows("spot", "c5.large", "z9", cpu_millicores=2000)
    assert known.allows("spot", "t3.small", "z9", cpu_millicores=1999)
    assert known.allows("spot", "g5.xlarge", "z9", cpu_millicores=4000)
    assert known.allows("on-demand", "c5.large", "z9", cpu_millicores=2000)


def test_what_failed_in_a_placement_group_failed_there_only() -> None:
    marks = fleet_errors.marks([error("InsufficientInstanceCapacity")], now_ms=NOW, scope="pg-1")
    known = health.of(marks, now_ms=NOW)
    assert known.allows("spot", "t3.large", "z1")
    assert not known.allows("spot", "t3.large", "z1", scope="pg-1")
    assert known.allows("spot", "t3.large", "z1", scope="pg-2")


def test_a_full_reservation_is_marked_itself() -> None:
    full = FleetError("ReservationCapacityExceeded", "", "p5.48xlarge", "z1", "on-demand", "subnet-1", "cr-1")
    (mark,) = fleet_errors.marks([full], now_ms=NOW)
    assert (mark.capacity_type, mark.instance_type) == ("reserved", "cr-1")
    assert health.of([mark], now_ms=NOW).allows("on-demand", "p5.48xlarge", "z1")


def test_without_the_spot_role_all_spot_is_left_alone() -> None:
    marks = fleet_errors.marks([error("AuthFailure.ServiceLinkedRoleCreationNotPermitted")], now_ms=NOW)
    known = health.of(marks, now_ms=NOW)
    assert not known.allows("spot", "m5.large", "z9")
    assert known.allows("on-demand", "m5.large", "z9")
    assert fleet_errors.outcome([error("AuthFailure.ServiceLinkedRoleCreationNotPermitted")]).insufficient


@pytest.mark.parametrize("code", ["RequestLimitExceeded", "UnauthorizedOperation", "InvalidParameterValue", "Strange"])
def test_other_errors_say_nothing_about_capacity(code: str) -> None:
    assert fleet_errors.marks([error(code)], now_ms=NOW) == ()
    assert not fleet_errors.outcome([error(code)]).insufficient


def test_only_capacity_errors_are_no_capacity() -> None:
    both = [error("InsufficientInstanceCapacity"), error("UnauthorizedOperation", "no")]
    assert fleet_errors.outcome(both[:1]).insufficient
    found = fleet_errors.outcome(both)
    assert (found.insufficient, found.reason) == (False, "Unauthorized")
    assert found.message == "UnauthorizedOperation: no"


def test_silence_is_no_capacity() -> None:
    assert fleet_errors.outcome([]).insufficient


def test_the_summary_counts_offerings() -> None:
    many = [error("InsufficientInstanceCapacity", zone=zone) for zone in "abc"] + [error("UnfulfillableCapacity")]
    assert fleet_errors.outcome(many).message == (
        "InsufficientInstanceCapacity for 3 offerings, UnfulfillableCapacity for 1 offering"
    )


@pytest.mark.parametrize(
    ("code", "message", "reason"),
    [
        ("UnauthorizedOperation", "You are not authorized to perform this operation", "Unauthorized"),
        ("AuthFailure", "Not authorized for images: [ami-1]", "AMIAuthorizationFailure"),
        ("InvalidParameter", "sg-1 and subnet-1 belong to different networks.", "SecurityGroupSubnetVPCMismatch"),
        ("InvalidParameterValue", "Value (x) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance"
         " Profile name", "InstanceProfileNameInvalid"),
        ("InvalidLaunchTemplateId.NotFound", "", "LaunchTemplateNotFound"),
        ("InvalidLaunchTemplateName.NotFoundException", "", "LaunchTemplateNotFound"),
        ("InvalidUserData", "User data is limited to 16384 bytes", "UserDataSizeLimitExceeded"),
        ("InvalidAMIID.NotFound", "", "AMINotFound"),
        ("InvalidAMIID.Malformed", "", "InvalidAMIID"),
        ("RequestLimitExceeded", "", "RequestLimitExceeded"),
        ("InternalError", "", "InternalError"),
        ("InvalidParameterCombination", "type is not eligible for Free Tier", "FreeTierIneligible"),
        ("PendingVerification", "", "AccountPendingVerification"),
        ("VcpuLimitExceeded", "", "VCPULimitExceeded"),
        ("MaxSpotInstanceCountExceeded", "", "SpotQuotaExceeded"),
        ("SomethingNew", "never seen", "LaunchFailed"),
    ],
)  # fmt: skip
def test_a_reason_in_one_word(code: str, message: str, reason: str) -> None:
    assert fleet_errors.reason(error(code, message)) == reason


def test_failures_are_counted_as_karpenter_counts_them() -> None:
    many = [error("RequestLimitExceeded"), error("RequestLimitExceeded"), error("Strange", zone="z2")]
    assert [(one.reason, one.code, one.zone, one.offerings) for one in fleet_errors.failures(many)] == [
        ("LaunchFailed", "Strange", "z2", 1),
        ("RequestLimitExceeded", "RequestLimitExceeded", "z1", 2),
    ]


SPREAD_FULL = (
    "You've reached the limit of instances in this spread placement group."
    " A spread placement group can have up to seven instances per Availability Zone."
)


@pytest.mark.parametrize(
    ("code", "message"),
    [("UnfulfillableCapacity", SPREAD_FULL), ("InsufficientInstanceCapacity", SPREAD_FULL),
     ("InvalidPlacementGroup.InUse", "The placement group 'one' is in use in another availability zone: z2")],
)  # fmt: skip
def test_a_zone_that_is_no_place_for_a_group_is_left_alone_for_the_group(code: str, message: str) -> None:
    refused = [error(code, message)]
    known = health.of(fleet_errors.marks(refused, now_ms=NOW, scope="pg-1"), now_ms=NOW)
    for kind in ("spot", "on-demand"):
        assert not known.allows(kind, "m5.large", "z1", scope="pg-1")
        assert known.allows(kind, "m5.large", "z2", scope="pg-1")
        assert known.allows(kind, "t3.large", "z1", scope="pg-2")
        assert known.allows(kind, "t3.large", "z1")
    assert fleet_errors.outcome(refused).insufficient
