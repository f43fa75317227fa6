"""Instance types and their offerings: complete and paged."""

from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.aws.conftest import REGION, Aws
from tests.local.aws.fleets import code_of


def types(aws: Aws, **call: Any) -> list[dict[str, Any]]:
    pages = aws.client("ec2").get_paginator("describe_instance_types").paginate(**call)
    return [item for page in pages for item in page["InstanceTypes"]]


def test_types_come_in_pages_of_at_most_100(aws: Aws) -> None:
    first = aws.client("ec2").describe_instance_types()
    assert len(first["InstanceTypes"]) == 100
    assert first["NextToken"]
    names = [item["InstanceType"] for item in types(aws)]
    assert len(names) == len(set(names)) > 700


def test_type_filters(aws: Aws) -> None:
    arm = types(aws, Filters=[{"Name": "processor-info.supported-architecture", "Values": ["arm64"]}])
    assert {"t4g.large", "r6g.large"} <= {item["InstanceType"] for item in arm}
    assert all("arm64" in item["ProcessorInfo"]["SupportedArchitectures"] for item in arm)
    with pytest.raises(ClientError) as caught:
        aws.client("ec2").describe_instance_types(InstanceTypes=["m9.huge"])
    assert code_of(caught.value) == "InvalidInstanceType"


def test_offerings_say_which_zone_has_which_type(aws: Aws) -> None:
    pages = aws.client("ec2").get_paginator("describe_instance_type_offerings")
    offered = {
        (item["InstanceType"], item["Location"])
        for page in pages.paginate(LocationType="availability-zone")
        for item in page["InstanceTypeOfferings"]
    }
    assert ("t3a.large", f"{REGION}a") in offered
    assert ("t3a.large", f"{REGION}b") not in offered
    assert {name for name, _ in offered} == {item["InstanceType"] for item in types(aws)}
