"""By which templates a launch asks for its offerings, in which request."""

import json

import msgspec
import pytest

from spotwright.aws.launch import create_fleet, fleet_plan, launched_status
from spotwright.model import labels
from spotwright.model.karpenter.nodeclass import NetworkInterface
from spotwright.model.resources import EFA, PODS
from tests.unit.aws.launch.launches import FREE_CHOICE, asked, asked_types, planned, refused
from tests.unit.aws.samples import CLUSTER, ZONES, capacity_types, new_node, nodeclass, types


def test_spot_is_asked_for_where_it_is_allowed() -> None:
    fleet = planned(new_node("c5a.large", requirements=FREE_CHOICE), types("c5a.large"))
    assert fleet.capacity_type == labels.SPOT
    assert {override.zone for override in fleet.overrides} == set(ZONES)
    request = asked(fleet)
    assert request["TargetCapacitySpecification"]["DefaultTargetCapacityType"] == "spot"
    assert request["SpotOptions"] == {"AllocationStrategy": "price-capacity-optimized"}
    assert "OnDemandOptions" not in request


def test_on_demand_takes_the_lowest_price() -> None:
    fleet = planned(new_node("c5a.large", requirements=(capacity_types("on-demand"),)), types("c5a.large"))
    request = asked(fleet, count=3)
    assert request["TargetCapacitySpecification"] == {
        "DefaultTargetCapacityType": "on-demand",
        "TotalTargetCapacity": 3,
    }
    assert request["OnDemandOptions"] == {"AllocationStrategy": "lowest-price"}
    assert request["Type"] == "instant"


def test_an_override_is_a_type_in_the_subnet_of_a_zone_at_its_price() -> None:
    fleet = planned(new_node("t3a.large", requirements=(capacity_types("on-demand"),)), types("t3a.large"))
    (config,) = asked(fleet)["LaunchTemplateConfigs"]
    assert config["LaunchTemplateSpecification"] == {"LaunchTemplateId": "lt-0", "Version": "3"}
    assert config["Overrides"] == [
        {
            "AvailabilityZone": zone,
            "ImageId": "ami-x86_64-standard",
            "InstanceType": "t3a.large",
            "Priority": 0.0752,
            "SubnetId": f"subnet-{zone[-1]}",
        }
        for zone in (ZONES[0], ZONES[2])
    ]


def test_everything_a_launch_makes_is_tagged() -> None:
    fleet = planned(new_node("c5a.large"), types("c5a.large"), tags={"Name": "spot-node", "intent": "apps"})
    specifications = {
        specification["ResourceType"]: specification["Tags"] for specification in asked(fleet)["TagSpecifications"]
    }
    assert set(specifications) == {"fleet", "instance", "volume"}
    for tags in specifications.values():
        assert {tag["Key"]: tag["Value"] for tag in tags} == {
            "Name": "spot-node",
            "intent": "apps",
            f"kubernetes.io/cluster/{CLUSTER}": "owned",
            "eks:eks-cluster-name": CLUSTER,
            "karpenter.sh/nodepool": "default",
            "karpenter.k8s.aws/ec2nodeclass": "default",
            "spotwright.dev/launch": "l1",
        }


def test_a_context_is_passed_on_and_its_absence_too() -> None:
    assert "Context" not in asked(planned(new_node("c5a.large"), types("c5a.large")))
    assert asked(planned(new_node("c5a.large"), types("c5a.large"), context="ctx"))["Context"] == "ctx"


def test_equal_launches_are_equal_text_and_attempts_have_their_own_token() -> None:
    names = ("c5a.large", "m5a.large", "r5a.large")
    request = create_fleet.encode_request(asked(planned(new_node(*names), types(*names))))
    reordered = create_fleet.encode_request(asked(planned(new_node(*reversed(names)), tuple(reversed(types(*names))))))
    assert request == reordered
    assert json.loads(request)["ClientToken"] == "l1-0"
    assert create_fleet.client_token("l1", 0) != create_fleet.client_token("l1", 1)
    assert len(create_fleet.client_token("x" * 100, 1)) <= 64


def test_attempts_of_a_long_launch_id_keep_different_tokens() -> None:
    assert create_fleet.client_token("x" * 100, 1) != create_fleet.client_token("x" * 100, 2)


@pytest.mark.parametrize(
    ("kind", "options"),
    [("spot", ("SpotOptions", "capacity-optimized-prioritized")), ("on-demand", ("OnDemandOptions", "prioritized"))],
)
def test_prices_of_an_overlay_are_followed_in_their_order(kind: str, options: tuple[str, str]) -> None:
    fleet = planned(new_node("c5.large", requirements=(capacity_types(kind),)), types("c5.large"))
    request = asked(msgspec.structs.replace(fleet, prioritized=True))
    assert request[options[0]] == {"AllocationStrategy": options[1]}


def test_one_template_for_each_image_and_pod_count() -> None:
    names = ("c5.large", "c5.xlarge", "c5.2xlarge", "c6g.large")
    fleet = planned(new_node(*names), types(*names))
    images = {(template_request.data["ImageId"], template_request.name) for template_request in fleet.templates}
    assert len(fleet.templates) == 3
    assert {image for image, _ in images} == {"ami-x86_64-standard", "ami-arm64-standard"}
    by_name = {template_request.name: template_request for template_request in fleet.templates}
    for override in fleet.overrides:
        assert by_name[override.template_name].data["ImageId"] == override.image_id


def test_a_type_without_an_image_is_not_asked_for() -> None:
    catalog = types("c5.large", "c6g.large")
    only_intel = nodeclass().amis[:1]
    assert asked_types(planned(new_node("c5.large", "c6g.large"), catalog, amis=only_intel)) == {"c5.large"}
    assert refused(new_node("c6g.large"), catalog, amis=only_intel).reason == "AMINotFound"


def test_a_class_that_is_not_resolved_launches_nothing() -> None:
    assert refused(new_node("c5.large"), types("c5.large"), resolved_instance_profile="").reason == "NodeClassNotReady"
    assert refused(new_node("c5.large"), types("c5.large"), ami_family="Ubuntu").reason == "UnsupportedAMIFamily"
    assert refused(new_node("c5.large"), types("c5.large"), subnets=()).reason == "InsufficientCapacity"


def test_nodes_say_which_pool_and_class_they_are_of() -> None:
    given = fleet_plan.registration_labels(new_node("c5.large", labels={"team": "a"}), nodeclass(), "AL2023", "spot")
    assert given == {
        "team": "a",
        "karpenter.sh/nodepool": "default",
        "karpenter.k8s.aws/ec2nodeclass": "default",
        "karpenter.sh/capacity-type": "spot",
        "karpenter.sh/do-not-sync-taints": "true",
    }
    assert labels.DO_NOT_SYNC_TAINTS not in fleet_plan.registration_labels(new_node(), nodeclass(), "Custom", "spot")


def test_a_claim_learns_what_its_instance_is() -> None:
    (bought,) = types("c5.large")
    status = launched_status.launched_status(
        instance_id="i-1", zone=ZONES[1], capacity_type="spot", instance_type=bought,
        node=new_node("c5.large", labels={"team": "a", labels.ZONE: "elsewhere"}),
    )  # fmt: skip
    assert status.provider_id == f"aws:///{ZONES[1]}/i-1"
    assert status.labels[labels.ZONE] == ZONES[1]
    assert status.labels[labels.CAPACITY_TYPE] == "spot"
    assert status.labels[labels.ZONE_ID] == "apne2-az2"
    assert status.labels["team"] == "a"
    assert status.labels[labels.INSTANCE_TYPE] == "c5.large"
    assert status.allocatable == bought.allocatable


@pytest.mark.parametrize(
    ("requests", "interfaces", "devices"),
    [
        ({"cpu": 1000}, (), 0),
        ({"cpu": 1000, EFA: 1}, (), 4),
        ({"cpu": 1000}, (NetworkInterface(0, 0), NetworkInterface(0, 1, "efa-only")), 4),
    ],
)
def test_a_claim_has_efa_devices_only_where_they_were_attached(
    requests: dict[str, int], interfaces: tuple[NetworkInterface, ...], devices: int
) -> None:
    (bought,) = types("c5.large")
    bought = msgspec.structs.replace(
        bought, capacity=bought.capacity | {EFA: 4}, allocatable=bought.allocatable | {EFA: 4}
    )
    status = launched_status.launched_status(
        instance_id="i-1", zone=ZONES[1], capacity_type="spot", instance_type=bought,
        node=msgspec.structs.replace(new_node("c5.large"), requests=requests), network_interfaces=interfaces,
    )  # fmt: skip
    assert (status.capacity.get(EFA, 0), status.allocatable.get(EFA, 0)) == (devices, devices)
    assert status.allocatable[PODS] == bought.allocatable[PODS]
