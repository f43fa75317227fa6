"""Placement groups as launches meet them: one zone, seven to a zone, a partition each."""

from collections import Counter
from typing import Any

import pytest

from tests.local.aws.conftest import Aws
from tests.local.aws.fleets import create_template, error_codes, fleet_request, instance_ids, instance_types, override

TYPE = "c5.large"


@pytest.fixture
def ec2(aws: Aws) -> Any:
    return aws.client("ec2")


def group(ec2: Any, name: str, strategy: str, **more: Any) -> str:
    return str(ec2.create_placement_group(GroupName=name, Strategy=strategy, **more)["PlacementGroup"]["GroupId"])


def fleet(ec2: Any, placement: dict[str, Any], *zones: str, count: int = 1, name: str = TYPE) -> Any:
    asked = fleet_request(
        ec2,
        [override(ec2, name, zone) for zone in zones],
        count=count,
        template_name=create_template(ec2, Placement=placement),
    )
    return ec2.create_fleet(**asked)


def placed(ec2: Any, answer: Any) -> list[dict[str, Any]]:
    groups = ec2.describe_instances(InstanceIds=instance_ids(answer))["Reservations"]
    return [one["Placement"] for each in groups for one in each["Instances"]]


def test_a_partition_group_deals_its_instances_out_evenly(ec2: Any) -> None:
    id = group(ec2, "kafka", "partition", PartitionCount=3)
    shown = placed(ec2, fleet(ec2, {"GroupId": id}, "a", count=6))
    assert Counter(one["PartitionNumber"] for one in shown) == {1: 2, 2: 2, 3: 2}
    assert {(one["GroupId"], one["GroupName"]) for one in shown} == {(id, "kafka")}


def test_a_partition_that_is_asked_for_is_given(ec2: Any) -> None:
    id = group(ec2, "hdfs", "partition", PartitionCount=3)
    shown = placed(ec2, fleet(ec2, {"GroupId": id, "PartitionNumber": 2}, "a", count=2))
    assert [one["PartitionNumber"] for one in shown] == [2, 2]


def test_a_spread_group_takes_seven_to_a_zone(ec2: Any) -> None:
    id = group(ec2, "etcd", "spread")
    answer = fleet(ec2, {"GroupId": id}, "a", count=8)
    assert instance_types(answer) == [TYPE] * 7
    assert error_codes(answer) == ["UnfulfillableCapacity"]
    assert "limit of instances in this spread placement group" in answer["Errors"][0]["ErrorMessage"]
    assert instance_types(fleet(ec2, {"GroupId": id}, "a", "b")) == [TYPE]
    assert "PartitionNumber" not in placed(ec2, answer)[0]


def test_a_cluster_group_stays_in_the_zone_of_its_instances(ec2: Any) -> None:
    id = group(ec2, "hpc", "cluster")
    first = fleet(ec2, {"GroupId": id}, "a")
    refused = fleet(ec2, {"GroupId": id}, "b")
    assert error_codes(refused) == ["InvalidPlacementGroup.InUse"]
    assert instance_types(fleet(ec2, {"GroupId": id}, "a", "b", count=2)) == [TYPE] * 2
    assert instance_types(first) == [TYPE]


def test_a_type_that_the_strategy_does_not_take_is_refused(ec2: Any) -> None:
    id = group(ec2, "burst", "cluster")
    assert error_codes(fleet(ec2, {"GroupId": id}, "a", name="t3.large")) == ["InvalidParameterCombination"]
