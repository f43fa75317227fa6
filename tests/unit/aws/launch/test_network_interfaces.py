"""Network interfaces, placement and processor options of a launch template."""

from typing import Any

import pytest

from spotwright.aws.images.families import FAMILIES
from spotwright.aws.launch.template import TemplateOptions, template_data
from spotwright.model.karpenter.nodeclass import (
    AMI,
    ConnectionTracking,
    CPUOptions,
    NetworkInterface,
    PlacementGroup,
)
from spotwright.model.requirements import NodeSelectorRequirement, from_expressions
from tests.unit.aws.samples import nodeclass

PLAIN = TemplateOptions()
TENANCY = "karpenter.k8s.aws/instance-tenancy"
PARTITION = "karpenter.k8s.aws/placement-group-partition"


def data(machine: TemplateOptions = PLAIN, **changes: Any) -> dict[str, Any]:
    return template_data(
        nodeclass=nodeclass(**changes), family=FAMILIES["AL2023"], ami=AMI("ami-1"), user_data="", capacity_type="",
        tags={}, options=machine,
    )  # fmt: skip


def asking(key: str, *values: str) -> TemplateOptions:
    return TemplateOptions(from_expressions((NodeSelectorRequirement(key, "In", values),)))


def test_without_a_word_about_it_there_is_one_interface_with_the_groups() -> None:
    assert data()["NetworkInterfaces"] == [{"DeviceIndex": 0, "Groups": ["sg-1"]}]


@pytest.mark.parametrize("count", [0, 1, 10, 100])
def test_prefixes_are_asked_for_in_the_clusters_address_family(count: int) -> None:
    (four,) = data(ip_prefix_count=count)["NetworkInterfaces"]
    (six,) = data(TemplateOptions(ipv6=True), ip_prefix_count=count)["NetworkInterfaces"]
    assert (four["Ipv4PrefixCount"], "Ipv6PrefixCount" in four, "PrimaryIpv6" in four) == (count, False, False)
    assert (six["Ipv6PrefixCount"], six["PrimaryIpv6"], six["Ipv6AddressCount"]) == (count, True, 1)


def test_interfaces_of_the_class_stand_each_at_its_place_and_efa_only_has_no_addresses() -> None:
    listed = (NetworkInterface(0, 0), NetworkInterface(1, 1, "efa-only"))
    tracking = ConnectionTracking(udp_timeout=45)
    first, second = data(
        network_interfaces=listed, ip_prefix_count=2, connection_tracking=tracking, associate_public_ip_address=False
    )["NetworkInterfaces"]
    assert first == {
        "NetworkCardIndex": 0, "DeviceIndex": 0, "InterfaceType": "interface", "Groups": ["sg-1"],
        "AssociatePublicIpAddress": False, "Ipv4PrefixCount": 2, "ConnectionTrackingSpecification": {"UdpTimeout": 45},
    }  # fmt: skip
    assert second == {"NetworkCardIndex": 1, "DeviceIndex": 1, "InterfaceType": "efa-only", "Groups": ["sg-1"]}


def test_pods_that_ask_for_efa_get_all_of_the_types_adapters() -> None:
    interfaces = data(TemplateOptions(efa=3))["NetworkInterfaces"]
    places = [
        (interface["NetworkCardIndex"], interface["DeviceIndex"], interface["InterfaceType"])
        for interface in interfaces
    ]
    assert places == [(0, 0, "efa"), (1, 1, "efa"), (2, 1, "efa")]


@pytest.mark.parametrize(
    ("allowed", "tenancy"),
    [(("default", "dedicated"), "default"), (("dedicated",), "dedicated"), (("default",), "default")],
)
def test_dedicated_hardware_only_where_the_default_is_not_allowed(allowed: tuple[str, ...], tenancy: str) -> None:
    assert data(asking(TENANCY, *allowed))["Placement"] == {"Tenancy": tenancy}
    assert data()["Placement"] == {"Tenancy": "default"}


def test_a_placement_group_and_the_lowest_partition_that_is_allowed() -> None:
    group = PlacementGroup("pg-1", "near", "partition", 5)
    assert data(placement_group=group)["Placement"] == {"Tenancy": "default", "GroupId": "pg-1"}
    assert data(asking(PARTITION, "4", "2"), placement_group=group)["Placement"]["PartitionNumber"] == 2


def test_nested_virtualization_and_enclaves_only_when_asked_for() -> None:
    assert "CpuOptions" not in data()
    assert "CpuOptions" not in data(cpu_options=CPUOptions())
    assert data(cpu_options=CPUOptions("disabled"))["CpuOptions"] == {"NestedVirtualization": "disabled"}
    assert "EnclaveOptions" not in data()
    options = TemplateOptions(requests={"eks.amazonaws.com/nitro-sandbox": 1})
    assert data(options)["EnclaveOptions"] == {"Enabled": True}
