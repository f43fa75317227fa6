"""The API server, EC2, machines, clock and settings of a simulated cluster as JSON, and restored from it.

None of this is stored by Spotwright: it is what is there whatever version runs. Kubernetes' objects and the settings
are written as a snapshot writes them, everything else under names of this module.
"""

import itertools
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

import msgspec

from spotwright.model.ec2.fleet import FleetError, FleetResult, Instance
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import Settings
from spotwright.simulation.cluster import KINDS
from spotwright.simulation.ec2 import FakeEc2
from spotwright.simulation.world import World

type Json = dict[str, Any]

# Where a restored cluster goes on counting: beyond every name and id that was given before.
FIRST_NUMBER: Final = 100_000


def describe(world: World) -> Json:
    """Everything that ``restore`` needs."""
    kubelets = world.kubelets
    return {
        "now": world.clock.now().isoformat(),
        "second": world._second,
        "settings": msgspec.to_builtins(world.settings),
        "objects": {kind: msgspec.to_builtins(objects) for kind in KINDS if (objects := world.cluster.all(kind))},
        "attachments": {node: list(volumes) for node, volumes in world.cluster.attachments.items()},
        "deployments": [
            {"template": msgspec.to_builtins(template), "replicas": replicas}
            for template, replicas in world._replicas.values()
        ],
        "joined": {instance: at.isoformat() for instance, at in kubelets._joined.items()},
        "asked_to_end": {pod: at.isoformat() for pod, at in kubelets._stop_requested.items()},
        "ec2": _describe_ec2(world.ec2),
    }


def restore(world: World, content: Json) -> None:
    """Give a new world what was described."""
    world.clock.advance((datetime.fromisoformat(content["now"]) - world.clock.now()).total_seconds())
    world.settings = msgspec.convert(content["settings"], Settings)
    world.cluster._uids = itertools.count(FIRST_NUMBER)
    for kind, objects in content["objects"].items():
        for obj in objects:
            world.cluster.put(kind, msgspec.convert(obj, KINDS[kind]))
    world.cluster.attachments.update({node: tuple(volumes) for node, volumes in content["attachments"].items()})
    for deployment in content["deployments"]:
        template = msgspec.convert(deployment["template"], Pod)
        world._replicas[template.metadata.name] = (template, deployment["replicas"])
    world._made, world._second = FIRST_NUMBER, content["second"]
    world.kubelets._joined = {instance: datetime.fromisoformat(at) for instance, at in content["joined"].items()}
    world.kubelets._stop_requested = {pod: datetime.fromisoformat(at) for pod, at in content["asked_to_end"].items()}
    _restore_ec2(world.ec2, content["ec2"])


def _describe_ec2(ec2: FakeEc2) -> Json:
    bodies = list(dict.fromkeys([*itertools.chain(*ec2._templates.values()), *ec2._started_from.values()]))
    return {
        "template_bodies": bodies,
        "templates": {name: [bodies.index(body) for body in versions] for name, versions in ec2._templates.items()},
        "instances": [_describe_instance(instance) for instance in ec2.instances.values()],
        "started_from": {instance: bodies.index(body) for instance, body in ec2._started_from.items()},
        "ending": dict(ec2._ending),
        "answers": {token: _describe_answer(*answer) for token, answer in ec2._answers.items()},
        "capacity": [[*pool, left] for pool, left in ec2.capacity.items()],
        "reserved": dict(ec2.reservations),
        "partitions": dict(ec2.partitions),
    }


def _restore_ec2(ec2: FakeEc2, content: Json) -> None:
    bodies = content["template_bodies"]
    ec2._numbers = itertools.count(FIRST_NUMBER)
    ec2._templates = {name: [bodies[number] for number in versions] for name, versions in content["templates"].items()}
    ec2.instances = {instance["id"]: _read_instance(instance) for instance in content["instances"]}
    ec2._started_from = {instance: bodies[number] for instance, number in content["started_from"].items()}
    ec2._ending = dict(content["ending"])
    ec2._answers = {token: _read_answer(answer) for token, answer in content["answers"].items()}
    ec2.capacity = {(kind, name, zone): left for kind, name, zone, left in content["capacity"]}
    ec2.reservations, ec2.partitions = dict(content["reserved"]), dict(content["partitions"])


def _describe_answer(request: str, result: FleetResult) -> Json:
    return {
        "request": request,
        "instances": [_describe_instance(instance) for instance in result.instances],
        "errors": [_describe_error(error) for error in result.errors],
    }


def _read_answer(answer: Json) -> tuple[str, FleetResult]:
    instances = tuple(_read_instance(instance) for instance in answer["instances"])
    return answer["request"], FleetResult(instances=instances, errors=tuple(map(_read_error, answer["errors"])))


def _describe_error(error: FleetError) -> Json:
    return {
        "code": error.code,
        "message": error.message,
        "type": error.instance_type,
        "zone": error.zone,
        "market": error.capacity_type,
        "subnet": error.subnet_id,
    }


def _read_error(error: Json) -> FleetError:
    return FleetError(
        code=error["code"],
        message=error["message"],
        instance_type=error["type"],
        zone=error["zone"],
        capacity_type=error["market"],
        subnet_id=error["subnet"],
    )


def _describe_instance(instance: Instance) -> Json:
    return {
        "id": instance.id,
        "type": instance.instance_type,
        "zone": instance.zone,
        "market": instance.capacity_type,
        "state": instance.state,
        "image": instance.image_id,
        "subnet": instance.subnet_id,
        "name": instance.private_dns_name,
        "launched": instance.launch_time.isoformat() if instance.launch_time else None,
        "tags": dict(instance.tags),
        "groups": list(instance.security_groups),
        "reservation": instance.reservation_id,
        "placement_group": instance.placement_group_id,
        "partition": instance.partition_number,
    }


def _read_instance(instance: Mapping[str, Any]) -> Instance:
    return Instance(
        id=instance["id"],
        instance_type=instance["type"],
        zone=instance["zone"],
        capacity_type=instance["market"],
        state=instance["state"],
        image_id=instance["image"],
        subnet_id=instance["subnet"],
        private_dns_name=instance["name"],
        launch_time=datetime.fromisoformat(instance["launched"]) if instance["launched"] else None,
        tags=dict(instance["tags"]),
        security_groups=tuple(instance["groups"]),
        reservation_id=instance["reservation"],
        placement_group_id=instance["placement_group"],
        partition_number=instance["partition"],
    )
