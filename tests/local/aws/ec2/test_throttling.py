"""EC2's token buckets: the arithmetic by itself, and a burst against the running process."""

from collections.abc import Iterator

import pytest
from botocore.exceptions import ClientError

from local.aws.ec2.throttling import TokenBucket
from tests.local.aws.conftest import Aws
from tests.local.aws.fleets import code_of, fleet_request, image, override, subnets


@pytest.fixture
def fresh(aws: Aws) -> Iterator[Aws]:
    """With limits, and no token comes back meanwhile."""
    aws.control("POST", "/_local/throttling", {"enabled": True})
    with aws.stopped_clock():
        yield aws
    aws.control("POST", "/_local/throttling", {"enabled": False})


def test_a_bucket_refills_up_to_its_size() -> None:
    now = [0.0]
    bucket = TokenBucket(10, 2, clock=lambda: now[0])
    assert [bucket.take(4), bucket.take(4), bucket.take(4)] == [True, True, False]
    now[0] = 1.0
    assert [bucket.take(4), bucket.take(1)] == [True, False]
    now[0] = 100.0
    assert [bucket.take(11), bucket.take(10)] == [False, True]


def outcomes(aws: Aws, calls: int) -> list[str]:
    """Error codes of dry runs of RunInstances, the action with the smallest bucket (5, and 2 per second)."""
    ec2 = aws.client("ec2")
    asked = {"ImageId": image(), "InstanceType": "t3a.large", "SubnetId": subnets(ec2)["a"]}
    codes = []
    for _ in range(calls):
        with pytest.raises(ClientError) as caught:
            ec2.run_instances(**asked, MinCount=1, MaxCount=1, DryRun=True)
        codes.append(code_of(caught.value))
        if caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == 503:
            break
    return codes


def test_a_burst_is_refused_once_the_bucket_is_empty(fresh: Aws) -> None:
    assert outcomes(fresh, 6) == ["DryRunOperation"] * 5 + ["RequestLimitExceeded"]
    assert fresh.client("ec2").describe_subnets()["Subnets"]


def test_asking_for_everything_has_a_smaller_bucket(fresh: Aws) -> None:
    ec2 = fresh.client("ec2")
    ec2.describe_instances()
    ec2.describe_instances(Filters=[{"Name": "instance-type", "Values": ["t3a.large"]}])
    buckets = fresh.control("GET", "/_local/throttling")["buckets"]
    sizes = {name: (bucket["size"], bucket["perSecond"]) for name, bucket in buckets.items()}
    assert sizes == {"DescribeInstances": (100, 20), "DescribeInstances unfiltered": (50, 10)}


def test_a_fleet_takes_its_instances_from_the_bucket(fresh: Aws) -> None:
    ec2 = fresh.client("ec2")
    fresh.control("POST", "/_local/capacity", {"insufficient": [{}]})
    asked = fleet_request(ec2, [override(ec2, "t3a.large", "a")], count=900)
    ec2.create_fleet(**asked)
    with pytest.raises(ClientError) as caught:
        ec2.create_fleet(**asked)
    fresh.control("POST", "/_local/capacity", {"insufficient": []})
    assert code_of(caught.value) == "RequestLimitExceeded"
    levels = fresh.control("GET", "/_local/throttling")["buckets"]
    assert levels["instances started"]["tokens"] < 200
    assert levels["CreateFleet"]["size"] == 50


def test_limits_can_be_lifted(fresh: Aws) -> None:
    fresh.control("POST", "/_local/throttling", {"enabled": False})
    assert set(outcomes(fresh, 12)) == {"DryRunOperation"}
