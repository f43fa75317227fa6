"""The CreateFleet request of a planned launch. Equal plans give byte-equal requests.

A launch row keeps the request, so that it can be sent again under its client token. Source:
https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateFleet.html. Versions are numbered, never ``$Latest``.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from spotwright.aws.launch import capacity_reservations
from spotwright.aws.launch.fleet_plan import FleetPlan
from spotwright.aws.launch.template import (
    tag_specifications,
)
from spotwright.model import labels
from spotwright.model.ec2.fleet import FleetError
from spotwright.model.ec2.instance_type import PICOUSD


def client_token(launch_id: str, attempt: int) -> str:
    """The client token of an attempt of a launch: at most 64 ASCII characters."""
    return f"{launch_id[:48]}-{attempt}"


def create_fleet_request(
    fleet: FleetPlan, versions: Mapping[str, tuple[str, str]], *, launch_id: str, count: int, client_token: str
) -> dict[str, Any]:
    """The CreateFleet request for ``count`` instances. ``versions``: template name → (id, version number as text)."""
    tags = fleet.tags | {labels.LAUNCH_TAG: launch_id}
    capacity, options = _capacity_options(fleet)
    body: dict[str, Any] = {
        "ClientToken": client_token,
        "LaunchTemplateConfigs": [
            _launch_template_config(fleet, template_request.name, versions[template_request.name])
            for template_request in fleet.templates
        ],
        "TagSpecifications": tag_specifications(("fleet", "instance", "volume"), tags),
        "TargetCapacitySpecification": {"DefaultTargetCapacityType": capacity, "TotalTargetCapacity": count},
        "Type": "instant",
    }
    return body | options | ({"Context": fleet.context} if fleet.context else {})


def _capacity_options(fleet: FleetPlan) -> tuple[str, dict[str, Any]]:
    """(DefaultTargetCapacityType, how EC2 chooses among the overrides)."""
    if fleet.capacity_type == labels.SPOT:
        strategy = "capacity-optimized-prioritized" if fleet.prioritized else "price-capacity-optimized"
        return labels.SPOT, {"SpotOptions": {"AllocationStrategy": strategy}}
    return capacity_reservations.create_fleet_fields(
        fleet.reservation_kind, "prioritized" if fleet.prioritized else "lowest-price"
    )


def reservations_by_pool(fleet: FleetPlan) -> dict[str, str]:
    """``<instance type>/<zone>`` → the capacity reservation that instances there use; others are not in it."""
    return {
        f"{override.instance_type}/{override.zone}": override.reservation_id
        for override in fleet.overrides
        if override.reservation_id
    }


def _launch_template_config(fleet: FleetPlan, name: str, version: tuple[str, str]) -> dict[str, Any]:
    return {
        "LaunchTemplateSpecification": {"LaunchTemplateId": version[0], "Version": version[1]},
        "Overrides": [
            {
                "AvailabilityZone": override.zone,
                "ImageId": override.image_id,
                "InstanceType": override.instance_type,
                "Priority": override.price_picousd_per_hour / PICOUSD,
                "SubnetId": override.subnet_id,
            }
            for override in fleet.overrides
            if override.template_name == name
        ],
    }


def market(request: Mapping[str, Any]) -> str:
    """What a request asks for in EC2's words: spot, on-demand, or a kind of reserved capacity."""
    return str(request["TargetCapacitySpecification"]["DefaultTargetCapacityType"])


def names_what_is_asked_for(error: FleetError, request: Mapping[str, Any]) -> bool:
    """Whether the error is about an offering of the request, or about all of its capacity type.

    A request asks for nothing that is known to be unavailable.
    """
    if not error.instance_type:
        return error.capacity_type == market(request)
    return any(
        (override["InstanceType"], override["AvailabilityZone"]) == (error.instance_type, error.zone)
        for config in request["LaunchTemplateConfigs"]
        for override in config["Overrides"]
    )


def encode_request(body: Mapping[str, Any]) -> str:
    """A request as the launch row keeps it: equal requests give equal text."""
    return msgspec.json.encode(body, order="deterministic").decode()
