"""Capacity reservations as launches meet them: who may use one, how often, and what EC2 says otherwise."""

import time
from typing import Any

import pytest

from tests.local.aws.conftest import Aws
from tests.local.aws.fleets import (
    create_template,
    error_codes,
    fleet_request,
    instance_ids,
    instance_types,
    override,
    refusal_code,
)

TYPE = "c5.large"


@pytest.fixture
def ec2(aws: Aws) -> Any:
    return aws.client("ec2")


def reserve(
    ec2: Any, count: int, criteria: str = "targeted", *, name: str = TYPE, zone: str = "ap-northeast-2a"
) -> str:
    made = ec2.create_capacity_reservation(
        InstanceType=name, InstancePlatform="Linux/UNIX", AvailabilityZone=zone,
        InstanceCount=count, InstanceMatchCriteria=criteria,
    )  # fmt: skip
    return str(made["CapacityReservation"]["CapacityReservationId"])


def into(ec2: Any, id: str = "", preference: str = "", **more: Any) -> str:
    """Name of a template that targets a reservation, or only states a preference."""
    stated: dict[str, Any] = {"CapacityReservationPreference": preference or "capacity-reservations-only"}
    if id:
        stated["CapacityReservationTarget"] = {"CapacityReservationId": id}
    return create_template(ec2, CapacityReservationSpecification=stated, **more)


def fleet(ec2: Any, name: str, count: int, capacity_type: str = "on-demand", **more: Any) -> Any:
    asked = fleet_request(
        ec2, [override(ec2, TYPE, "a")], count=count, capacity_type=capacity_type, template_name=name, **more
    )
    return ec2.create_fleet(**asked)


def left(ec2: Any, id: str) -> int:
    (one,) = ec2.describe_capacity_reservations(CapacityReservationIds=[id])["CapacityReservations"]
    return int(one["AvailableInstanceCount"])


def seen(ec2: Any, answer: Any) -> list[str]:
    """The reservation of each instance that was started, "" = none."""
    groups = ec2.describe_instances(InstanceIds=instance_ids(answer))["Reservations"]
    return sorted(one.get("CapacityReservationId", "") for group in groups for one in group["Instances"])


def test_a_targeted_reservation_gives_what_it_has_and_no_more(ec2: Any) -> None:
    id = reserve(ec2, 2)
    answer = fleet(ec2, into(ec2, id), 3)
    assert seen(ec2, answer) == [id, id]
    assert error_codes(answer) == ["ReservationCapacityExceeded"]
    assert answer["Instances"][0]["Lifecycle"] == "on-demand"
    assert left(ec2, id) == 0


def test_who_states_no_preference_falls_into_an_open_reservation_and_beyond_it(ec2: Any) -> None:
    id = reserve(ec2, 1, "open")
    answer = fleet(ec2, create_template(ec2), 2)
    assert seen(ec2, answer) == ["", id]
    assert error_codes(answer) == []


@pytest.mark.parametrize(("preference", "criteria"), [("none", "open"), ("open", "targeted")])
def test_others_stay_out(ec2: Any, preference: str, criteria: str) -> None:
    id = reserve(ec2, 1, criteria)
    assert seen(ec2, fleet(ec2, into(ec2, preference=preference), 1)) == [""]
    assert left(ec2, id) == 1
    ec2.cancel_capacity_reservation(CapacityReservationId=id)


def test_a_reservation_of_another_place_is_refused(ec2: Any) -> None:
    id = reserve(ec2, 1, zone="ap-northeast-2b")
    assert error_codes(fleet(ec2, into(ec2, id), 1)) == ["InvalidParameterValue"]
    unknown = "cr-0123456789abcdef0"
    assert error_codes(fleet(ec2, into(ec2, unknown), 1)) == ["InvalidCapacityReservationId.NotFound"]


def test_spot_has_no_reservation(ec2: Any) -> None:
    id = reserve(ec2, 1)
    assert error_codes(fleet(ec2, into(ec2, id), 1, "spot")) == ["InvalidParameterCombination"]


@pytest.mark.parametrize(
    ("change", "market", "target", "more"),
    [
        ({"type": "capacity-block"}, "capacity-block", "capacity-block", {}),
        (
            {"interruptible": True},
            "interruptible-capacity-reservation",
            "reserved-capacity",
            {"ReservedCapacityOptions": {"ReservationTypes": ["interruptible-capacity-reservation"]}},
        ),
    ],
)
def test_blocks_and_interruptible_ones_have_a_market_of_their_own(
    aws: Aws, ec2: Any, change: dict[str, Any], market: str, target: str, more: dict[str, Any]
) -> None:
    id = reserve(ec2, 1)
    aws.control("POST", f"/_local/reservations/{id}", change)
    assert error_codes(fleet(ec2, into(ec2, id), 1)) == ["InvalidParameterCombination"]
    named = into(ec2, id, InstanceMarketOptions={"MarketType": market})
    assert refusal_code(lambda: fleet(ec2, named, 1)) == "InvalidFleetConfig"
    answer = fleet(ec2, named, 1, target, **more)
    assert (seen(ec2, answer), answer["Instances"][0]["Lifecycle"]) == ([id], market)


def test_what_runs_in_a_reservation_that_ends_runs_on_outside_of_it(ec2: Any) -> None:
    id = reserve(ec2, 1)
    answer = fleet(ec2, into(ec2, id), 1)
    ec2.cancel_capacity_reservation(CapacityReservationId=id)
    assert seen(ec2, answer) == [""]
    assert error_codes(fleet(ec2, into(ec2, id), 1)) == ["InvalidCapacityReservationState"]
    assert instance_types(fleet(ec2, create_template(ec2), 1)) == [TYPE]


def test_a_single_launch_heeds_its_reservation_too(ec2: Any) -> None:
    id = reserve(ec2, 1)
    subnet = {"DeviceIndex": 0, "SubnetId": override(ec2, TYPE, "a")["SubnetId"]}
    asked = {"LaunchTemplate": {"LaunchTemplateName": into(ec2, id)}, "NetworkInterfaces": [subnet]}
    made = ec2.run_instances(**asked, InstanceType=TYPE, MinCount=1, MaxCount=1)
    assert made["Instances"][0]["CapacityReservationId"] == id
    again = lambda: ec2.run_instances(**asked, InstanceType=TYPE, MinCount=1, MaxCount=1)  # noqa: E731
    assert refusal_code(again) == "ReservationCapacityExceeded"
    ec2.terminate_instances(InstanceIds=[made["Instances"][0]["InstanceId"]])


def states(ec2: Any, answer: Any) -> set[str]:
    groups = ec2.describe_instances(InstanceIds=instance_ids(answer))["Reservations"]
    return {one["State"]["Name"] for group in groups for one in group["Instances"]}


def test_instances_of_a_block_are_ended_half_an_hour_before_it_is(aws: Aws, ec2: Any) -> None:
    block, usual = reserve(ec2, 1), reserve(ec2, 1)
    aws.control("POST", f"/_local/reservations/{block}", {"type": "capacity-block", "endsInSeconds": 3600})
    bought = fleet(ec2, into(ec2, usual), 1)
    named = into(ec2, block, InstanceMarketOptions={"MarketType": "capacity-block"})
    taken = fleet(ec2, named, 1, "capacity-block")
    assert states(ec2, taken) <= {"pending", "running"}
    aws.control("POST", f"/_local/reservations/{usual}", {"endsInSeconds": 0})
    aws.control("POST", f"/_local/reservations/{block}", {"endsInSeconds": 1800})
    deadline = time.monotonic() + 180
    while states(ec2, taken) <= {"pending", "running"} and time.monotonic() < deadline:
        time.sleep(0.2)
    assert states(ec2, taken) <= {"shutting-down", "terminated"}
    assert states(ec2, bought) <= {"pending", "running"}
