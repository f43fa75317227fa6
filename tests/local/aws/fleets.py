"""CreateFleet requests for tests: a template of its own and the overrides a test names."""

import base64
import itertools
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from local.aws.ec2.catalog.images import AL2023_RELEASES, published_images

CLUSTER = "dev-eks-cluster"
USER_DATA = base64.b64encode(b"#!/bin/bash\necho hello\n").decode()
_numbers = itertools.count(1)


def image(architecture: str = "x86_64", release: str = AL2023_RELEASES[-1]) -> str:
    """Id of the standard AL2023 image for Kubernetes 1.35."""
    name = f"amazon-eks-node-al2023-{architecture}-standard-1.35-v{release}"
    return next(item.id for item in published_images() if item.name == name)


def subnets(ec2: Any) -> dict[str, str]:
    """Zone letter -> subnet id, of the cluster's network."""
    found = ec2.describe_subnets(Filters=[{"Name": "tag:karpenter.sh/discovery", "Values": [CLUSTER]}])
    return {item["AvailabilityZone"][-1]: item["SubnetId"] for item in found["Subnets"]}


def security_group(ec2: Any) -> str:
    found = ec2.describe_security_groups(Filters=[{"Name": "tag:karpenter.sh/discovery", "Values": [CLUSTER]}])
    return str(found["SecurityGroups"][0]["GroupId"])


def create_template(ec2: Any, **data: Any) -> str:
    """Name of a new launch template with an image, the nodes' group and `data` on top."""
    name = f"spotwright/{CLUSTER}/test-{next(_numbers)}"
    interface = {"DeviceIndex": 0, "Groups": [security_group(ec2)]}
    defaults = {"ImageId": image(), "UserData": USER_DATA, "NetworkInterfaces": [interface]}
    ec2.create_launch_template(LaunchTemplateName=name, LaunchTemplateData=defaults | data)
    return name


def override(ec2: Any, instance_type: str, zone: str, **more: Any) -> dict[str, Any]:
    return {"InstanceType": instance_type, "SubnetId": subnets(ec2)[zone]} | more


def fleet_request(
    ec2: Any,
    overrides: list[dict[str, Any]],
    *,
    count: int = 1,
    capacity_type: str = "on-demand",
    strategy: str | None = None,
    template_name: str | None = None,
    **more: Any,
) -> dict[str, Any]:
    specification = {"LaunchTemplateName": template_name or create_template(ec2), "Version": "1"}
    options = {"AllocationStrategy": strategy} if strategy else {}
    return {
        "Type": "instant",
        "LaunchTemplateConfigs": [{"LaunchTemplateSpecification": specification, "Overrides": overrides}],
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": count,
            "DefaultTargetCapacityType": capacity_type,
        },
        ("SpotOptions" if capacity_type == "spot" else "OnDemandOptions"): options,
    } | more


def instance_types(answer: dict[str, Any]) -> list[str]:
    """Instance types of what a fleet started, one per instance."""
    return [group["InstanceType"] for group in answer["Instances"] for _ in group["InstanceIds"]]


def instance_ids(answer: dict[str, Any]) -> list[str]:
    return [instance for group in answer["Instances"] for instance in group["InstanceIds"]]


def error_codes(answer: dict[str, Any]) -> list[str]:
    return [error["ErrorCode"] for error in answer["Errors"]]


def code_of(error: ClientError) -> str:
    return str(error.response["Error"]["Code"])


def refusal_code(call: Callable[[], object]) -> str:
    """The code of the error that a call must end with."""
    with pytest.raises(ClientError) as caught:
        call()
    return code_of(caught.value)
