"""Which offerings a launch asks for, by which templates, in which request."""

import json
from typing import Any

import msgspec
import pytest

from spotwright.aws import launch
from spotwright.aws.health import Health, closing, of
from spotwright.aws.launch import FleetPlan
from spotwright.aws.refusal import Refusal
from spotwright.model import labels
from spotwright.model.fleet import OfferingHealth
from spotwright.model.instancetype import InstanceType
from spotwright.model.nodeclass import PlacementGroup, Subnet
from spotwright.model.requirements import Selector
from spotwright.model.snapshot import UnavailableOffering
from spotwright.scheduling.plan import NewNode
from tests.unit.aws.samples import CLUSTER, FACTS, ZONES, capacity_types, ec2_says, new_node, node_class, region, types

PLENTY = Health()
FREE_CHOICE = (capacity_types("spot", "on-demand"),)


def closed(*offerings: tuple[str, str, str]) -> Health:
    return closing(UnavailableOffering(*one) for one in offerings)


def planned(wanted: NewNode, catalog: tuple[InstanceType, ...], health: Health = PLENTY, **changes: Any) -> FleetPlan:
    found = launch.plan(wanted, node_class(**changes), catalog, FACTS, health)
    assert isinstance(found, FleetPlan), found
    return found


def refused(wanted: NewNode, catalog: tuple[InstanceType, ...], health: Health = PLENTY, **changes: Any) -> Refusal:
    found = launch.plan(wanted, node_class(**changes), catalog, FACTS, health)
    assert isinstance(found, Refusal), found
    return found


def asked_types(fleet: FleetPlan) -> set[str]:
    return {one.instance_type for one in fleet.overrides}


def asked(fleet: FleetPlan, count: int = 1) -> dict[str, Any]:
    versions = {one.name: (f"lt-{number}", "3") for number, one in enumerate(fleet.templates)}
    return launch.request(fleet, versions, launch="l1", count=count, client_token=launch.token("l1", 0))


def test_spot_is_asked_for_where_it_is_allowed() -> None:
    fleet = planned(new_node("c5a.large", requirements=FREE_CHOICE), types("c5a.large"))
    assert fleet.capacity_type == labels.SPOT
    assert {one.zone for one in fleet.overrides} == set(ZONES)
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
    specifications = {one["ResourceType"]: one["Tags"] for one in asked(fleet)["TagSpecifications"]}
    assert set(specifications) == {"fleet", "instance", "volume"}
    for tags in specifications.values():
        assert {one["Key"]: one["Value"] for one in tags} == {
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
    one = launch.serialise(asked(planned(new_node(*names), types(*names))))
    other = launch.serialise(asked(planned(new_node(*reversed(names)), tuple(reversed(types(*names))))))
    assert one == other
    assert json.loads(one)["ClientToken"] == "l1-0"
    assert launch.token("l1", 0) != launch.token("l1", 1)
    assert len(launch.token("x" * 100, 1)) <= 64


def test_attempts_of_a_long_launch_id_keep_different_tokens() -> None:
    assert launch.token("x" * 100, 1) != launch.token("x" * 100, 2)


def everything() -> tuple[str, ...]:
    return tuple(
        name
        for name in sorted(ec2_says())
        if name.split(".")[0] in ("c5", "c6i", "m5", "m6i", "r5", "r6i", "c5d", "m5d")
    )


def test_at_most_sixty_types_the_cheapest() -> None:
    names = everything()
    catalog = types(*names)
    fleet = planned(new_node(*names, requirements=(capacity_types("on-demand"),)), catalog)
    assert len(asked_types(fleet)) == 60
    dearest = max(one.price_picousd_per_hour for one in fleet.overrides)
    left_out = [one for one in catalog if one.name not in asked_types(fleet) and "metal" not in one.name]
    assert left_out
    assert all(
        dearest <= offering.price_picousd_per_hour
        for one in left_out
        for offering in one.offerings
        if offering.capacity_type == labels.ON_DEMAND
    )


def test_metal_and_accelerated_types_only_when_nothing_else_remains() -> None:
    names = ("c5.large", "c5.metal", "g4dn.xlarge")
    assert asked_types(planned(new_node(*names), types(*names))) == {"c5.large"}
    assert asked_types(planned(new_node("c5.metal"), types("c5.metal"))) == {"c5.metal"}
    minimum = Selector(labels.INSTANCE_TYPE, "Exists", (), 2)
    assert asked_types(planned(new_node(*names, requirements=(minimum,)), types(*names))) == set(names)


def test_spot_dearer_than_the_cheapest_on_demand_is_left_out() -> None:
    names = ("c5.large", "c5.24xlarge")
    fleet = planned(new_node(*names, requirements=FREE_CHOICE), types(*names))
    assert asked_types(fleet) == {"c5.large"}
    spot_only = planned(new_node(*names, requirements=(capacity_types("spot"),)), types(*names))
    assert asked_types(spot_only) == set(names)


def test_exotic_types_stay_where_a_pool_asks_for_many_values() -> None:
    names = ("c5.large", "c5.metal")
    several = Selector(labels.INSTANCE_TYPE, "Exists", (), 2)
    assert asked_types(planned(new_node(*names, requirements=(several,)), types(*names))) == set(names)


@pytest.mark.parametrize(
    ("kind", "options"),
    [("spot", ("SpotOptions", "capacity-optimized-prioritized")), ("on-demand", ("OnDemandOptions", "prioritized"))],
)
def test_prices_of_an_overlay_are_followed_in_their_order(kind: str, options: tuple[str, str]) -> None:
    fleet = planned(new_node("c5.large", requirements=(capacity_types(kind),)), types("c5.large"))
    found = asked(msgspec.structs.replace(fleet, prioritized=True))
    assert found[options[0]] == {"AllocationStrategy": options[1]}


def test_minimum_values_that_cannot_be_met_are_no_capacity() -> None:
    minimum = Selector("karpenter.k8s.aws/instance-family", "Exists", (), 2)
    found = refused(new_node("c5.large", "c5.xlarge", requirements=(minimum,)), types("c5.large", "c5.xlarge"))
    assert found.reason == "InsufficientCapacity"
    assert "instance-family" in found.message


def test_zones_of_the_node_and_of_its_requirements_both_hold() -> None:
    zone = Selector(labels.ZONE, "In", (ZONES[0],))
    assert {one.zone for one in planned(new_node("c5.large", requirements=(zone,)), types("c5.large")).overrides} == {
        ZONES[0]
    }
    assert {one.zone for one in planned(new_node("c5.large", zones=(ZONES[1],)), types("c5.large")).overrides} == {
        ZONES[1]
    }
    zone_id = Selector(labels.ZONE_ID, "In", ("apne2-az3",))
    only = planned(new_node("c5.large", requirements=(zone_id,)), types("c5.large"))
    assert {one.zone for one in only.overrides} == {ZONES[2]}


def test_a_type_that_is_too_small_is_not_asked_for() -> None:
    wanted = new_node("c5.large", "c5.2xlarge", requests={"cpu": 3000, "memory": 2**30, "pods": 1})
    assert asked_types(planned(wanted, types("c5.large", "c5.2xlarge"))) == {"c5.2xlarge"}


@pytest.mark.parametrize(
    ("marks", "zones"),
    [
        ({("spot", "c5.large", ZONES[0])}, {ZONES[1], ZONES[2]}),
        ({("subnet", "subnet-a", ZONES[0])}, {ZONES[1], ZONES[2]}),
        ({("on-demand", "c5.large", ZONES[0])}, set(ZONES)),
    ],
)
def test_offerings_known_to_be_empty_are_not_asked_for(marks: set[tuple[str, str, str]], zones: set[str]) -> None:
    wanted = new_node("c5.large", requirements=(capacity_types("spot"),))
    fleet = planned(wanted, types("c5.large"), closed(*sorted(marks)))
    assert {one.zone for one in fleet.overrides} == zones


def test_without_a_spot_role_on_demand_is_asked_for() -> None:
    wanted = new_node("c5.large", requirements=FREE_CHOICE)
    fleet = planned(wanted, types("c5.large"), closed(("spot", "*", "*")))
    assert fleet.capacity_type == labels.ON_DEMAND


def test_everything_empty_is_no_capacity() -> None:
    health = closed(*(("spot", "c5.large", zone) for zone in ZONES))
    found = refused(new_node("c5.large", requirements=(capacity_types("spot"),)), types("c5.large"), health)
    assert found.reason == "InsufficientCapacity"


def test_the_emptiest_subnet_of_a_zone_is_used() -> None:
    subnets = (Subnet("subnet-big", ZONES[0]), Subnet("subnet-small", ZONES[0]))
    wanted = new_node("c5.large", requirements=(capacity_types("spot"),))
    catalog = types("c5.large", of=node_class(subnets=subnets))
    fleet = planned(wanted, catalog, subnets=subnets)
    assert {one.subnet_id for one in fleet.overrides} == {"subnet-big"}
    full = closed(("subnet", "subnet-big", ZONES[0]))
    assert {one.subnet_id for one in planned(wanted, catalog, full, subnets=subnets).overrides} == {"subnet-small"}


def test_one_template_for_each_image_and_pod_count() -> None:
    names = ("c5.large", "c5.xlarge", "c5.2xlarge", "c6g.large")
    fleet = planned(new_node(*names), types(*names))
    images = {(one.data["ImageId"], one.name) for one in fleet.templates}
    assert len(fleet.templates) == 3
    assert {image for image, _ in images} == {"ami-x86_64-standard", "ami-arm64-standard"}
    by_name = {one.name: one for one in fleet.templates}
    for override in fleet.overrides:
        assert by_name[override.template].data["ImageId"] == override.image_id


def test_a_type_without_an_image_is_not_asked_for() -> None:
    catalog = types("c5.large", "c6g.large")
    only_intel = node_class().amis[:1]
    assert asked_types(planned(new_node("c5.large", "c6g.large"), catalog, amis=only_intel)) == {"c5.large"}
    assert refused(new_node("c6g.large"), catalog, amis=only_intel).reason == "AMINotFound"


def test_a_class_that_is_not_resolved_launches_nothing() -> None:
    assert refused(new_node("c5.large"), types("c5.large"), resolved_profile="").reason == "NodeClassNotReady"
    assert refused(new_node("c5.large"), types("c5.large"), ami_family="Ubuntu").reason == "UnsupportedAMIFamily"
    assert refused(new_node("c5.large"), types("c5.large"), subnets=()).reason == "InsufficientCapacity"


def test_nodes_say_which_pool_and_class_they_are_of() -> None:
    given = launch.boot_labels(new_node("c5.large", labels={"team": "a"}), node_class(), "AL2023", "spot")
    assert given == {
        "team": "a",
        "karpenter.sh/nodepool": "default",
        "karpenter.k8s.aws/ec2nodeclass": "default",
        "karpenter.sh/capacity-type": "spot",
        "karpenter.sh/do-not-sync-taints": "true",
    }
    assert labels.DO_NOT_SYNC_TAINTS not in launch.boot_labels(new_node(), node_class(), "Custom", "spot")


def test_a_claim_learns_what_its_instance_is() -> None:
    (bought,) = types("c5.large")
    known = launch.launched(
        instance_id="i-1", zone=ZONES[1], capacity_type="spot", instance_type=bought,
        wanted=new_node("c5.large", labels={"team": "a", labels.ZONE: "elsewhere"}),
    )  # fmt: skip
    assert known.provider_id == f"aws:///{ZONES[1]}/i-1"
    assert known.labels[labels.ZONE] == ZONES[1]
    assert known.labels[labels.CAPACITY_TYPE] == "spot"
    assert known.labels[labels.ZONE_ID] == "apne2-az2"
    assert known.labels["team"] == "a"
    assert known.labels[labels.INSTANCE_TYPE] == "c5.large"
    assert known.allocatable == bought.allocatable


@pytest.mark.parametrize(
    ("allowed", "tenancy"), [((), "default"), (("default", "dedicated"), "default"), (("dedicated",), "dedicated")]
)
def test_a_node_says_on_whose_hardware_it_runs(allowed: tuple[str, ...], tenancy: str) -> None:
    (bought,) = types("c5.large")
    assert bought.requirements.get(labels.TENANCY).values == {"default", "dedicated"}
    wanted = new_node("c5.large", requirements=(Selector(labels.TENANCY, "In", allowed),) if allowed else ())
    (template,) = planned(wanted, (bought,)).templates
    assert template.data["Placement"]["Tenancy"] == tenancy
    known = launch.launched(instance_id="i-1", zone=ZONES[0], capacity_type="spot", instance_type=bought, wanted=wanted)
    assert known.labels[labels.TENANCY] == tenancy


def test_what_is_full_in_a_placement_group_is_had_elsewhere() -> None:
    full = OfferingHealth("spot", "c5.large", "*", 10, "InsufficientInstanceCapacity", scope="pg-1")
    known, wanted = of([full], now_ms=1), new_node("c5.large", requirements=(capacity_types("spot"),))
    assert planned(wanted, types("c5.large"), known).group == ""
    elsewhere = planned(wanted, types("c5.large"), known, placement_group=PlacementGroup("pg-2", "two", "cluster"))
    assert elsewhere.group == "pg-2"
    refusal = refused(wanted, types("c5.large"), known, placement_group=PlacementGroup("pg-1", "one", "cluster"))
    assert refusal.reason == "InsufficientCapacity"


def test_prices_that_are_not_known_are_not_asked_for() -> None:
    unpriced = msgspec.structs.replace(region("c5.large"), on_demand={}, spot={})
    assert refused(new_node("c5.large"), types(sells=unpriced)).reason == "InsufficientCapacity"


def test_what_was_taken_back_lately_counts_dearer_but_is_asked_for_at_its_price() -> None:
    wanted = new_node("c5.large", "m5.large", requirements=(capacity_types("spot"),))
    catalog = types("c5.large", "m5.large")
    calm = planned(wanted, catalog)
    often = OfferingHealth("spot", "c5.large", calm.overrides[0].zone, 0, "SpotInterruption", interruptions=3, at=1)
    fleet = planned(wanted, catalog, of([often], now_ms=2))
    assert set(fleet.overrides) == set(calm.overrides)
    assert calm.overrides[0].instance_type == "c5.large"
    assert fleet.overrides.index(calm.overrides[0]) > 0


IN_PARTITIONS = PlacementGroup("pg-1", "kafka", "partition", 3)


def in_partition(*names: str) -> tuple[Selector, ...]:
    return (Selector(labels.PLACEMENT_GROUP_PARTITION, "In", names),) if names else ()


@pytest.mark.parametrize(
    ("asked", "number", "group"), [((), None, "pg-1"), (("2",), 2, "pg-1/2"), (("3", "2"), 2, "pg-1/2")]
)
def test_a_launch_asks_for_the_partition_that_pods_ask_for(
    asked: tuple[str, ...], number: int | None, group: str
) -> None:
    of_class = node_class(placement_group=IN_PARTITIONS)
    wanted = new_node("c5.large", requirements=(capacity_types("spot"), *in_partition(*asked)))
    fleet = planned(wanted, types("c5.large", of=of_class), placement_group=IN_PARTITIONS)
    (template,) = fleet.templates
    assert template.data["Placement"].get("PartitionNumber") == number
    assert template.data["Placement"]["GroupId"] == "pg-1"
    assert fleet.group == group
    assert [one.zone for one in fleet.overrides] == list(dict.fromkeys(one.zone for one in fleet.overrides))


def test_a_full_partition_leaves_the_others_of_its_group() -> None:
    catalog = types("c5.large", of=node_class(placement_group=IN_PARTITIONS))
    full = of([OfferingHealth("spot", "c5.large", zone, 10, "X", scope="pg-1/2") for zone in ZONES], now_ms=1)

    def asking(*names: str) -> NewNode:
        return new_node("c5.large", requirements=(capacity_types("spot"), *in_partition(*names)))

    assert refused(asking("2"), catalog, full, placement_group=IN_PARTITIONS).reason == "InsufficientCapacity"
    assert planned(asking("3"), catalog, full, placement_group=IN_PARTITIONS).group == "pg-1/3"
    assert planned(asking(), catalog, full, placement_group=IN_PARTITIONS).group == "pg-1"


@pytest.mark.parametrize(("asked", "said", "label"), [((), 0, ""), (("2",), 0, "2"), (("1", "2"), 0, ""), ((), 3, "3")])
def test_a_node_says_in_which_group_and_partition_it_is(asked: tuple[str, ...], said: int, label: str) -> None:
    (bought,) = types("c5.large", of=node_class(placement_group=IN_PARTITIONS))
    wanted = new_node("c5.large", requirements=in_partition(*asked))
    known = launch.launched(
        instance_id="i-1", zone=ZONES[0], capacity_type="spot", instance_type=bought, wanted=wanted, partition=said
    )
    assert known.labels[labels.PLACEMENT_GROUP_ID] == "pg-1"
    assert known.labels[labels.PLACEMENT_GROUP_PARTITION] == label


@pytest.mark.parametrize("group", [None, PlacementGroup("pg-1", "one", "spread")])
def test_a_node_outside_of_partitions_does_not_speak_of_one(group: PlacementGroup | None) -> None:
    (bought,) = types("c5.large", of=node_class(placement_group=group))
    known = launch.launched(
        instance_id="i-1", zone=ZONES[0], capacity_type="spot", instance_type=bought, wanted=new_node("c5.large")
    )
    assert known.labels.get(labels.PLACEMENT_GROUP_ID) == (group.id if group else None)
    assert labels.PLACEMENT_GROUP_PARTITION not in known.labels
