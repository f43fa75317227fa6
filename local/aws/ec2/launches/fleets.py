"""CreateFleet of type instant: which pools are tried, what each gave, and the answer EC2 would give.

https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_CreateFleet.html. Instances and errors are answered
per pool, a retry with the same client token gets the same answer, and a request that cannot be met in full
starts what it can (unless MinTargetCapacity says otherwise).
"""

import json
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

from moto.ec2.models import ec2_backends

from local.aws.calls.request import AwsError, AwsRequest, AwsResponse
from local.aws.ec2.catalog.offerings import Offerings
from local.aws.ec2.instances import Instance, Instances, LaunchSpecification
from local.aws.ec2.launches import (
    builder,
    capacity_reservations,
    launch_templates,
    placement_groups,
    reservation_matching,
)
from local.aws.ec2.launches.capacity_pools import CapacityPool, allocation_order, initial_shares
from local.aws.ec2.launches.instance_capacity import InstanceCapacity
from local.aws.ec2.launches.vcpu_quotas import CODES, VcpuQuotas
from local.aws.emulator import Emulator
from local.aws.strictness import Rule

type LaunchCheck = Callable[[AwsRequest, LaunchSpecification], None]


@dataclass
class FleetOutcome:
    """What a fleet request came to so far: (pool, capacity type, instance) and error entries."""

    instances: list[tuple[CapacityPool, str, Instance]] = field(default_factory=list)
    errors: list[dict[str, Any]] = field(default_factory=list)


class Fleets:
    """Creates instant fleets, one at a time, and remembers the answers by client token."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator
        self._lock = threading.Lock()
        self._answers: dict[str, tuple[str, dict[str, Any]]] = {}
        # Asked before each launch; IAM enforcement adds itself here.
        self.launch_checks: list[LaunchCheck] = []

    def create(self, request: AwsRequest) -> AwsResponse:
        params = request.params
        _check(params)
        pools = self._pools(params)
        if params.get("DryRun"):
            self._try_out(request, pools)
            raise AwsError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)
        time.sleep(self._emulator.strictness.seconds(Rule.FLEET_DURATION, str(params.get("ClientToken"))))
        with self._lock:
            return request.reply(self._once(request, pools))

    def _once(self, request: AwsRequest, pools: list[CapacityPool]) -> dict[str, Any]:
        """The answer, or the one given before to the same client token."""
        token = request.params.get("ClientToken")
        digest = json.dumps(request.params, sort_keys=True, default=str)
        if token in self._answers:
            before, answer = self._answers[token]
            if before != digest:
                raise AwsError(
                    "IdempotentParameterMismatch",
                    "Arguments on this idempotent request are inconsistent with arguments used in previous request(s).",
                )
            return answer
        answer = self._launch(request, pools)
        if token:
            self._answers[token] = (digest, answer)
        return answer

    def _pools(self, params: Mapping[str, Any]) -> list[CapacityPool]:
        pools: list[CapacityPool] = []
        for config in params["LaunchTemplateConfigs"]:
            specification = config.get("LaunchTemplateSpecification") or {}
            template_id, version, data = launch_templates.resolve_template(self._emulator, specification)
            resolved = {"LaunchTemplateId": template_id, "Version": str(version)}
            for override in config.get("Overrides") or [{}]:
                merged = _merged(data, override)
                pools.append(CapacityPool(len(pools), resolved, merged, override, self._zone(merged)))
        _check_pools(pools, _targets(params)[0][0])
        return pools

    def _zone(self, data: Mapping[str, Any]) -> str:
        """The zone of the pool's subnet, or the zone it names; "" when the subnet does not exist."""
        for zones in ec2_backends[self._emulator.account][self._emulator.region].subnets.values():
            if data.get("SubnetId") in zones:
                return str(zones[data["SubnetId"]].availability_zone)
        return str((data.get("Placement") or {}).get("AvailabilityZone") or "")

    def _try_out(self, request: AwsRequest, pools: list[CapacityPool]) -> None:
        for pool in pools[:1]:
            launch = self._build(request, pool, _targets(request.params)[0][0], "fleet-00000000")
            for check in self.launch_checks:
                check(request, launch)

    def _launch(self, request: AwsRequest, pools: list[CapacityPool]) -> dict[str, Any]:
        fleet_id = f"fleet-{uuid.uuid4()}"
        outcome = FleetOutcome()
        for capacity_type, count in _targets(request.params):
            if count:
                self._fill(request, pools, capacity_type, count, fleet_id, outcome)
        self._drop_below_minimum(request.params, outcome)
        return {
            "FleetId": fleet_id,
            "Errors": outcome.errors,
            "Instances": [
                _instances(pool, capacity_type, [instance.id for _, _, instance in group])
                for (pool, capacity_type), group in _grouped(outcome.instances)
            ],
        }

    def _fill(
        self,
        request: AwsRequest,
        pools: list[CapacityPool],
        capacity_type: str,
        count: int,
        fleet_id: str,
        outcome: FleetOutcome,
    ) -> None:
        """Ask pool after pool; first each one's share, then whatever is still missing."""
        strategy = _strategy(request.params, capacity_type)
        best_first = allocation_order(
            pools, self._emulator.component(Offerings), capacity_type=capacity_type, strategy=strategy
        )
        failed: set[int] = set()
        rounds = [*initial_shares(count, best_first, strategy), *((pool, count) for pool in best_first)]
        missing = count
        for pool, share in rounds:
            wanted = min(share, missing)
            if wanted == 0 or pool.index in failed:
                continue
            given, error = self._take(request, pool, capacity_type, wanted, fleet_id)
            outcome.instances += [(pool, capacity_type, instance) for instance in given]
            missing -= len(given)
            if error is not None:
                failed.add(pool.index)
                outcome.errors.append(_error(pool, capacity_type, error))

    def _take(
        self, request: AwsRequest, pool: CapacityPool, capacity_type: str, wanted: int, fleet_id: str
    ) -> tuple[list[Instance], AwsError | None]:
        """Instances one pool gave, and why it gave fewer than wanted."""
        try:
            launch = self._build(request, pool, capacity_type, fleet_id)
            for check in self.launch_checks:
                check(request, launch)
            backend = ec2_backends[self._emulator.account][self._emulator.region]
            free = backend.get_subnet(launch.subnet_id).available_ip_address_count
            together, refusal = placement_groups.available_places(self._emulator, launch, wanted)
            fitting = min(together, max(free, 0))
            started, code = start_instances(self._emulator, launch, fitting)
        except AwsError as error:
            return [], error
        if refusal is not None and len(started) == together:
            return started, refusal
        if code in CODES.values():
            return started, self._emulator.component(VcpuQuotas).refusal(launch)
        code = code or ("InsufficientFreeAddressesInSubnet" if fitting < wanted else None)
        return started, AwsError(code, _capacity_message(code, launch)) if code else None

    def _build(self, request: AwsRequest, pool: CapacityPool, capacity_type: str, fleet_id: str) -> LaunchSpecification:
        return builder.build_specification(
            self._emulator,
            pool.data,
            capacity_type=capacity_type,
            request_tags=request.params.get("TagSpecifications") or (),
            identifiers={
                "fleet_id": fleet_id,
                "template_id": pool.specification["LaunchTemplateId"],
                "template_version": pool.specification["Version"],
                "client_token": request.params.get("ClientToken") or "",
            },
        )

    def _drop_below_minimum(self, params: Mapping[str, Any], outcome: FleetOutcome) -> None:
        """MinTargetCapacity: fewer instances than that are none at all."""
        for capacity_type, options in (("spot", "SpotOptions"), ("on-demand", "OnDemandOptions")):
            minimum = int((params.get(options) or {}).get("MinTargetCapacity") or 0)
            mine = [entry for entry in outcome.instances if entry[1] == capacity_type]
            if len(mine) < minimum:
                for entry in mine:
                    self._emulator.component(Instances).terminate(entry[2].id)
                    outcome.instances.remove(entry)


def start_instances(emulator: Emulator, launch: LaunchSpecification, wanted: int) -> tuple[list[Instance], str | None]:
    """Instances out of the reservation that is targeted, else out of an open one, else out of what EC2 has.

    With them the error code for those that are missing.
    """
    started, code = _started(emulator, launch, wanted)
    placement_groups.assign_partitions(emulator, started)
    return started, code


def _started(emulator: Emulator, launch: LaunchSpecification, wanted: int) -> tuple[list[Instance], str | None]:
    instances, capacity = emulator.component(Instances), emulator.component(InstanceCapacity)
    if launch.capacity_reservation_target:
        given = min(wanted, reservation_matching.remaining_instances(emulator, launch.capacity_reservation_target))
        started = instances.launch(launch, given) if given else []
        return started, "ReservationCapacityExceeded" if given < wanted else None
    found = list[Instance]()
    if launch.capacity_type == "on-demand" and launch.capacity_reservation_preference != "none":
        id, left = reservation_matching.find_open_reservation(
            emulator, instance_type=launch.instance_type, zone=launch.zone
        )
        if id and wanted:
            found = instances.launch(replace(launch, capacity_reservation_id=id), min(wanted, left))
        if launch.capacity_reservation_preference == "capacity-reservations-only" and len(found) < wanted:
            return found, "ReservationCapacityExceeded"
    rest = wanted - len(found)
    allowed = int(min(rest, emulator.component(VcpuQuotas).places(launch)))
    given, code = capacity.take(launch.instance_type, launch.zone, launch.capacity_type, allowed)
    code = CODES[launch.capacity_type] if allowed < rest else code
    return [*found, *(instances.launch(launch, given) if given else [])], code


def add(emulator: Emulator) -> None:
    emulator.handle("ec2", "CreateFleet", emulator.component(Fleets).create)


def _check(params: Mapping[str, Any]) -> None:
    if params.get("Type", "maintain") != "instant":
        raise AwsError("UnsupportedOperation", "Only fleets of type instant are implemented here.")
    if not params.get("LaunchTemplateConfigs"):
        raise AwsError("MissingParameter", "The request must contain the parameter LaunchTemplateConfigs")
    total = int((params.get("TargetCapacitySpecification") or {}).get("TotalTargetCapacity") or 0)
    if total < 1:
        raise AwsError("InvalidTargetCapacitySpecification", "TotalTargetCapacity must be at least 1.")


def _check_pools(pools: list[CapacityPool], capacity_type: str) -> None:
    """EC2 refuses a fleet that names the same pool (type and zone) twice, or templates of another market."""
    seen: set[tuple[str, str]] = set()
    for pool in pools:
        key = (pool.instance_type, pool.zone)
        if key in seen and pool.zone:
            raise AwsError(
                "InvalidFleetConfig",
                f"The fleet configuration contains duplicate instance pools: {pool.instance_type} in {pool.zone}",
            )
        seen.add(key)
        market = (pool.data.get("InstanceMarketOptions") or {}).get("MarketType")
        if market and market != capacity_type:
            raise AwsError(
                "InvalidFleetConfig", f"Launch templates of a {capacity_type} fleet cannot ask for {market}."
            )


def _merged(data: Mapping[str, Any], override: Mapping[str, Any]) -> dict[str, Any]:
    """Template data with the override on top; a zone in the override replaces the template's placement zone."""
    own = {key: override[key] for key in ("InstanceType", "SubnetId", "ImageId") if override.get(key)}
    placement = dict(data.get("Placement") or {}) | dict(override.get("Placement") or {})
    if override.get("SubnetId"):
        placement.pop("AvailabilityZone", None)
    if override.get("AvailabilityZone"):
        placement["AvailabilityZone"] = override["AvailabilityZone"]
    return {**data, **own, "Placement": placement}


def _targets(params: Mapping[str, Any]) -> list[tuple[str, int]]:
    """(capacity type, count) of the request; what is not assigned goes to the default type."""
    target = params["TargetCapacitySpecification"]
    counts = {
        "on-demand": int(target.get("OnDemandTargetCapacity") or 0),
        "spot": int(target.get("SpotTargetCapacity") or 0),
    }
    rest = int(target["TotalTargetCapacity"]) - sum(counts.values())
    default = _default_type(params)
    counts[default] = counts.get(default, 0) + max(rest, 0)
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))


def _default_type(params: Mapping[str, Any]) -> str:
    """What instances of the fleet have for their lifecycle."""
    default = str(params["TargetCapacitySpecification"].get("DefaultTargetCapacityType") or "on-demand")
    if default in ("on-demand", "spot", capacity_reservations.CAPACITY_BLOCK):
        return default
    if default != "reserved-capacity":
        raise AwsError("InvalidParameterValue", f"Value ({default}) for DefaultTargetCapacityType is invalid.")
    kinds = (params.get("ReservedCapacityOptions") or {}).get("ReservationTypes") or []
    if kinds != [reservation_matching.INTERRUPTIBLE]:
        raise AwsError("InvalidParameterValue", f"Value ({kinds}) for parameter ReservationTypes is invalid.")
    return reservation_matching.INTERRUPTIBLE


def _strategy(params: Mapping[str, Any], capacity_type: str) -> str:
    options = params.get("SpotOptions" if capacity_type == "spot" else "OnDemandOptions") or {}
    return str(options.get("AllocationStrategy") or "lowest-price")


def _described(pool: CapacityPool) -> dict[str, Any]:
    overrides = {key: value for key, value in pool.override.items() if value is not None}
    return {"LaunchTemplateSpecification": pool.specification, "Overrides": overrides}


def _instances(pool: CapacityPool, capacity_type: str, ids: list[str]) -> dict[str, Any]:
    return {
        "LaunchTemplateAndOverrides": _described(pool),
        "Lifecycle": capacity_type,
        "InstanceIds": ids,
        "InstanceType": pool.instance_type,
    }


def _grouped(entries: list[tuple[CapacityPool, str, Instance]]) -> Any:
    """Entries by (pool, capacity type), in the order in which they were started."""
    order = sorted(entries, key=lambda entry: (entry[1], entry[0].index))
    return groupby(order, key=lambda entry: (entry[0], entry[1]))


def _error(pool: CapacityPool, capacity_type: str, error: AwsError) -> dict[str, Any]:
    return {
        "LaunchTemplateAndOverrides": _described(pool),
        "Lifecycle": capacity_type,
        "ErrorCode": error.code,
        "ErrorMessage": error.message,
    }


def _capacity_message(code: str, launch: LaunchSpecification) -> str:
    match code:
        case "InsufficientInstanceCapacity" if launch.capacity_type == "spot":
            return "There is no Spot capacity available that matches your request."
        case "InsufficientInstanceCapacity":
            return (
                f"We currently do not have sufficient {launch.instance_type} capacity in the Availability Zone"
                f" you requested ({launch.zone}). Our system will be working on provisioning additional capacity."
            )
        case "InsufficientFreeAddressesInSubnet":
            return f"There are not enough free addresses in subnet '{launch.subnet_id}' to satisfy the request."
        case "ReservationCapacityExceeded":
            return (
                "The requested instance count exceeds what is available in the targeted Capacity Reservation"
                f" '{launch.capacity_reservation_target}'."
            )
        case _:
            return f"{code} for {launch.instance_type} in {launch.zone}"
