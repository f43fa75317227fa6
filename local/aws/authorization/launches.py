"""What a launch touches: the permissions EC2 asks for when it starts an instance on somebody's behalf.

https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html (RunInstances). Each item
is a list of alternatives of which one must be allowed.
"""

from moto.ec2.models import ec2_backends

from local.aws.ec2.instances import LaunchSpecification
from local.aws.ec2.launches import placement_groups
from local.aws.emulator import Emulator
from local.aws.iam.condition_keys import ec2_arn, request_tags, resource_tags
from local.aws.iam.policies import AccessRequest

# The action that EC2 names as creator of tags set at launch is one of these.
CREATORS = ("RunInstances", "CreateFleet")
LAUNCHED = ("instance", "volume", "network-interface")


def required_access(emulator: Emulator, launch: LaunchSpecification) -> list[list[AccessRequest]]:
    return [
        *_used(emulator, launch),
        *_created(emulator, launch),
        *_tagged(emulator, launch),
        *_passed(launch),
    ]


def _used(emulator: Emulator, launch: LaunchSpecification) -> list[list[AccessRequest]]:
    """What exists already: image, subnet, security groups, template, reservation, placement group."""
    image = f"arn:aws:ec2:{emulator.region}::image/{launch.image_id}"
    existing = [(image, launch.image_id), (ec2_arn(emulator, "subnet", launch.subnet_id), launch.subnet_id)]
    existing += [(ec2_arn(emulator, "security-group", group), group) for group in launch.security_groups]
    template = launch.tags.get("instance", {}).get("aws:ec2launchtemplate:id")
    if template:
        existing.append((ec2_arn(emulator, "launch-template", template), template))
    if launch.capacity_reservation_target:
        id = launch.capacity_reservation_target
        existing.append((ec2_arn(emulator, "capacity-reservation", id), id))
    group = placement_groups.group_name(emulator, launch.placement_group_id)
    if group:
        existing.append((ec2_arn(emulator, "placement-group", group), launch.placement_group_id))
    tags = ec2_backends[emulator.account][emulator.region].tags
    return [
        [AccessRequest("ec2:RunInstances", resource, resource_tags(tags.get(resource_id, {})))]
        for resource, resource_id in existing
    ]


def _kinds(launch: LaunchSpecification) -> tuple[str, ...]:
    return (*LAUNCHED, "spot-instances-request") if launch.capacity_type == "spot" else LAUNCHED


def _created(emulator: Emulator, launch: LaunchSpecification) -> list[list[AccessRequest]]:
    """What comes into being, with the tags it gets."""
    return [
        [AccessRequest("ec2:RunInstances", ec2_arn(emulator, kind, "*"), _tags(launch, kind))]
        for kind in _kinds(launch)
    ]


def _tagged(emulator: Emulator, launch: LaunchSpecification) -> list[list[AccessRequest]]:
    return [
        [
            AccessRequest(
                "ec2:CreateTags",
                ec2_arn(emulator, kind, "*"),
                {**_tags(launch, kind), "ec2:createaction": (creator,)},
            )
            for creator in CREATORS
        ]
        for kind in _kinds(launch)
        if _own(launch, kind)
    ]


def _own(launch: LaunchSpecification, kind: str) -> dict[str, str]:
    """The caller's tags, without EC2's own."""
    return {key: value for key, value in launch.tags.get(kind, {}).items() if not key.startswith("aws:")}


def _tags(launch: LaunchSpecification, kind: str) -> dict[str, tuple[str, ...]]:
    return request_tags(_own(launch, kind)) | {"ec2:instancetype": (launch.instance_type,)}


def _passed(launch: LaunchSpecification) -> list[list[AccessRequest]]:
    if launch.role_arn is None:
        return []
    return [[AccessRequest("iam:PassRole", launch.role_arn, {"iam:passedtoservice": ("ec2.amazonaws.com",)})]]
