"""What a launch template holds, and how it is named."""

import base64
from typing import Any

import msgspec
import pytest

from spotwright.aws.launch import fleet_plan
from spotwright.aws.launch.fleet_plan import FleetPlan
from spotwright.model.karpenter.nodeclass import BlockDeviceMapping, MetadataOptions
from spotwright.scheduling.plan import NewNode
from tests.unit.aws.launch.launches import PLENTY, planned
from tests.unit.aws.samples import CLUSTER, FACTS, capacity_types, new_node, nodeclass, types


def template_data(wanted: NewNode | None = None, **changes: Any) -> dict[str, Any]:
    fleet = planned(wanted or new_node("c5.large"), types("c5.large"), **changes)
    (template,) = fleet.templates
    return template.data


@pytest.mark.parametrize(
    ("arn", "sent"),
    [
        ("", True),
        ("arn:aws:eks:eu-west-1:1:cluster/a", True),
        ("arn:aws-us-gov:eks:us-gov-west-1:1:cluster/a", True),
        ("arn:aws-iso:eks:us-iso-east-1:1:cluster/a", False),
        ("arn:aws-iso-b:eks:us-isob-east-1:1:cluster/a", False),
        ("arn:aws-iso-f:eks:us-isof-south-1:1:cluster/a", False),
    ],
)
def test_isolated_partitions_know_no_ipv6_of_the_metadata_service(arn: str, sent: bool) -> None:
    fleet = fleet_plan.plan_fleet(
        new_node("c5.large"), nodeclass(), types("c5.large"), msgspec.structs.replace(FACTS, arn=arn), PLENTY
    )
    assert isinstance(fleet, FleetPlan)
    assert ("HttpProtocolIpv6" in fleet.templates[0].data["MetadataOptions"]) is sent


def test_a_template_says_how_an_instance_is_made() -> None:
    data = template_data()
    assert data["IamInstanceProfile"] == {"Name": f"{CLUSTER}_profile"}
    assert data["NetworkInterfaces"] == [{"DeviceIndex": 0, "Groups": ["sg-1"]}]
    assert data["Monitoring"] == {"Enabled": False}
    assert data["MetadataOptions"] == {
        "HttpEndpoint": "enabled",
        "HttpProtocolIpv6": "disabled",
        "HttpPutResponseHopLimit": 1,
        "HttpTokens": "required",
        "InstanceMetadataTags": "disabled",
    }
    assert data["BlockDeviceMappings"] == [
        {
            "DeviceName": "/dev/xvda",
            "Ebs": {"DeleteOnTermination": True, "Encrypted": True, "VolumeSize": 20, "VolumeType": "gp3"},
        }
    ]
    assert base64.b64decode(data["UserData"]).decode().startswith("MIME-Version")


def test_the_class_decides_disks_metadata_and_addresses() -> None:
    data = template_data(
        block_device_mappings=(BlockDeviceMapping("/dev/xvda", volume_size="100Gi"),),
        metadata_options=MetadataOptions(http_tokens="optional", http_put_response_hop_limit=2),
        associate_public_ip_address=False,
        detailed_monitoring=True,
    )
    assert data["BlockDeviceMappings"] == [{"DeviceName": "/dev/xvda", "Ebs": {"VolumeSize": 100}}]
    options = data["MetadataOptions"]
    assert (options["HttpTokens"], options["HttpPutResponseHopLimit"]) == ("optional", 2)
    assert data["NetworkInterfaces"][0]["AssociatePublicIpAddress"] is False
    assert data["Monitoring"] == {"Enabled": True}


@pytest.mark.parametrize(("size", "gibibytes"), [("200G", 187), ("4G", 4), ("2G", 2), ("20Gi", 20), ("1Ti", 1024)])
def test_volumes_are_rounded_up_to_gibibytes(size: str, gibibytes: int) -> None:
    data = template_data(block_device_mappings=(BlockDeviceMapping("/dev/xvda", volume_size=size),))
    assert data["BlockDeviceMappings"][0]["Ebs"]["VolumeSize"] == gibibytes


def test_a_spot_request_is_tagged_only_for_spot() -> None:
    def kinds(capacity_type: str) -> list[str]:
        data = template_data(new_node("c5.large", requirements=(capacity_types(capacity_type),)))
        return [specification["ResourceType"] for specification in data["TagSpecifications"]]

    assert kinds("spot") == ["network-interface", "spot-instances-request"]
    assert kinds("on-demand") == ["network-interface"]


def name_of(wanted: NewNode, **changes: Any) -> str:
    (template,) = planned(wanted, types("c5.large"), **changes).templates
    return template.name


def test_a_templates_name_is_its_content() -> None:
    wanted = new_node("c5.large", requirements=(capacity_types("spot"),))
    assert name_of(wanted) == name_of(wanted)
    assert name_of(wanted).startswith(f"spotwright/{CLUSTER}/")
    changed = {
        name_of(wanted),
        name_of(wanted, tags={"a": "b"}),
        name_of(wanted, user_data="#!/bin/sh"),
        name_of(wanted, kubelet={"podPidsLimit": 1}),
        name_of(msgspec.structs.replace(wanted, labels={"x": "y"})),
        name_of(msgspec.structs.replace(wanted, nodepool="other")),
        name_of(wanted, metadata=msgspec.structs.replace(nodeclass().metadata, name="other")),
    }
    assert len(changed) == 7


def test_the_longest_cluster_name_still_makes_a_name_that_ec2_takes() -> None:
    long = msgspec.structs.replace(FACTS, name="c" * 100)
    plan = fleet_plan.plan_fleet(new_node("c5.large"), nodeclass(), types("c5.large"), long, PLENTY)
    assert isinstance(plan, FleetPlan)
    assert len(plan.templates[0].name) <= 128
