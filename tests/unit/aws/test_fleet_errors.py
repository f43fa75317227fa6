"""What the errors of a CreateFleet mean."""

import pytest

from spotwright.aws import fleet_errors, health
from spotwright.model.fleet import FleetError, OfferingHealth

NOW = 1_000_000
UNTIL = NOW + 180_000


def error(code: str, message: str = "", kind: str = "t3.large", zone: str = "z1", spot: str = "spot") -> FleetError:
    return FleetError(code, message, kind, zone, spot, "subnet-1")


@pytest.mark.parametrize("code", sorted(fleet_errors.CAPACITY_CODES))
def test_an_empty_offering_is_left_alone_for_three_minutes(code: str) -> None:
    marks = fleet_errors.marks([error(code), error(code)], now_ms=NOW)
    assert OfferingHealth("spot", "t3.large", "z1", UNTIL, code) in marks
    assert not health.of(marks, now_ms=UNTIL - 1).allows("spot", "t3.large", "z1")
    assert health.of(marks, now_ms=UNTIL).allows("spot", "t3.large", "z1")
    assert health.of(marks, now_ms=NOW).allows("spot", "t3.large", "z2")
    assert health.of(marks, now_ms=NOW).allows("on-demand", "t3.large", "z1")


def test_a_subnet_without_addresses_is_left_alone_too() -> None:
    marks = fleet_errors.marks([error("InsufficientFreeAddressesInSubnet")], now_ms=NOW)
    known = health.of(marks, now_ms=NOW)
    assert not known.allows_subnet("subnet-1", "z1")
    assert known.allows_subnet("subnet-2", "z1")


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
