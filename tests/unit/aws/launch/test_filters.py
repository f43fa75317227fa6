"""Which offerings a launch asks for."""

import msgspec
import pytest

from spotwright.aws.instance_types.offering_health import from_health_rows
from spotwright.model import labels
from spotwright.model.ec2.fleet import OfferingHealth
from spotwright.model.karpenter.nodeclass import Subnet
from spotwright.model.requirements import NodeSelectorRequirement
from tests.unit.aws.launch.launches import FREE_CHOICE, asked_types, closed, planned, refused
from tests.unit.aws.samples import ZONES, capacity_types, ec2_says, new_node, nodeclass, region, types


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
    dearest = max(override.price_picousd_per_hour for override in fleet.overrides)
    left_out = [
        instance_type
        for instance_type in catalog
        if instance_type.name not in asked_types(fleet) and "metal" not in instance_type.name
    ]
    assert left_out
    assert all(
        dearest <= offering.price_picousd_per_hour
        for instance_type in left_out
        for offering in instance_type.offerings
        if offering.capacity_type == labels.ON_DEMAND
    )


def test_metal_and_accelerated_types_only_when_nothing_else_remains() -> None:
    names = ("c5.large", "c5.metal", "g4dn.xlarge")
    assert asked_types(planned(new_node(*names), types(*names))) == {"c5.large"}
    assert asked_types(planned(new_node("c5.metal"), types("c5.metal"))) == {"c5.metal"}


def test_spot_dearer_than_the_cheapest_on_demand_is_left_out() -> None:
    names = ("c5.large", "c5.24xlarge")
    fleet = planned(new_node(*names, requirements=FREE_CHOICE), types(*names))
    assert asked_types(fleet) == {"c5.large"}
    spot_only = planned(new_node(*names, requirements=(capacity_types("spot"),)), types(*names))
    assert asked_types(spot_only) == set(names)


def test_exotic_types_stay_where_a_pool_asks_for_many_values() -> None:
    names = ("c5.large", "c5.metal", "g4dn.xlarge")
    expression = NodeSelectorRequirement(labels.INSTANCE_TYPE, "Exists", (), 2)
    assert asked_types(planned(new_node(*names, requirements=(expression,)), types(*names))) == set(names)


def test_minimum_values_that_cannot_be_met_are_no_capacity() -> None:
    minimum = NodeSelectorRequirement("karpenter.k8s.aws/instance-family", "Exists", (), 2)
    refusal = refused(new_node("c5.large", "c5.xlarge", requirements=(minimum,)), types("c5.large", "c5.xlarge"))
    assert refusal.reason == "InsufficientCapacity"
    assert "instance-family" in refusal.message


def test_zones_of_the_node_and_of_its_requirements_both_hold() -> None:
    zone = NodeSelectorRequirement(labels.ZONE, "In", (ZONES[0],))
    assert {
        override.zone for override in planned(new_node("c5.large", requirements=(zone,)), types("c5.large")).overrides
    } == {ZONES[0]}
    assert {
        override.zone for override in planned(new_node("c5.large", zones=(ZONES[1],)), types("c5.large")).overrides
    } == {ZONES[1]}
    zone_id = NodeSelectorRequirement(labels.ZONE_ID, "In", ("apne2-az3",))
    only = planned(new_node("c5.large", requirements=(zone_id,)), types("c5.large"))
    assert {override.zone for override in only.overrides} == {ZONES[2]}


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
    assert {override.zone for override in fleet.overrides} == zones


def test_without_a_spot_role_on_demand_is_asked_for() -> None:
    wanted = new_node("c5.large", requirements=FREE_CHOICE)
    fleet = planned(wanted, types("c5.large"), closed(("spot", "*", "*")))
    assert fleet.capacity_type == labels.ON_DEMAND


def test_everything_empty_is_no_capacity() -> None:
    health = closed(*(("spot", "c5.large", zone) for zone in ZONES))
    refusal = refused(new_node("c5.large", requirements=(capacity_types("spot"),)), types("c5.large"), health)
    assert refusal.reason == "InsufficientCapacity"


def test_the_emptiest_subnet_of_a_zone_is_used() -> None:
    subnets = (Subnet("subnet-big", ZONES[0]), Subnet("subnet-small", ZONES[0]))
    wanted = new_node("c5.large", requirements=(capacity_types("spot"),))
    catalog = types("c5.large", of=nodeclass(subnets=subnets))
    fleet = planned(wanted, catalog, subnets=subnets)
    assert {override.subnet_id for override in fleet.overrides} == {"subnet-big"}
    full = closed(("subnet", "subnet-big", ZONES[0]))
    assert {override.subnet_id for override in planned(wanted, catalog, full, subnets=subnets).overrides} == {
        "subnet-small"
    }


def test_prices_that_are_not_known_are_not_asked_for() -> None:
    unpriced = msgspec.structs.replace(region("c5.large"), on_demand={}, spot={})
    assert refused(new_node("c5.large"), types(sells=unpriced)).reason == "InsufficientCapacity"


def test_what_was_taken_back_lately_counts_dearer_but_is_asked_for_at_its_price() -> None:
    wanted = new_node("c5.large", "m5.large", requirements=(capacity_types("spot"),))
    catalog = types("c5.large", "m5.large")
    calm = planned(wanted, catalog)
    often = OfferingHealth(
        "spot", "c5.large", calm.overrides[0].zone, 0, "SpotInterruption", interrupted_at_ms=(1, 1, 1, 1, 1)
    )
    fleet = planned(wanted, catalog, from_health_rows([often], now_ms=2))
    assert set(fleet.overrides) == set(calm.overrides)
    assert calm.overrides[0].instance_type == "c5.large"
    assert fleet.overrides.index(calm.overrides[0]) > 0
