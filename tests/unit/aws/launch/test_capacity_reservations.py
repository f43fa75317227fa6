"""Launching into capacity reservations: what is asked for, and how template and request say it."""

from typing import Any

import msgspec
import pytest

from spotwright.aws.instance_types.unavailable_offerings import UnavailableOfferings, from_snapshot
from spotwright.aws.launch import create_fleet, fleet_plan, launched_status
from spotwright.aws.launch.fleet_plan import FleetPlan
from spotwright.aws.refusal import Refusal
from spotwright.model import labels
from spotwright.model.ec2.instance_type import InstanceType
from spotwright.model.karpenter.nodeclass import CapacityReservation
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.model.snapshot import UnavailableOffering
from tests.unit.aws.samples import FACTS, ZONES, capacity_types, new_node, nodeclass, region, types

PLENTY = UnavailableOfferings()
ANY_KIND = capacity_types("reserved", "spot", "on-demand")


def reservation(
    id: str = "cr-1", type_: str = "c5a.large", zone: str = ZONES[0], **changes: Any
) -> CapacityReservation:
    return msgspec.structs.replace(CapacityReservation(id, type_, zone, available_instance_count=3), **changes)


def asked(
    *reservations: CapacityReservation,
    requirement: NodeSelectorRequirement = ANY_KIND,
    health: UnavailableOfferings = PLENTY,
    **more: Any,
) -> tuple[FleetPlan | Refusal, tuple[InstanceType, ...]]:
    own = nodeclass(capacity_reservations=reservations)
    catalog = types("c5a.large", "m5a.large", of=own)
    wanted = new_node("c5a.large", "m5a.large", requirements=(requirement,))
    return fleet_plan.plan_fleet(wanted, own, catalog, FACTS, health, **more), catalog


def planned(*reservations: CapacityReservation, **more: Any) -> FleetPlan:
    plan, _ = asked(*reservations, **more)
    assert isinstance(plan, FleetPlan), plan
    return plan


def request(fleet: FleetPlan) -> dict[str, Any]:
    versions = {template_request.name: (f"lt-{number}", "1") for number, template_request in enumerate(fleet.templates)}
    return create_fleet.create_fleet_request(fleet, versions, launch_id="l1", count=2, client_token="l1-0")


def test_what_is_reserved_comes_first_and_its_template_names_it() -> None:
    fleet = planned(reservation())
    assert (fleet.capacity_type, fleet.reservation_kind) == ("reserved", "default")
    assert [(override.instance_type, override.zone, override.reservation_id) for override in fleet.overrides] == [
        ("c5a.large", ZONES[0], "cr-1")
    ]
    (template,) = fleet.templates
    assert template.data["CapacityReservationSpecification"] == {
        "CapacityReservationPreference": "capacity-reservations-only",
        "CapacityReservationTarget": {"CapacityReservationId": "cr-1"},
    }
    assert "InstanceMarketOptions" not in template.data
    body = request(fleet)
    assert body["TargetCapacitySpecification"]["DefaultTargetCapacityType"] == "on-demand"
    assert body["OnDemandOptions"] == {"AllocationStrategy": "lowest-price"}
    assert create_fleet.reservations_by_pool(fleet) == {f"c5a.large/{ZONES[0]}": "cr-1"}


def test_what_is_bought_opts_out_of_open_reservations() -> None:
    for requirement in (capacity_types("spot"), capacity_types("on-demand")):
        for template in planned(reservation(), requirement=requirement).templates:
            assert template.data["CapacityReservationSpecification"] == {"CapacityReservationPreference": "none"}


def test_without_the_gate_nothing_is_said_of_reservations() -> None:
    fleet = planned(reservation(), feature_gates=())
    assert fleet.capacity_type == "spot"
    assert all("CapacityReservationSpecification" not in template_request.data for template_request in fleet.templates)
    plan, _ = asked(reservation(), requirement=capacity_types("reserved"), feature_gates=())
    assert isinstance(plan, Refusal)


def test_each_reservation_has_a_template_of_its_own() -> None:
    fleet = planned(reservation(), reservation("cr-2", "m5a.large", ZONES[1]))
    named = {
        template_request.name: template_request.data["CapacityReservationSpecification"]
        for template_request in fleet.templates
    }
    targets = {
        override.reservation_id: named[override.template_name]["CapacityReservationTarget"]["CapacityReservationId"]
        for override in fleet.overrides
    }
    assert targets == {"cr-1": "cr-1", "cr-2": "cr-2"}


def test_of_two_reservations_of_one_pool_the_one_with_more_left_is_named() -> None:
    fleet = planned(reservation("cr-5", available_instance_count=5), reservation("cr-6", available_instance_count=6))
    assert [override.reservation_id for override in fleet.overrides] == ["cr-6"]


def test_a_reservation_without_instances_is_not_named() -> None:
    assert planned(reservation(available_instance_count=0)).capacity_type == "spot"


@pytest.mark.parametrize("taken", [3, 4])
def test_a_reservation_that_was_used_up_since_it_was_described_is_not_named(taken: int) -> None:
    unavailable_offerings = from_snapshot([UnavailableOffering("reserved", "cr-1", "*", reservation_launches=taken)])
    assert planned(reservation(), health=unavailable_offerings).capacity_type == "spot"


def test_a_capacity_block_is_asked_for_alone_in_its_own_market() -> None:
    blocks = (
        reservation("cr-1", reservation_type="capacity-block"),
        reservation("cr-2", "m5a.large", reservation_type="capacity-block"),
    )
    fleet = planned(*blocks)
    assert [(override.instance_type, override.reservation_id) for override in fleet.overrides] == [
        ("c5a.large", "cr-1")
    ]
    (template,) = fleet.templates
    assert template.data["InstanceMarketOptions"] == {"MarketType": "capacity-block"}
    body = request(fleet)
    assert body["TargetCapacitySpecification"]["DefaultTargetCapacityType"] == "capacity-block"
    assert not {"OnDemandOptions", "SpotOptions", "ReservedCapacityOptions"} & set(body)


def test_an_interruptible_reservation_is_reserved_capacity_of_its_type() -> None:
    fleet = planned(reservation(interruptible=True))
    (template,) = fleet.templates
    assert template.data["InstanceMarketOptions"] == {"MarketType": "interruptible-capacity-reservation"}
    body = request(fleet)
    assert body["TargetCapacitySpecification"]["DefaultTargetCapacityType"] == "reserved-capacity"
    assert body["ReservedCapacityOptions"] == {"ReservationTypes": ["interruptible-capacity-reservation"]}


@pytest.mark.parametrize(
    ("prices", "chosen"),
    [
        ({"c5a.large": 1, "m5a.large": 2}, "cr-block"),
        ({"c5a.large": 2, "m5a.large": 1}, "cr-plain"),
        ({"c5a.large": 1, "m5a.large": 1}, "cr-plain"),
    ],
)
def test_one_kind_only_the_cheapest_and_the_usual_one_in_a_tie(prices: dict[str, int], chosen: str) -> None:
    own = nodeclass(
        capacity_reservations=(
            reservation("cr-block", "c5a.large", reservation_type="capacity-block"),
            reservation("cr-plain", "m5a.large"),
        )
    )
    priced = {name: price * 10**12 for name, price in prices.items()}
    sells = msgspec.structs.replace(region("c5a.large", "m5a.large"), on_demand=priced)
    wanted = new_node("c5a.large", "m5a.large", requirements=(ANY_KIND,))
    fleet = fleet_plan.plan_fleet(wanted, own, types("c5a.large", "m5a.large", of=own, sells=sells), FACTS, PLENTY)
    assert isinstance(fleet, FleetPlan)
    assert [override.reservation_id for override in fleet.overrides] == [chosen]


def test_only_a_node_in_a_reservation_has_its_labels() -> None:
    _, catalog = asked(reservation())
    instance_type = next(candidate for candidate in catalog if candidate.name == "c5a.large")

    def learnt(kind: str, into: str) -> dict[str, str]:
        status = launched_status.launched_status(
            instance_id="i-1", zone=ZONES[0], capacity_type=kind, instance_type=instance_type,
            node=new_node("c5a.large"), reservation_id=into,
        )  # fmt: skip
        return {key: value for key, value in status.labels.items() if "reservation" in key or "capacity-type" in key}

    assert learnt("on-demand", "") == {labels.CAPACITY_TYPE: "on-demand"}
    assert learnt("reserved", "cr-1") == {
        labels.CAPACITY_TYPE: "reserved",
        labels.RESERVATION_ID: "cr-1",
        labels.RESERVATION_TYPE: "default",
        labels.RESERVATION_INTERRUPTIBLE: "false",
    }
