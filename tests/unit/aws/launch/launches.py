"""Launches of new nodes: what is asked of EC2 for them, or why nothing is."""

from typing import Any

from spotwright.aws.instance_types.unavailable_offerings import UnavailableOfferings, from_snapshot
from spotwright.aws.launch import create_fleet, fleet_plan
from spotwright.aws.launch.fleet_plan import FleetPlan
from spotwright.aws.refusal import Refusal
from spotwright.model.ec2.instance_type import InstanceType
from spotwright.model.snapshot import UnavailableOffering
from spotwright.scheduling.plan import NewNode
from tests.unit.aws.samples import FACTS, capacity_types, nodeclass

PLENTY = UnavailableOfferings()


FREE_CHOICE = (capacity_types("spot", "on-demand"),)


def closed(*offerings: tuple[str, str, str]) -> UnavailableOfferings:
    return from_snapshot(UnavailableOffering(*offering) for offering in offerings)


def planned(
    wanted: NewNode, catalog: tuple[InstanceType, ...], health: UnavailableOfferings = PLENTY, **changes: Any
) -> FleetPlan:
    plan = fleet_plan.plan_fleet(wanted, nodeclass(**changes), catalog, FACTS, health)
    assert isinstance(plan, FleetPlan), plan
    return plan


def refused(
    wanted: NewNode, catalog: tuple[InstanceType, ...], health: UnavailableOfferings = PLENTY, **changes: Any
) -> Refusal:
    refusal = fleet_plan.plan_fleet(wanted, nodeclass(**changes), catalog, FACTS, health)
    assert isinstance(refusal, Refusal), refusal
    return refusal


def asked_types(fleet: FleetPlan) -> set[str]:
    return {override.instance_type for override in fleet.overrides}


def asked(fleet: FleetPlan, count: int = 1) -> dict[str, Any]:
    versions = {template_request.name: (f"lt-{number}", "3") for number, template_request in enumerate(fleet.templates)}
    return create_fleet.create_fleet_request(
        fleet, versions, launch_id="l1", count=count, client_token=create_fleet.client_token("l1", 0)
    )
