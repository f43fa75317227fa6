"""Instances over the EC2 API: describe, status, terminate, run."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from local.aws.calls.paging import page
from local.aws.calls.request import AwsError, AwsRequest, AwsResponse
from local.aws.ec2.filters import apply_filters
from local.aws.ec2.instance_shapes import instance_shape, private_dns_name
from local.aws.ec2.instances import STATE_CODES, Instance, Instances
from local.aws.ec2.launches import builder, launch_templates, vcpu_quotas
from local.aws.ec2.launches.fleets import Fleets, start_instances
from local.aws.emulator import Emulator


def add(emulator: Emulator) -> None:
    emulator.component(Instances)
    emulator.handle("ec2", "DescribeInstances", lambda request: _describe(emulator, request))
    emulator.handle("ec2", "DescribeInstanceStatus", lambda request: _describe_status(emulator, request))
    emulator.handle("ec2", "TerminateInstances", lambda request: _terminate(emulator, request))
    emulator.handle("ec2", "RunInstances", lambda request: _run(emulator, request))


def _values(emulator: Emulator) -> dict[str, Callable[[Instance], object]]:
    """The filters of DescribeInstances this part knows."""
    return {
        "instance-id": lambda instance: instance.id,
        "instance-state-name": lambda instance: instance.state,
        "instance-state-code": lambda instance: STATE_CODES[instance.state],
        "instance-lifecycle": lambda instance: "spot" if instance.spot_request_id else None,
        "instance-type": lambda instance: instance.launch.instance_type,
        "availability-zone": lambda instance: instance.launch.zone,
        "subnet-id": lambda instance: instance.launch.subnet_id,
        "vpc-id": lambda instance: instance.moto_instance.vpc_id,
        "image-id": lambda instance: instance.launch.image_id,
        "architecture": lambda instance: instance.launch.architecture,
        "client-token": lambda instance: instance.launch.client_token,
        "private-ip-address": lambda instance: instance.moto_instance.private_ip,
        "private-dns-name": lambda instance: private_dns_name(emulator, instance),
        "spot-instance-request-id": lambda instance: instance.spot_request_id,
        "iam-instance-profile.arn": lambda instance: instance.launch.profile_arn,
        "instance.group-id": lambda instance: instance.launch.security_groups,
        "reservation-id": lambda instance: instance.reservation_id,
    }


def find_instances(emulator: Emulator, ids: Sequence[str]) -> list[Instance]:
    """The instances with these ids, all when there are none; an unknown id is EC2's error."""
    instances = emulator.component(Instances)
    if not ids:
        return instances.shown()
    malformed = [item for item in ids if not item.startswith("i-")]
    if malformed:
        raise AwsError("InvalidInstanceID.Malformed", f'Invalid id: "{malformed[0]}"')
    missing = [item for item in ids if instances.find_shown(item) is None]
    if missing:
        verb = "ID" if len(missing) == 1 else "IDs"
        raise AwsError(
            "InvalidInstanceID.NotFound",
            f"The instance {verb} '{', '.join(missing)}' {'does' if verb == 'ID' else 'do'} not exist",
        )
    return [instance for item in dict.fromkeys(ids) if (instance := instances.find(item)) is not None]


def _describe(emulator: Emulator, request: AwsRequest) -> AwsResponse:
    params = request.params
    if params.get("InstanceIds") and params.get("MaxResults"):
        raise AwsError(
            "InvalidParameterCombination",
            "The parameter instancesSet cannot be used with the parameter maxResults",
        )
    instances = emulator.component(Instances)
    found = apply_filters(
        find_instances(emulator, params.get("InstanceIds") or []),
        params.get("Filters") or [],
        values=_values(emulator),
        tags=lambda instance: instances.tags(instance.id),
    )
    some, token = page(found, params, default=1000)
    return request.reply({"Reservations": _reservations(emulator, some)} | token)


def _reservations(emulator: Emulator, instances: Sequence[Instance]) -> list[dict[str, Any]]:
    by_id: dict[str, dict[str, Any]] = {}
    for instance in instances:
        reservation = by_id.setdefault(
            instance.reservation_id,
            {
                "ReservationId": instance.reservation_id,
                "OwnerId": emulator.account,
                "Groups": [],
                "Instances": [],
            },
        )
        reservation["Instances"].append(instance_shape(emulator, instance))
    return list(by_id.values())


STATUS_CHECKS = {
    "system-status.status": "SystemStatus",
    "instance-status.status": "InstanceStatus",
    "attached-ebs-status.status": "AttachedEbsStatus",
}


def _describe_status(emulator: Emulator, request: AwsRequest) -> AwsResponse:
    """A running instance is well, but for the checks and scheduled events that the control API gave it."""
    params = request.params
    health: dict[str, Callable[[Instance], object]] = {
        name: partial(_summary, check=check) for name, check in STATUS_CHECKS.items()
    }
    health["event.code"] = lambda instance: [event["Code"] for event in instance.scheduled_events]
    instances = apply_filters(
        find_instances(emulator, params.get("InstanceIds") or []),
        params.get("Filters") or [],
        values=_values(emulator) | health,
    )
    if not params.get("IncludeAllInstances"):
        instances = [instance for instance in instances if instance.state == "running"]
    some, token = page(instances, params, default=1000)
    return request.reply({"InstanceStatuses": [_status(instance) for instance in some]} | token)


def _summary(instance: Instance, check: str) -> str:
    if instance.state != "running":
        return "not-applicable"
    return "impaired" if check in instance.impaired_since else "ok"


def _status(instance: Instance) -> dict[str, Any]:
    return {
        "InstanceId": instance.id,
        "AvailabilityZone": instance.launch.zone,
        "InstanceState": {"Name": instance.state, "Code": STATE_CODES[instance.state]},
        "Events": instance.scheduled_events,
        **{check: _check(instance, check) for check in STATUS_CHECKS.values()},
    }


def _check(instance: Instance, check: str) -> dict[str, Any]:
    since, summary = instance.impaired_since.get(check), _summary(instance, check)
    if summary == "not-applicable":
        return {"Status": summary, "Details": []}
    detail = {"Name": "reachability", "Status": "passed"}
    if since is not None:
        detail |= {"Status": "failed", "ImpairedSince": since.strftime("%Y-%m-%dT%H:%M:%SZ")}
    return {"Status": summary, "Details": [detail]}


def _terminate(emulator: Emulator, request: AwsRequest) -> AwsResponse:
    params = request.params
    found = find_instances(emulator, params.get("InstanceIds") or [])
    if not params.get("InstanceIds"):
        raise AwsError("MissingParameter", "The request must contain the parameter InstanceId")
    if params.get("DryRun"):
        raise dry_run_error()
    instances = emulator.component(Instances)
    return request.reply({"TerminatingInstances": [_change(item.id, *instances.terminate(item.id)) for item in found]})


def _change(instance_id: str, before: str, after: str) -> dict[str, Any]:
    return {
        "InstanceId": instance_id,
        "PreviousState": {"Name": before, "Code": STATE_CODES[before]},
        "CurrentState": {"Name": after, "Code": STATE_CODES[after]},
    }


def _run(emulator: Emulator, request: AwsRequest) -> AwsResponse:
    """RunInstances: the same launch as a fleet's, from one template or from the request alone."""
    params = request.params
    market = (params.get("InstanceMarketOptions") or {}).get("MarketType") or "on-demand"
    data, identity = _run_data(emulator, params)
    launch = builder.build_specification(
        emulator,
        data,
        capacity_type=str(market),
        request_tags=params.get("TagSpecifications") or (),
        identifiers=identity,
    )
    for check in emulator.component(Fleets).launch_checks:
        check(request, launch)
    if params.get("DryRun"):
        raise dry_run_error()
    most, least = int(params.get("MaxCount") or 1), int(params.get("MinCount") or 1)
    started, code = start_instances(emulator, launch, most)
    if len(started) < least:
        for instance in started:
            emulator.component(Instances).terminate(instance.id)
        if code in vcpu_quotas.CODES.values():
            raise emulator.component(vcpu_quotas.VcpuQuotas).refusal(launch)
        raise AwsError(code or "InsufficientInstanceCapacity", "Insufficient capacity.", 500)
    return request.reply(
        {
            "ReservationId": started[0].reservation_id,
            "OwnerId": emulator.account,
            "Groups": [],
            "Instances": [instance_shape(emulator, instance) for instance in started],
        }
    )


def _run_data(emulator: Emulator, params: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """Template data with the request's own parameters on top, and what the launch is identified by."""
    own = {key: value for key, value in params.items() if key != "TagSpecifications" and value is not None}
    identity = {"client_token": params.get("ClientToken") or ""}
    if not params.get("LaunchTemplate"):
        _one_place_for_the_subnet(own)
        return own, identity
    template_id, version, data = launch_templates.resolve_template(emulator, params["LaunchTemplate"])
    _one_place_for_the_subnet({**data, **own})
    return {**data, **own}, identity | {"template_id": template_id, "template_version": str(version)}


def _one_place_for_the_subnet(data: Mapping[str, Any]) -> None:
    if data.get("NetworkInterfaces") and data.get("SubnetId"):
        raise AwsError(
            "InvalidParameterCombination",
            "Network interfaces and an instance-level subnet ID may not be specified on the same request",
        )


def dry_run_error() -> AwsError:
    return AwsError("DryRunOperation", "Request would have succeeded, but DryRun flag is set.", 412)
