"""What a launch touches: the permissions EC2 asks for when it starts an instance on somebody's behalf.

https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html (RunInstances). Each item
is a list of alternatives of which one must be allowed.
"""

from moto.ec2.models import ec2_backends

from local.aws import placement_groups
from local.aws.ec2_instances import Launch
from local.aws.iam_policy import Access
from local.aws.iam_tags import arn, request_tags, resource_tags
from local.aws.world import World

# The action that EC2 names as creator of tags set at launch is one of these.
CREATORS = ("RunInstances", "CreateFleet")
LAUNCHED = ("instance", "volume", "network-interface")


def of(world: World, launch: Launch) -> list[list[Access]]:
    return [
        *_used(world, launch),
        *_created(world, launch),
        *_tagged(world, launch),
        *_passed(launch),
    ]


def _used(world: World, launch: Launch) -> list[list[Access]]:
    """What exists already: image, subnet, security groups, template, reservation, placement group."""
    image = f"arn:aws:ec2:{world.region}::image/{launch.image_id}"
    existing = [(image, launch.image_id), (arn(world, "subnet", launch.subnet_id), launch.subnet_id)]
    existing += [(arn(world, "security-group", group), group) for group in launch.security_groups]
    template = launch.tags.get("instance", {}).get("aws:ec2launchtemplate:id")
    if template:
        existing.append((arn(world, "launch-template", template), template))
    if launch.reservation_target:
        id = launch.reservation_target
        existing.append((arn(world, "capacity-reservation", id), id))
    group = placement_groups.named(world, launch.group)
    if group:
        existing.append((arn(world, "placement-group", group), launch.group))
    tags = ec2_backends[world.account][world.region].tags
    return [
        [Access("ec2:RunInstances", resource, resource_tags(tags.get(resource_id, {})))]
        for resource, resource_id in existing
    ]


def _kinds(launch: Launch) -> tuple[str, ...]:
    return (*LAUNCHED, "spot-instances-request") if launch.capacity_type == "spot" else LAUNCHED


def _created(world: World, launch: Launch) -> list[list[Access]]:
    """What comes into being, with the tags it gets."""
    return [[Access("ec2:RunInstances", arn(world, kind, "*"), _tags(launch, kind))] for kind in _kinds(launch)]


def _tagged(world: World, launch: Launch) -> list[list[Access]]:
    return [
        [
            Access(
                "ec2:CreateTags",
                arn(world, kind, "*"),
                {**_tags(launch, kind), "ec2:createaction": (creator,)},
            )
            for creator in CREATORS
        ]
        for kind in _kinds(launch)
        if _own(launch, kind)
    ]


def _own(launch: Launch, kind: str) -> dict[str, str]:
    """The caller's tags, without EC2's own."""
    return {key: value for key, value in launch.tags.get(kind, {}).items() if not key.startswith("aws:")}


def _tags(launch: Launch, kind: str) -> dict[str, tuple[str, ...]]:
    return request_tags(_own(launch, kind)) | {"ec2:instancetype": (launch.instance_type,)}


def _passed(launch: Launch) -> list[list[Access]]:
    if launch.role is None:
        return []
    return [[Access("iam:PassRole", launch.role, {"iam:passedtoservice": ("ec2.amazonaws.com",)})]]
