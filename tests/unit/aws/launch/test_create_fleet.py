"""Which errors of an answer are about what the request asked for."""

import pytest

from spotwright.aws.launch.create_fleet import names_what_is_asked_for
from spotwright.model.ec2.fleet import FleetError

REQUEST = {
    "TargetCapacitySpecification": {"DefaultTargetCapacityType": "spot"},
    "LaunchTemplateConfigs": [
        {"Overrides": [{"InstanceType": "m5.large", "AvailabilityZone": "z1"}]},
        {"Overrides": [{"InstanceType": "c5.large", "AvailabilityZone": "z2"}]},
    ],
}


@pytest.mark.parametrize(
    ("about", "asked"),
    [
        (("m5.large", "z1", "spot"), True),
        (("c5.large", "z2", "spot"), True),
        (("c5.large", "z1", "spot"), False),
        (("m5.large", "", "spot"), False),
        (("", "", "spot"), True),
        (("", "", "on-demand"), False),
        (("", "", ""), False),
    ],
)
def test_an_error_is_about_an_offering_of_the_request_or_about_its_capacity_type(
    about: tuple[str, str, str], asked: bool
) -> None:
    assert names_what_is_asked_for(FleetError("InsufficientInstanceCapacity", "", *about), REQUEST) is asked
