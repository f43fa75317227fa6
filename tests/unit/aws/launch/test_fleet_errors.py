"""What the errors of a CreateFleet mean."""

import pytest

from spotwright.aws.instance_types import offering_health
from spotwright.aws.instance_types.unavailable_offerings import NO_ADDRESSES
from spotwright.aws.launch import fleet_errors
from spotwright.model.ec2.fleet import FleetError, OfferingHealth

NOW = 1_000_000
UNTIL = NOW + 180_000


def error(code: str, message: str = "", kind: str = "t3.large", zone: str = "z1", spot: str = "spot") -> FleetError:
    return FleetError(code, message, kind, zone, spot, "subnet-1")


@pytest.mark.parametrize("code", sorted(fleet_errors.CAPACITY_CODES - {NO_ADDRESSES}))
def test_an_empty_offering_is_left_alone_for_three_minutes(code: str) -> None:
    marks = fleet_errors.offering_failures([error(code), error(code)], now_ms=NOW)
    assert marks == (OfferingHealth("spot", "t3.large", "z1", UNTIL, code, failures=1),)
    assert not offering_health.from_health_rows(marks, now_ms=UNTIL - 1).is_available("spot", "t3.large", "z1")
    assert offering_health.from_health_rows(marks, now_ms=UNTIL).is_available("spot", "t3.large", "z1")
    assert offering_health.from_health_rows(marks, now_ms=NOW).is_available("spot", "t3.large", "z2")
    assert offering_health.from_health_rows(marks, now_ms=NOW).is_available("on-demand", "t3.large", "z1")


def test_a_subnet_without_addresses_is_left_alone_and_the_type_is_not_at_fault() -> None:
    marks = fleet_errors.offering_failures([error("InsufficientFreeAddressesInSubnet")], now_ms=NOW)
    unavailable = offering_health.from_health_rows(marks, now_ms=NOW)
    assert not unavailable.has_free_addresses("subnet-1", "z1")
    assert unavailable.has_free_addresses("subnet-2", "z1")
    assert unavailable.is_available("spot", "t3.large", "z1")


@pytest.mark.parametrize("code", sorted(fleet_errors.QUOTA_CODES))
def test_a_quota_of_vcpus_closes_its_family_from_the_size_that_was_refused(code: str) -> None:
    sizes = {"t3.large": 2000, "m5.xlarge": 4000}
    marks = fleet_errors.offering_failures(
        [error(code, kind="m5.xlarge"), error(code)], now_ms=NOW, cpu_millicores=sizes
    )
    unavailable = offering_health.from_health_rows(marks, now_ms=NOW)
    assert not unavailable.is_available("spot", "c5.large", "z9", cpu_millicores=2000)
    assert unavailable.is_available("spot", "t3.small", "z9", cpu_millicores=1999)
    assert unavailable.is_available("spot", "g5.xlarge", "z9", cpu_millicores=4000)
    assert unavailable.is_available("on-demand", "c5.large", "z9", cpu_millicores=2000)


def test_what_failed_in_a_placement_group_failed_there_only() -> None:
    marks = fleet_errors.offering_failures([error("InsufficientInstanceCapacity")], now_ms=NOW, scope="pg-1")
    unavailable = offering_health.from_health_rows(marks, now_ms=NOW)
    assert unavailable.is_available("spot", "t3.large", "z1")
    assert not unavailable.is_available("spot", "t3.large", "z1", scope="pg-1")
    assert unavailable.is_available("spot", "t3.large", "z1", scope="pg-2")


def test_a_full_reservation_is_marked_itself() -> None:
    full = FleetError("ReservationCapacityExceeded", "", "p5.48xlarge", "z1", "on-demand", "subnet-1", "cr-1")
    (mark,) = fleet_errors.offering_failures([full], now_ms=NOW)
    assert (mark.capacity_type, mark.instance_type) == ("reserved", "cr-1")
    assert offering_health.from_health_rows([mark], now_ms=NOW).is_available("on-demand", "p5.48xlarge", "z1")


def test_without_the_spot_role_all_spot_is_left_alone() -> None:
    marks = fleet_errors.offering_failures([error("AuthFailure.ServiceLinkedRoleCreationNotPermitted")], now_ms=NOW)
    unavailable = offering_health.from_health_rows(marks, now_ms=NOW)
    assert not unavailable.is_available("spot", "m5.large", "z9")
    assert unavailable.is_available("on-demand", "m5.large", "z9")
    assert fleet_errors.launch_failure(
        [error("AuthFailure.ServiceLinkedRoleCreationNotPermitted")]
    ).insufficient_capacity


@pytest.mark.parametrize("code", ["RequestLimitExceeded", "UnauthorizedOperation", "InvalidParameterValue", "Strange"])
def test_other_errors_say_nothing_about_capacity(code: str) -> None:
    assert fleet_errors.offering_failures([error(code)], now_ms=NOW) == ()
    assert not fleet_errors.launch_failure([error(code)]).insufficient_capacity


def test_only_capacity_errors_are_no_capacity() -> None:
    both = [error("InsufficientInstanceCapacity"), error("UnauthorizedOperation", "no")]
    assert fleet_errors.launch_failure(both[:1]).insufficient_capacity
    launch_failure = fleet_errors.launch_failure(both)
    assert (launch_failure.insufficient_capacity, launch_failure.reason) == (False, "Unauthorized")
    assert launch_failure.message == "UnauthorizedOperation: no"


def test_a_missing_spot_role_is_never_the_reason_beside_another_error() -> None:
    refused, no_role = error("UnauthorizedOperation", "no"), error(fleet_errors.NO_SPOT_ROLE)
    assert fleet_errors.launch_failure([no_role, refused]) == fleet_errors.launch_failure([refused, no_role])


def test_silence_is_no_capacity() -> None:
    assert fleet_errors.launch_failure([]).insufficient_capacity


def test_the_summary_counts_offerings() -> None:
    many = [error("InsufficientInstanceCapacity", zone=zone) for zone in "abc"] + [error("UnfulfillableCapacity")]
    assert fleet_errors.launch_failure(many).message == (
        "InsufficientInstanceCapacity for 3 offerings, UnfulfillableCapacity for 1 offering"
    )


def test_the_summary_names_quotas_that_are_used_up_with_the_next_step() -> None:
    over = "VcpuLimitExceeded"
    reached = [error(over, kind="c6a.xlarge", spot="on-demand"), error(over, kind="m6a.xlarge", spot="on-demand")]
    said = fleet_errors.launch_failure([*reached, error("InsufficientInstanceCapacity")]).message
    assert said == (
        "InsufficientInstanceCapacity for 1 offering, VcpuLimitExceeded for 2 offerings; the account's quota of vCPUs"
        " for standard (A, C, D, H, I, M, R, T, Z) on-demand instances is used up: aws service-quotas"
        " request-service-quota-increase --service-code ec2 --quota-code L-1216C47A --desired-value VCPUS"
    )
    gpu = fleet_errors.launch_failure([error("MaxSpotInstanceCountExceeded", kind="g5.xlarge")]).message
    assert "G and VT spot instances is used up: " in gpu
    assert "--quota-code L-3819A6DF" in gpu


def test_a_quota_that_refuses_the_whole_request_is_told_in_the_words_of_ec2() -> None:
    """It is not known which of its types is at fault: no offering is closed, and the launch waits."""
    whole = FleetError("VcpuLimitExceeded", "You have requested more vCPU capacity than your limit allows")
    assert fleet_errors.offering_failures([whole], now_ms=0) == ()
    assert fleet_errors.launch_failure([whole]) == fleet_errors.LaunchFailure(
        False, "VCPULimitExceeded", "VcpuLimitExceeded: You have requested more vCPU capacity than your limit allows"
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
    assert fleet_errors.failure_reason(error(code, message)) == reason


def test_failures_are_counted_as_karpenter_counts_them() -> None:
    many = [error("RequestLimitExceeded"), error("RequestLimitExceeded"), error("Strange", zone="z2")]
    assert [
        (failure_count.reason, failure_count.code, failure_count.zone, failure_count.offerings)
        for failure_count in fleet_errors.count_failures(many)
    ] == [
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
    unavailable = offering_health.from_health_rows(
        fleet_errors.offering_failures(refused, now_ms=NOW, scope="pg-1"), now_ms=NOW
    )
    for kind in ("spot", "on-demand"):
        assert not unavailable.is_available(kind, "m5.large", "z1", scope="pg-1")
        assert unavailable.is_available(kind, "m5.large", "z2", scope="pg-1")
        assert unavailable.is_available(kind, "t3.large", "z1", scope="pg-2")
        assert unavailable.is_available(kind, "t3.large", "z1")
    assert fleet_errors.launch_failure(refused).insufficient_capacity
