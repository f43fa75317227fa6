"""What an API call touches: the questions it puts to IAM, per service.

An action without an entry here is asked for with ANY_RESOURCE, which every Resource element fits: the action
itself is always enforced, its resources where they are worked out.
"""

from collections.abc import Callable, Mapping
from typing import Any

from moto.ec2.models import ec2_backends

from local.aws.authorization import dynamodb, eks, iam, s3
from local.aws.calls.request import AwsError, AwsRequest
from local.aws.ec2.launches import launch_templates
from local.aws.emulator import Emulator
from local.aws.iam.condition_keys import ec2_arn, request_tags, resource_tags, tags_from_pairs, tags_from_specifications
from local.aws.iam.policies import ANY_RESOURCE, AccessRequest

type RequiredAccess = Callable[[Emulator, AwsRequest], list[AccessRequest]]

# Batch calls are allowed by the action on one item.
_SQS_ACTIONS = {
    "SendMessageBatch": "SendMessage",
    "DeleteMessageBatch": "DeleteMessage",
    "ChangeMessageVisibilityBatch": "ChangeMessageVisibility",
}
_EC2_KINDS = {
    "i": "instance",
    "vol": "volume",
    "eni": "network-interface",
    "lt": "launch-template",
    "subnet": "subnet",
    "sg": "security-group",
    "ami": "image",
    "fleet": "fleet",
    "vpc": "vpc",
    "snap": "snapshot",
    "sir": "spot-instances-request",
}


def required_access(emulator: Emulator, request: AwsRequest) -> list[AccessRequest]:
    asked = SERVICES.get(request.service)
    if asked is None:
        return [AccessRequest(f"{_prefix(request)}:{request.action}", ANY_RESOURCE)]
    return asked(emulator, request)


def _prefix(request: AwsRequest) -> str:
    return str(request.model.signing_name)


def _sts(emulator: Emulator, request: AwsRequest) -> list[AccessRequest]:
    role, tags = request.params.get("RoleArn", ANY_RESOURCE), tags_from_pairs(request.params.get("Tags"))
    asked = [AccessRequest(f"sts:{request.action}", role, request_tags(tags))]
    return [*asked, AccessRequest("sts:TagSession", role, request_tags(tags))] if tags else asked


def _sqs(emulator: Emulator, request: AwsRequest) -> list[AccessRequest]:
    params = request.params
    name = params.get("QueueName") or str(params.get("QueueUrl", "")).rsplit("/", 1)[-1]
    resource = f"arn:aws:sqs:{emulator.region}:{emulator.account}:{name}" if name else ANY_RESOURCE
    return [AccessRequest(f"sqs:{_SQS_ACTIONS.get(request.action, request.action)}", resource)]


def _ssm(emulator: Emulator, request: AwsRequest) -> list[AccessRequest]:
    params = request.params
    names = [*params.get("Names", []), params.get("Name"), params.get("Path")]
    resources = [_parameter(emulator, name) for name in names if name]
    return [AccessRequest(f"ssm:{request.action}", resource) for resource in resources or [ANY_RESOURCE]]


def _parameter(emulator: Emulator, name: str) -> str:
    account = "" if name.startswith("/aws/service/") else emulator.account
    return f"arn:aws:ssm:{emulator.region}:{account}:parameter/{name.lstrip('/')}"


def _lambda(emulator: Emulator, request: AwsRequest) -> list[AccessRequest]:
    action = "InvokeFunction" if request.action.startswith("Invoke") else request.action
    name = str(request.params.get("FunctionName") or "")
    if not name:
        return [AccessRequest(f"lambda:{action}")]
    resource = (
        name if name.startswith("arn:") else f"arn:aws:lambda:{emulator.region}:{emulator.account}:function:{name}"
    )
    return [AccessRequest(f"lambda:{action}", resource)]


def _cloudwatch(emulator: Emulator, request: AwsRequest) -> list[AccessRequest]:
    namespace = request.params.get("Namespace")
    context = {"cloudwatch:namespace": (str(namespace),)} if namespace else {}
    return [AccessRequest(f"cloudwatch:{request.action}", ANY_RESOURCE, context)]


def _ec2(emulator: Emulator, request: AwsRequest) -> list[AccessRequest]:
    answer = EC2_ACTIONS.get(request.action)
    touched = answer(emulator, request) if answer else [AccessRequest(f"ec2:{request.action}")]
    region = {"ec2:region": (request.region,)}
    return [AccessRequest(access.action, access.resource, {**region, **access.context}) for access in touched]


def _create_fleet(emulator: Emulator, request: AwsRequest) -> list[AccessRequest]:
    """The fleet and the templates; instances and what they use are asked for launch by launch."""
    tags = tags_from_specifications(request.params.get("TagSpecifications"))
    fleet = ec2_arn(emulator, "fleet", "*")
    asked = [AccessRequest("ec2:CreateFleet", fleet, request_tags(tags.get("fleet", {})))]
    for kind in ("instance", "volume", "network-interface"):
        if kind in tags:
            asked.append(AccessRequest("ec2:CreateFleet", ec2_arn(emulator, kind, "*"), request_tags(tags[kind])))
    for config in request.params.get("LaunchTemplateConfigs") or []:
        asked += _template("ec2:CreateFleet", emulator, config.get("LaunchTemplateSpecification") or {})
        asked += _overridden(emulator, config.get("Overrides") or [])
    if "fleet" in tags:
        context = {**request_tags(tags["fleet"]), "ec2:createaction": ("CreateFleet",)}
        asked.append(AccessRequest("ec2:CreateTags", fleet, context))
    return asked


def _overridden(emulator: Emulator, overrides: list[Mapping[str, Any]]) -> list[AccessRequest]:
    """Images and subnets named by overrides, each once."""
    named = {item["ImageId"] for item in overrides if item.get("ImageId")}
    subnets = {item["SubnetId"] for item in overrides if item.get("SubnetId")}
    resources = [f"arn:aws:ec2:{emulator.region}::image/{image}" for image in sorted(named)]
    resources += [ec2_arn(emulator, "subnet", subnet) for subnet in sorted(subnets)]
    return [AccessRequest("ec2:CreateFleet", resource) for resource in resources]


def _template(action: str, emulator: Emulator, params: Mapping[str, Any]) -> list[AccessRequest]:
    try:
        template = launch_templates.stored_template(
            emulator, params.get("LaunchTemplateId"), params.get("LaunchTemplateName")
        )
    except AwsError:
        return [AccessRequest(action, ec2_arn(emulator, "launch-template", "*"))]
    tags = ec2_backends[emulator.account][emulator.region].tags.get(template.id, {})
    return [AccessRequest(action, ec2_arn(emulator, "launch-template", template.id), resource_tags(tags))]


def _on_template(emulator: Emulator, request: AwsRequest) -> list[AccessRequest]:
    return _template(f"ec2:{request.action}", emulator, request.params)


def _create_template(emulator: Emulator, request: AwsRequest) -> list[AccessRequest]:
    tags = tags_from_specifications(request.params.get("TagSpecifications")).get("launch-template", {})
    resource = ec2_arn(emulator, "launch-template", "*")
    asked = [AccessRequest("ec2:CreateLaunchTemplate", resource, request_tags(tags))]
    if tags:
        context = {**request_tags(tags), "ec2:createaction": ("CreateLaunchTemplate",)}
        asked.append(AccessRequest("ec2:CreateTags", resource, context))
    return asked


def _on_instances(emulator: Emulator, request: AwsRequest) -> list[AccessRequest]:
    return [
        AccessRequest(f"ec2:{request.action}", _ec2_arn(emulator, item), _ec2_tags(emulator, item))
        for item in request.params.get("InstanceIds") or []
    ]


def _tag(emulator: Emulator, request: AwsRequest) -> list[AccessRequest]:
    asked = request_tags(tags_from_pairs(request.params.get("Tags")))
    return [
        AccessRequest(f"ec2:{request.action}", _ec2_arn(emulator, item), {**asked, **_ec2_tags(emulator, item)})
        for item in request.params.get("Resources") or []
    ]


def _ec2_arn(emulator: Emulator, resource_id: str) -> str:
    return ec2_arn(emulator, _EC2_KINDS.get(resource_id.split("-")[0], "*"), resource_id)


def _ec2_tags(emulator: Emulator, resource_id: str) -> dict[str, tuple[str, ...]]:
    return resource_tags(ec2_backends[emulator.account][emulator.region].tags.get(resource_id, {}))


def _zonal_shift(_emulator: Emulator, request: AwsRequest) -> list[AccessRequest]:
    resource = (request.params["resourceIdentifier"],)
    return [AccessRequest(f"arc-zonal-shift:{request.action}", "*", {"arc-zonal-shift:resourceidentifier": resource})]


EC2_ACTIONS: Mapping[str, RequiredAccess] = {
    "CreateFleet": _create_fleet,
    # RunInstances is asked for launch by launch, see launches.
    "RunInstances": lambda emulator, request: [],
    "CreateLaunchTemplate": _create_template,
    "CreateLaunchTemplateVersion": _on_template,
    "ModifyLaunchTemplate": _on_template,
    "DeleteLaunchTemplate": _on_template,
    "DeleteLaunchTemplateVersions": _on_template,
    "TerminateInstances": _on_instances,
    "StopInstances": _on_instances,
    "StartInstances": _on_instances,
    "CreateTags": _tag,
    "DeleteTags": _tag,
}

SERVICES: Mapping[str, RequiredAccess] = {
    "ec2": _ec2,
    "sts": _sts,
    "sqs": _sqs,
    "ssm": _ssm,
    "lambda": _lambda,
    "cloudwatch": _cloudwatch,
    "dynamodb": dynamodb.required_access,
    "s3": s3.required_access,
    "eks": eks.required_access,
    "arc-zonal-shift": _zonal_shift,
    "iam": iam.required_access,
}
