"""On which hardware a launch puts nodes: tenancy, placement groups and their partitions."""

import pytest

from spotwright.aws.instance_types.offering_health import from_health_rows
from spotwright.aws.launch import launched_status
from spotwright.model import labels
from spotwright.model.ec2.fleet import OfferingHealth
from spotwright.model.karpenter.nodeclass import PlacementGroup
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.scheduling.plan import NewNode
from tests.unit.aws.launch.launches import planned, refused
from tests.unit.aws.samples import ZONES, capacity_types, new_node, nodeclass, types

IN_PARTITIONS = PlacementGroup("pg-1", "kafka", "partition", 3)


def in_partition(*names: str) -> tuple[NodeSelectorRequirement, ...]:
    return (NodeSelectorRequirement(labels.PLACEMENT_GROUP_PARTITION, "In", names),) if names else ()


@pytest.mark.parametrize(
    ("allowed", "tenancy"), [((), "default"), (("default", "dedicated"), "default"), (("dedicated",), "dedicated")]
)
def test_a_node_says_on_whose_hardware_it_runs(allowed: tuple[str, ...], tenancy: str) -> None:
    (bought,) = types("c5.large")
    assert bought.requirements.get(labels.TENANCY).values == {"default", "dedicated"}
    wanted = new_node(
        "c5.large", requirements=(NodeSelectorRequirement(labels.TENANCY, "In", allowed),) if allowed else ()
    )
    (template,) = planned(wanted, (bought,)).templates
    assert template.data["Placement"]["Tenancy"] == tenancy
    status = launched_status.launched_status(
        instance_id="i-1", zone=ZONES[0], capacity_type="spot", instance_type=bought, node=wanted
    )
    assert status.labels[labels.TENANCY] == tenancy


def test_what_is_full_in_a_placement_group_is_had_elsewhere() -> None:
    full = OfferingHealth("spot", "c5.large", "*", 10, "InsufficientInstanceCapacity", scope="pg-1")
    unavailable_offerings, wanted = (
        from_health_rows([full], now_ms=1),
        new_node("c5.large", requirements=(capacity_types("spot"),)),
    )
    assert planned(wanted, types("c5.large"), unavailable_offerings).placement_scope == ""
    elsewhere = planned(
        wanted, types("c5.large"), unavailable_offerings, placement_group=PlacementGroup("pg-2", "two", "cluster")
    )
    assert elsewhere.placement_scope == "pg-2"
    refusal = refused(
        wanted, types("c5.large"), unavailable_offerings, placement_group=PlacementGroup("pg-1", "one", "cluster")
    )
    assert refusal.reason == "InsufficientCapacity"


@pytest.mark.parametrize(
    ("partitions", "number", "group"), [((), None, "pg-1"), (("2",), 2, "pg-1/2"), (("3", "2"), 2, "pg-1/2")]
)
def test_a_launch_asks_for_the_partition_that_pods_ask_for(
    partitions: tuple[str, ...], number: int | None, group: str
) -> None:
    of_class = nodeclass(placement_group=IN_PARTITIONS)
    wanted = new_node("c5.large", requirements=(capacity_types("spot"), *in_partition(*partitions)))
    fleet = planned(wanted, types("c5.large", of=of_class), placement_group=IN_PARTITIONS)
    (template,) = fleet.templates
    assert template.data["Placement"].get("PartitionNumber") == number
    assert template.data["Placement"]["GroupId"] == "pg-1"
    assert fleet.placement_scope == group
    assert [override.zone for override in fleet.overrides] == list(
        dict.fromkeys(override.zone for override in fleet.overrides)
    )


def test_a_full_partition_leaves_the_others_of_its_group() -> None:
    catalog = types("c5.large", of=nodeclass(placement_group=IN_PARTITIONS))
    full = from_health_rows(
        [OfferingHealth("spot", "c5.large", zone, 10, "X", scope="pg-1/2") for zone in ZONES], now_ms=1
    )

    def asking(*names: str) -> NewNode:
        return new_node("c5.large", requirements=(capacity_types("spot"), *in_partition(*names)))

    assert refused(asking("2"), catalog, full, placement_group=IN_PARTITIONS).reason == "InsufficientCapacity"
    assert planned(asking("3"), catalog, full, placement_group=IN_PARTITIONS).placement_scope == "pg-1/3"
    assert planned(asking(), catalog, full, placement_group=IN_PARTITIONS).placement_scope == "pg-1"


@pytest.mark.parametrize(
    ("partitions", "said", "label"), [((), 0, ""), (("2",), 0, "2"), (("1", "2"), 0, ""), ((), 3, "3")]
)
def test_a_node_says_in_which_group_and_partition_it_is(partitions: tuple[str, ...], said: int, label: str) -> None:
    (bought,) = types("c5.large", of=nodeclass(placement_group=IN_PARTITIONS))
    wanted = new_node("c5.large", requirements=in_partition(*partitions))
    status = launched_status.launched_status(
        instance_id="i-1", zone=ZONES[0], capacity_type="spot", instance_type=bought, node=wanted, partition_number=said
    )
    assert status.labels[labels.PLACEMENT_GROUP_ID] == "pg-1"
    assert status.labels[labels.PLACEMENT_GROUP_PARTITION] == label


@pytest.mark.parametrize("group", [None, PlacementGroup("pg-1", "one", "spread")])
def test_a_node_outside_of_partitions_does_not_speak_of_one(group: PlacementGroup | None) -> None:
    (bought,) = types("c5.large", of=nodeclass(placement_group=group))
    status = launched_status.launched_status(
        instance_id="i-1", zone=ZONES[0], capacity_type="spot", instance_type=bought, node=new_node("c5.large")
    )
    assert status.labels.get(labels.PLACEMENT_GROUP_ID) == (group.id if group else None)
    assert labels.PLACEMENT_GROUP_PARTITION not in status.labels
