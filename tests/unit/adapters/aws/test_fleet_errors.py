"""The errors in an answer of CreateFleet."""

from typing import Any

import pytest

from spotwright.adapters.aws.ec2.codecs.instance import decode_fleet_error
from spotwright.model.ec2.fleet import FleetError

OVERRIDES = {"InstanceType": "m5.large", "AvailabilityZone": "z1", "SubnetId": "subnet-1"}


@pytest.mark.parametrize("stated", [{"Lifecycle": "spot"}, {}, {"Lifecycle": None}])
def test_where_ec2_does_not_say_of_which_capacity_type_an_error_is_it_is_that_of_the_request(
    stated: dict[str, Any],
) -> None:
    """Otherwise the on-demand offering would be closed, and the spot one asked for again and again."""
    error = {
        "LaunchTemplateAndOverrides": {"Overrides": OVERRIDES},
        "ErrorCode": "InsufficientInstanceCapacity",
        "ErrorMessage": "none left",
    } | stated
    assert decode_fleet_error(error, "spot") == FleetError(
        "InsufficientInstanceCapacity", "none left", "m5.large", "z1", "spot", "subnet-1"
    )


@pytest.mark.parametrize("group", [None, {}, {"Overrides": None}])
def test_an_error_about_the_whole_request_names_no_offering(group: Any) -> None:
    error = {"LaunchTemplateAndOverrides": group, "ErrorCode": "UnfulfillableCapacity", "ErrorMessage": None}
    assert decode_fleet_error(error, "on-demand") == FleetError("UnfulfillableCapacity", "", capacity_type="on-demand")
