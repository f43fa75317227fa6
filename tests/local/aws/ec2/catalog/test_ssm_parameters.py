"""Public SSM parameters and the images they name."""

import pytest

from tests.local.aws.conftest import Aws


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
