"""What an API call touches: the questions it puts to IAM, per service.

An action without an entry here is asked for with ANY_RESOURCE, which every Resource element fits: the action
itself is always enforced, its resources where they are worked out.
"""

from collections.abc import Callable, Mapping
from typing import Any

from moto.ec2.models import ec2_backends

from local.aws import ec2_templates, iam_access_dynamodb, iam_access_eks, iam_access_iam, iam_access_s3
from local.aws.iam_policy import ANY_RESOURCE, Access
from local.aws.iam_tags import arn, from_pairs, from_specifications, request_tags, resource_tags
from local.aws.request import AwsError, AwsRequest
from local.aws.world import World

type Asked = Callable[[World, AwsRequest], list[Access]]

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


def of(world: World, request: AwsRequest) -> list[Access]:
    asked = SERVICES.get(request.service)
    if asked is None:
        return [Access(f"{_prefix(request)}:{request.action}", ANY_RESOURCE)]
    return asked(world, request)


def _prefix(request: AwsRequest) -> str:
    return str(request.model.signing_name)


def _sts(world: World, request: AwsRequest) -> list[Access]:
    role, tags = request.params.get("RoleArn", ANY_RESOURCE), from_pairs(request.params.get("Tags"))
    asked = [Access(f"sts:{request.action}", role, request_tags(tags))]
    return [*asked, Access("sts:TagSession", role, request_tags(tags))] if tags else asked


def _sqs(world: World, request: AwsRequest) -> list[Access]:
    params = request.params
    name = params.get("QueueName") or str(params.get("QueueUrl", "")).rsplit("/", 1)[-1]
    resource = f"arn:aws:sqs:{world.region}:{world.account}:{name}" if name else ANY_RESOURCE
    return [Access(f"sqs:{_SQS_ACTIONS.get(request.action, request.action)}", resource)]


def _ssm(world: World, request: AwsRequest) -> list[Access]:
    params = request.params
    names = [*params.get("Names", []), params.get("Name"), params.get("Path")]
    resources = [_parameter(world, name) for name in names if name]
    return [Access(f"ssm:{request.action}", resource) for resource in resources or [ANY_RESOURCE]]


def _parameter(world: World, name: str) -> str:
    account = "" if name.startswith("/aws/service/") else world.account
    return f"arn:aws:ssm:{world.region}:{account}:parameter/{name.lstrip('/')}"


def _lambda(world: World, request: AwsRequest) -> list[Access]:
    action = "InvokeFunction" if request.action.startswith("Invoke") else request.action
    name = str(request.params.get("FunctionName") or "")
    if not name:
        return [Access(f"lambda:{action}")]
    resource = name if name.startswith("arn:") else f"arn:aws:lambda:{world.region}:{world.account}:function:{name}"
    return [Access(f"lambda:{action}", resource)]


def _cloudwatch(world: World, request: AwsRequest) -> list[Access]:
    namespace = request.params.get("Namespace")
    context = {"cloudwatch:namespace": (str(namespace),)} if namespace else {}
    return [Access(f"cloudwatch:{request.action}", ANY_RESOURCE, context)]


def _ec2(world: World, request: AwsRequest) -> list[Access]:
    answer = EC2_ACTIONS.get(request.action)
    touched = answer(world, request) if answer else [Access(f"ec2:{request.action}")]
    region = {"ec2:region": (request.region,)}
    return [Access(access.action, access.resource, {**region, **access.context}) for access in touched]


def _create_fleet(world: World, request: AwsRequest) -> list[Access]:
    """The fleet and the templates; instances and what they use are asked for launch by launch."""
    tags = from_specifications(request.params.get("TagSpecifications"))
    fleet = arn(world, "fleet", "*")
    asked = [Access("ec2:CreateFleet", fleet, request_tags(tags.get("fleet", {})))]
    for kind in ("instance", "volume", "network-interface"):
        if kind in tags:
            asked.append(Access("ec2:CreateFleet", arn(world, kind, "*"), request_tags(tags[kind])))
    for config in request.params.get("LaunchTemplateConfigs") or []:
        asked += _template("ec2:CreateFleet", world, config.get("LaunchTemplateSpecification") or {})
        asked += _overridden(world, config.get("Overrides") or [])
    if "fleet" in tags:
        context = {**request_tags(tags["fleet"]), "ec2:createaction": ("CreateFleet",)}
        asked.append(Access("ec2:CreateTags", fleet, context))
    return asked


def _overridden(world: World, overrides: list[Mapping[str, Any]]) -> list[Access]:
    """Images and subnets named by overrides, each once."""
    named = {item["ImageId"] for item in overrides if item.get("ImageId")}
    subnets = {item["SubnetId"] for item in overrides if item.get("SubnetId")}
    resources = [f"arn:aws:ec2:{world.region}::image/{image}" for image in sorted(named)]
    resources += [arn(world, "subnet", subnet) for subnet in sorted(subnets)]
    return [Access("ec2:CreateFleet", resource) for resource in resources]


def _template(action: str, world: World, params: Mapping[str, Any]) -> list[Access]:
    try:
        template = ec2_templates.find(world, params.get("LaunchTemplateId"), params.get("LaunchTemplateName"))
    except AwsError:
        return [Access(action, arn(world, "launch-template", "*"))]
    tags = ec2_backends[world.account][world.region].tags.get(template.id, {})
    return [Access(action, arn(world, "launch-template", template.id), resource_tags(tags))]


def _on_template(world: World, request: AwsRequest) -> list[Access]:
    return _template(f"ec2:{request.action}", world, request.params)


def _create_template(world: World, request: AwsRequest) -> list[Access]:
    tags = from_specifications(request.params.get("TagSpecifications")).get("launch-template", {})
    resource = arn(world, "launch-template", "*")
    asked = [Access("ec2:CreateLaunchTemplate", resource, request_tags(tags))]
    if tags:
        context = {**request_tags(tags), "ec2:createaction": ("CreateLaunchTemplate",)}
        asked.append(Access("ec2:CreateTags", resource, context))
    return asked


def _on_instances(world: World, request: AwsRequest) -> list[Access]:
    return [
        Access(f"ec2:{request.action}", _ec2_arn(world, item), _ec2_tags(world, item))
        for item in request.params.get("InstanceIds") or []
    ]


def _tag(world: World, request: AwsRequest) -> list[Access]:
    asked = request_tags(from_pairs(request.params.get("Tags")))
    return [
        Access(f"ec2:{request.action}", _ec2_arn(world, item), {**asked, **_ec2_tags(world, item)})
        for item in request.params.get("Resources") or []
    ]


def _ec2_arn(world: World, resource_id: str) -> str:
    return arn(world, _EC2_KINDS.get(resource_id.split("-")[0], "*"), resource_id)


def _ec2_tags(world: World, resource_id: str) -> dict[str, tuple[str, ...]]:
    return resource_tags(ec2_backends[world.account][world.region].tags.get(resource_id, {}))


def _zonal_shift(_world: World, request: AwsRequest) -> list[Access]:
    resource = (request.params["resourceIdentifier"],)
    return [Access(f"arc-zonal-shift:{request.action}", "*", {"arc-zonal-shift:resourceidentifier": resource})]


EC2_ACTIONS: Mapping[str, Asked] = {
    "CreateFleet": _create_fleet,
    # RunInstances is asked for launch by launch, see iam_access_launch.
    "RunInstances": lambda world, request: [],
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

SERVICES: Mapping[str, Asked] = {
    "ec2": _ec2,
    "sts": _sts,
    "sqs": _sqs,
    "ssm": _ssm,
    "lambda": _lambda,
    "cloudwatch": _cloudwatch,
    "dynamodb": iam_access_dynamodb.of,
    "s3": iam_access_s3.of,
    "eks": iam_access_eks.of,
    "arc-zonal-shift": _zonal_shift,
    "iam": iam_access_iam.of,
}
