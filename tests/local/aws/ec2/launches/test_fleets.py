"""CreateFleet of type instant: which pool it picks, what it reports, and that a retry is the same answer."""

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from tests.local.aws.conftest import Aws
from tests.local.aws.fleets import (
    USER_DATA,
    create_template,
    error_codes,
    fleet_request,
    image,
    instance_ids,
    instance_types,
    override,
    refusal_code,
    security_group,
    subnets,
)


@pytest.fixture
def ec2(aws: Aws) -> Any:
    return aws.client("ec2")


@pytest.fixture
def scarce(aws: Aws) -> Iterator[Any]:
    """Sets the insufficient-capacity rules; clears them afterwards."""
    yield lambda *rules: aws.control("POST", "/_local/capacity", {"insufficient": list(rules)})
    aws.control("POST", "/_local/capacity", {"insufficient": []})


def test_lowest_price_starts_the_cheapest_of_the_overrides(ec2: Any) -> None:
    pools = [override(ec2, name, "a") for name in ("m6i.large", "t3a.large", "c5.xlarge")]
    assert instance_types(ec2.create_fleet(**fleet_request(ec2, pools, count=2))) == ["t3a.large", "t3a.large"]


def test_prioritized_starts_the_lowest_priority_number(ec2: Any) -> None:
    pools = [override(ec2, "t3a.large", "a", Priority=5.0), override(ec2, "m6i.large", "a", Priority=1.0)]
    assert instance_types(ec2.create_fleet(**fleet_request(ec2, pools, strategy="prioritized"))) == ["m6i.large"]


def test_capacity_optimized_prioritized_follows_priority_among_deep_pools(ec2: Any) -> None:
    pools = [override(ec2, "t3a.large", "c", Priority=9.0), override(ec2, "m6i.large", "c", Priority=2.0)]
    answer = ec2.create_fleet(
        **fleet_request(ec2, pools, capacity_type="spot", strategy="capacity-optimized-prioritized")
    )
    assert instance_types(answer) == ["m6i.large"]
    assert answer["Instances"][0]["Lifecycle"] == "spot"


def test_diversified_spreads_over_the_pools(ec2: Any) -> None:
    pools = [override(ec2, "t3a.large", zone) for zone in ("a", "c")]
    answer = ec2.create_fleet(**fleet_request(ec2, pools, count=4, capacity_type="spot", strategy="diversified"))
    assert sorted(len(group["InstanceIds"]) for group in answer["Instances"]) == [2, 2]


def test_a_pool_without_capacity_is_reported_and_the_next_one_used(ec2: Any, scarce: Any) -> None:
    scarce({"instanceType": "t3a.large", "zone": "ap-northeast-2a", "capacityType": "on-demand"})
    pools = [override(ec2, "t3a.large", "a"), override(ec2, "m6i.large", "a")]
    answer = ec2.create_fleet(**fleet_request(ec2, pools))
    assert instance_types(answer) == ["m6i.large"]
    assert error_codes(answer) == ["InsufficientInstanceCapacity"]
    failed = answer["Errors"][0]["LaunchTemplateAndOverrides"]["Overrides"]
    assert (failed["InstanceType"], failed["SubnetId"]) == ("t3a.large", subnets(ec2)["a"])


def test_nothing_available_is_an_answer_with_errors_only(ec2: Any, scarce: Any) -> None:
    scarce({"capacityType": "spot"})
    pools = [override(ec2, "t3a.large", "a"), override(ec2, "t3a.large", "c")]
    answer = ec2.create_fleet(**fleet_request(ec2, pools, capacity_type="spot"))
    assert answer["Instances"] == []
    assert error_codes(answer) == ["InsufficientInstanceCapacity"] * 2


def test_what_one_pool_lacks_comes_from_the_next(ec2: Any, scarce: Any) -> None:
    scarce({"instanceType": "t3a.large", "available": 2})
    pools = [override(ec2, "t3a.large", "a"), override(ec2, "m6i.large", "a")]
    answer = ec2.create_fleet(**fleet_request(ec2, pools, count=5))
    assert sorted(instance_types(answer)) == ["m6i.large"] * 3 + ["t3a.large"] * 2
    assert error_codes(answer) == ["InsufficientInstanceCapacity"]


def test_a_minimum_that_is_missed_starts_nothing(ec2: Any, scarce: Any) -> None:
    scarce({"instanceType": "t3a.large", "available": 1})
    asked = fleet_request(ec2, [override(ec2, "t3a.large", "a")], count=3)
    asked["OnDemandOptions"] = {"MinTargetCapacity": 2, "SingleInstanceType": True}
    assert ec2.create_fleet(**asked)["Instances"] == []


def test_the_same_token_gets_the_same_instances(ec2: Any) -> None:
    asked = fleet_request(ec2, [override(ec2, "t3a.large", "a")], ClientToken="fleet-token-1")
    first, second = ec2.create_fleet(**asked), ec2.create_fleet(**asked)
    assert (first["FleetId"], instance_ids(first)) == (second["FleetId"], instance_ids(second))


def test_the_same_token_keeps_its_errors_when_capacity_returns(ec2: Any, scarce: Any) -> None:
    asked = fleet_request(ec2, [override(ec2, "t3a.large", "a")], ClientToken="fleet-token-2")
    scarce({})
    first = ec2.create_fleet(**asked)
    scarce()
    second = ec2.create_fleet(**asked)
    assert instance_ids(second) == []
    assert error_codes(first) == error_codes(second) == ["InsufficientInstanceCapacity"]


def test_the_same_token_with_other_parameters_is_refused(ec2: Any) -> None:
    asked = fleet_request(ec2, [override(ec2, "t3a.large", "a")], ClientToken="fleet-token-3")
    ec2.create_fleet(**asked)
    asked["TargetCapacitySpecification"]["TotalTargetCapacity"] = 2
    assert refusal_code(lambda: ec2.create_fleet(**asked)) == "IdempotentParameterMismatch"


def test_a_dry_run_starts_nothing(ec2: Any) -> None:
    asked = fleet_request(ec2, [override(ec2, "t3a.large", "a")], DryRun=True, ClientToken="dry")
    assert refusal_code(lambda: ec2.create_fleet(**asked)) == "DryRunOperation"
    assert ec2.describe_instances(Filters=[{"Name": "client-token", "Values": ["dry"]}])["Reservations"] == []


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        ({"InstanceType": "m9.huge"}, "InvalidParameterValue"),
        ({"InstanceType": "t4g.large"}, "InvalidParameterValue"),
        ({"SubnetId": "subnet-00000000"}, "InvalidSubnetID.NotFound"),
        ({"AvailabilityZone": "ap-northeast-2c"}, "InvalidParameterValue"),
        ({"ImageId": "ami-00000000000000000"}, "InvalidAMIID.NotFound"),
        ({"InstanceType": "c6a.large"}, "Unsupported"),
    ],
    ids=["type", "architecture", "subnet", "zone", "image", "not offered"],
)
def test_a_wrong_override_is_an_error_of_its_own(ec2: Any, wrong: dict[str, str], code: str) -> None:
    pools = [override(ec2, "t3a.large", "a") | wrong, override(ec2, "m6i.large", "a")]
    pools[1]["Priority"] = 2.0
    pools[0]["Priority"] = 1.0
    answer = ec2.create_fleet(**fleet_request(ec2, pools, strategy="prioritized"))
    assert error_codes(answer) == [code]
    assert instance_types(answer) == ["m6i.large"]


@pytest.mark.parametrize(
    ("data", "code"),
    [
        ({"IamInstanceProfile": {"Name": "nobody"}}, "InvalidParameterValue"),
        ({"NetworkInterfaces": [{"DeviceIndex": 0, "Groups": ["sg-0"]}]}, "InvalidGroup.NotFound"),
        ({"UserData": base64.b64encode(b"x" * 16385).decode()}, "InvalidParameterValue"),
    ],
    ids=["profile", "group", "user data"],
)
def test_a_wrong_template_is_an_error_of_the_pool(ec2: Any, data: dict[str, Any], code: str) -> None:
    asked = fleet_request(ec2, [override(ec2, "t3a.large", "a")], template_name=create_template(ec2, **data))
    answer = ec2.create_fleet(**asked)
    assert (answer["Instances"], error_codes(answer)) == ([], [code])


def test_a_missing_template_or_version_refuses_the_request(ec2: Any) -> None:
    asked = fleet_request(ec2, [override(ec2, "t3a.large", "a")])
    specification = asked["LaunchTemplateConfigs"][0]["LaunchTemplateSpecification"]
    specification["Version"] = "7"
    assert refusal_code(lambda: ec2.create_fleet(**asked)) == "InvalidLaunchTemplateId.VersionNotFound"
    specification["LaunchTemplateName"] = "nobody"
    assert refusal_code(lambda: ec2.create_fleet(**asked)) == "InvalidLaunchTemplateName.NotFoundException"


def test_the_same_pool_twice_refuses_the_request(ec2: Any) -> None:
    asked = fleet_request(ec2, [override(ec2, "t3a.large", "a"), override(ec2, "t3a.large", "a")])
    assert refusal_code(lambda: ec2.create_fleet(**asked)) == "InvalidFleetConfig"


def test_an_instance_has_what_template_override_and_request_say(aws: Aws, ec2: Any) -> None:
    iam = aws.client("iam")
    iam.create_instance_profile(InstanceProfileName="fleet-profile", Path="/karpenter/x/")
    iam.add_role_to_instance_profile(InstanceProfileName="fleet-profile", RoleName="KarpenterNodeRole-dev-eks-cluster")
    name = create_template(
        ec2,
        IamInstanceProfile={"Name": "fleet-profile"},
        MetadataOptions={"HttpTokens": "required", "HttpPutResponseHopLimit": 2},
        BlockDeviceMappings=[{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 37, "VolumeType": "gp3"}}],
        Monitoring={"Enabled": True},
        TagSpecifications=[
            {"ResourceType": "instance", "Tags": [{"Key": "of", "Value": "template"}]},
            {"ResourceType": "network-interface", "Tags": [{"Key": "of", "Value": "template"}]},
        ],
    )
    tags = [
        {"ResourceType": "instance", "Tags": [{"Key": "asked", "Value": "yes"}]},
        {"ResourceType": "volume", "Tags": [{"Key": "asked", "Value": "yes"}]},
    ]
    pools = [override(ec2, "m6i.large", "c", AvailabilityZone="ap-northeast-2c", ImageId=image(release="20250821"))]
    answer = ec2.create_fleet(
        **fleet_request(ec2, pools, capacity_type="spot", template_name=name, TagSpecifications=tags)
    )
    instance = ec2.describe_instances(InstanceIds=instance_ids(answer))["Reservations"][0]["Instances"][0]
    dashed = instance["PrivateIpAddress"].replace(".", "-")
    expected = {
        "InstanceType": "m6i.large",
        "ImageId": image(release="20250821"),
        "SubnetId": subnets(ec2)["c"],
        "InstanceLifecycle": "spot",
        "Architecture": "x86_64",
        "PrivateDnsName": f"ip-{dashed}.ap-northeast-2.compute.internal",
        "Monitoring": {"State": "enabled"},
    }
    assert {key: instance[key] for key in expected} == expected
    assert instance["MetadataOptions"]["HttpTokens"] == "required"
    assert instance["MetadataOptions"]["HttpPutResponseHopLimit"] == 2
    assert instance["IamInstanceProfile"]["Arn"].endswith("instance-profile/karpenter/x/fleet-profile")
    assert [group["GroupId"] for group in instance["SecurityGroups"]] == [security_group(ec2)]
    own = {tag["Key"]: tag["Value"] for tag in instance["Tags"]}
    template_id = answer["Instances"][0]["LaunchTemplateAndOverrides"]["LaunchTemplateSpecification"]
    assert own == {
        "of": "template",
        "asked": "yes",
        "aws:ec2:fleet-id": answer["FleetId"],
        "aws:ec2launchtemplate:id": template_id["LaunchTemplateId"],
        "aws:ec2launchtemplate:version": "1",
    }
    volume_id = instance["BlockDeviceMappings"][0]["Ebs"]["VolumeId"]
    volume = ec2.describe_volumes(VolumeIds=[volume_id])["Volumes"][0]
    assert (volume["Size"], volume["Tags"]) == (37, [{"Key": "asked", "Value": "yes"}])
    interface_id = instance["NetworkInterfaces"][0]["NetworkInterfaceId"]
    interface = ec2.describe_network_interfaces(NetworkInterfaceIds=[interface_id])["NetworkInterfaces"][0]
    assert interface["TagSet"] == [{"Key": "of", "Value": "template"}]
    shown = {item["id"]: item for item in aws.control("GET", "/_local/instances")["instances"]}[instance_ids(answer)[0]]
    assert (shown["userData"], shown["capacityType"]) == (USER_DATA, "spot")
    assert shown["role"].endswith("role/KarpenterNodeRole-dev-eks-cluster")


def test_a_numbered_version_is_used_as_numbered(ec2: Any) -> None:
    name = create_template(ec2)
    ec2.create_launch_template_version(
        LaunchTemplateName=name, LaunchTemplateData={"ImageId": image(release="20250821")}
    )
    pools = [override(ec2, "t3a.large", "a")]
    asked = fleet_request(ec2, pools, template_name=name)
    first = ec2.create_fleet(**asked)
    asked["LaunchTemplateConfigs"][0]["LaunchTemplateSpecification"]["Version"] = "2"
    second = ec2.create_fleet(**asked)
    images = {
        instance["InstanceId"]: instance["ImageId"]
        for reservation in ec2.describe_instances(InstanceIds=instance_ids(first) + instance_ids(second))[
            "Reservations"
        ]
        for instance in reservation["Instances"]
    }
    assert [images[item] for item in instance_ids(first) + instance_ids(second)] == [image(), image(release="20250821")]
