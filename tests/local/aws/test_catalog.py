"""Instance types, offerings, prices, images and their parameters: complete, paged, consistent."""

import json
from decimal import Decimal
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.aws.conftest import ACCOUNT, CLUSTER, REGION, Aws
from tests.local.aws.fleets import code_of


def types(aws: Aws, **call: Any) -> list[dict[str, Any]]:
    pages = aws.client("ec2").get_paginator("describe_instance_types").paginate(**call)
    return [item for page in pages for item in page["InstanceTypes"]]


def prices(aws: Aws, **more: str) -> dict[str, Decimal]:
    fields = {
        "regionCode": REGION,
        "operatingSystem": "Linux",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
        "marketoption": "OnDemand",
        "tenancy": "Shared",
        "productFamily": "Compute Instance",
    } | more
    filters = [{"Type": "TERM_MATCH", "Field": name, "Value": value} for name, value in fields.items()]
    pages = aws.client("pricing", region="ap-south-1").get_paginator("get_products")
    found: dict[str, Decimal] = {}
    for page in pages.paginate(ServiceCode="AmazonEC2", Filters=filters):
        for product in map(json.loads, page["PriceList"]):
            (term,) = product["terms"]["OnDemand"].values()
            (dimension,) = term["priceDimensions"].values()
            name = product["product"]["attributes"]["instanceType"]
            assert name not in found
            found[name] = Decimal(dimension["pricePerUnit"]["USD"])
    return found


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


def test_on_demand_prices_are_those_of_us_east_1(aws: Aws) -> None:
    found = prices(aws)
    assert found["t3a.large"] == Decimal("0.0752")
    assert found["m6i.large"] == Decimal("0.096")
    assert min(found.values()) > 0
    metal = prices(aws, tenancy="Dedicated", productFamily="Compute Instance (bare metal)")
    assert all(".metal" in name for name in metal)
    assert not set(metal) & set(found)


def test_the_price_list_has_three_endpoints(aws: Aws) -> None:
    with pytest.raises(ClientError) as caught:
        aws.client("pricing").get_products(ServiceCode="AmazonEC2")
    assert code_of(caught.value) == "InvalidParameterException"


def test_spot_prices_are_below_on_demand_and_stay(aws: Aws) -> None:
    ec2 = aws.client("ec2")
    pages = ec2.get_paginator("describe_spot_price_history").paginate(ProductDescriptions=["Linux/UNIX"])
    spot = {
        (item["InstanceType"], item["AvailabilityZone"]): Decimal(item["SpotPrice"])
        for page in pages
        for item in page["SpotPriceHistory"]
    }
    on_demand = prices(aws)
    ratios = [price / on_demand[name] for (name, _), price in spot.items() if name in on_demand]
    assert len(ratios) > 1000
    assert min(ratios) > Decimal("0.249")
    assert max(ratios) < Decimal("0.451")
    (again,) = ec2.describe_spot_price_history(InstanceTypes=["t3a.large"], AvailabilityZone=f"{REGION}a")[
        "SpotPriceHistory"
    ]
    assert Decimal(again["SpotPrice"]) == spot["t3a.large", f"{REGION}a"]


def test_the_recommended_parameter_names_the_newest_image(aws: Aws) -> None:
    ec2, ssm = aws.client("ec2"), aws.client("ssm")
    folder = "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/x86_64/standard"
    wanted = [{"Name": "name", "Values": ["amazon-eks-node-al2023-x86_64-standard-1.35-*"]}]
    images = ec2.describe_images(Owners=["amazon"], Filters=wanted)["Images"]
    newest = max(images, key=lambda image: image["CreationDate"])
    recommended = ssm.get_parameter(Name=f"{folder}/recommended/image_id")["Parameter"]["Value"]
    assert recommended == newest["ImageId"]
    assert (newest["Architecture"], newest["State"]) == ("x86_64", "available")
    pinned = "amazon-eks-node-al2023-x86_64-standard-1.35-v20250821"
    value = ssm.get_parameter(Name=f"{folder}/{pinned}/image_id")["Parameter"]["Value"]
    (image,) = ec2.describe_images(ImageIds=[value])["Images"]
    assert image["Name"] == pinned
    assert image["CreationDate"].startswith("2025-08-21")


@pytest.mark.parametrize(
    "name",
    [
        "eks/optimized-ami/1.35/amazon-linux-2023/x86_64/nvidia/recommended/image_id",
        "eks/optimized-ami/1.35/amazon-linux-2023/x86_64/neuron/recommended/image_id",
        "eks/optimized-ami/1.35/amazon-linux-2023/arm64/nvidia/recommended/image_id",
        "bottlerocket/aws-k8s-1.35/arm64/latest/image_id",
        "bottlerocket/aws-k8s-1.35-nvidia/x86_64/latest/image_id",
    ],
)
def test_every_variant_has_a_parameter_and_an_image(aws: Aws, name: str) -> None:
    (parameter,) = aws.client("ssm").get_parameters(Names=[f"/aws/service/{name}"])["Parameters"]
    (image,) = aws.client("ec2").describe_images(ImageIds=[parameter["Value"]])["Images"]
    assert image["Architecture"] == ("arm64" if "arm64" in name else "x86_64")


def test_parameters_by_path_and_parameters_of_ones_own(aws: Aws) -> None:
    ssm = aws.client("ssm")
    folder = "/aws/service/eks/optimized-ami/1.35/amazon-linux-2023/arm64"
    pages = ssm.get_paginator("get_parameters_by_path").paginate(Path=folder, Recursive=True)
    assert sum(len(page["Parameters"]) for page in pages) == 12
    with pytest.raises(ssm.exceptions.ParameterNotFound):
        ssm.get_parameter(Name=f"{folder}/neuron/recommended/image_id")
    ssm.put_parameter(Name="/mine", Value="1", Type="String")
    assert ssm.get_parameter(Name="/mine")["Parameter"]["Value"] == "1"


def test_the_network_carries_the_usual_tags(aws: Aws) -> None:
    ec2 = aws.client("ec2")
    shared = [{"Name": f"tag:kubernetes.io/cluster/{CLUSTER}", "Values": ["shared"]}]
    found = ec2.describe_subnets(Filters=shared)["Subnets"]
    assert [subnet["AvailabilityZone"] for subnet in found] == [f"{REGION}{letter}" for letter in "abc"]
    assert [subnet["AvailabilityZoneId"] for subnet in found] == ["apne2-az1", "apne2-az2", "apne2-az3"]
    discovery = [{"Name": "tag:karpenter.sh/discovery", "Values": [CLUSTER]}]
    (group,) = ec2.describe_security_groups(Filters=discovery)["SecurityGroups"]
    assert group["VpcId"] == found[0]["VpcId"]


def test_node_roles_trust_ec2_and_have_the_managed_policies(aws: Aws) -> None:
    iam = aws.client("iam")
    for name in (f"KarpenterNodeRole-{CLUSTER}", f"karpenterNodeRole-{CLUSTER}", "dev-eks-node-group-role"):
        role = iam.get_role(RoleName=name)["Role"]
        assert role["Arn"] == f"arn:aws:iam::{ACCOUNT}:role/{name}"
        statement = role["AssumeRolePolicyDocument"]["Statement"][0]
        assert statement["Principal"] == {"Service": "ec2.amazonaws.com"}
        attached = iam.list_attached_role_policies(RoleName=name)["AttachedPolicies"]
        assert "AmazonEKSWorkerNodePolicy" in {policy["PolicyName"] for policy in attached}


def test_templates_come_in_pages_with_their_tags(aws: Aws) -> None:
    ec2 = aws.client("ec2")
    tag = [{"ResourceType": "launch-template", "Tags": [{"Key": "paged", "Value": "yes"}]}]
    for number in range(18):
        ec2.create_launch_template(
            LaunchTemplateName=f"spotwright/paged/{number}",
            LaunchTemplateData={"InstanceType": "t3a.large"},
            TagSpecifications=tag,
        )
    wanted = [{"Name": "tag:paged", "Values": ["yes"]}]
    pages = list(
        ec2.get_paginator("describe_launch_templates").paginate(Filters=wanted, PaginationConfig={"PageSize": 10})
    )
    assert [len(page["LaunchTemplates"]) for page in pages] == [10, 8]
    assert pages[0]["LaunchTemplates"][0]["Tags"] == [{"Key": "paged", "Value": "yes"}]
    with pytest.raises(ClientError) as caught:
        ec2.create_launch_template(LaunchTemplateName="no spaces", LaunchTemplateData={})
    assert code_of(caught.value) == "InvalidLaunchTemplateName.MalformedException"
