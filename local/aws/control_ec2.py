"""Control routes about instances: list them, take spot capacity away, recommend a rebalance."""

from collections.abc import Mapping
from typing import Any

from local.aws import ec2_events
from local.aws.control import Invalid
from local.aws.ec2_instances import SPOT_TERMINATION, Instance, Instances
from local.aws.ec2_shapes import shown
from local.aws.timers import Timers
from local.aws.world import World

# The notice EC2 gives before it takes a spot instance back.
NOTICE_SECONDS = 120.0


def add(world: World) -> None:
    world.route("GET", "/_local/instances", lambda _body, _query: _list(world))
    world.route("POST", "/_local/interrupt", lambda body, _: _interrupt(world, body))
    world.route("POST", "/_local/rebalance", lambda body, _: _rebalance(world, body))


def _list(world: World) -> dict[str, Any]:
    return {"instances": [shown(world, instance) for instance in world.part(Instances).all()]}


def _interrupt(world: World, body: Mapping[str, Any]) -> dict[str, Any]:
    """The warning now; the instance is terminated `seconds` later."""
    instance = _spot(world, body)
    seconds = float(body.get("seconds", NOTICE_SECONDS))
    ec2_events.interruption_warning(world, instance.id)
    world.part(Timers).after(seconds, lambda: _take_back(world.part(Instances), instance.id))
    return {"instanceId": instance.id, "seconds": seconds}


def _take_back(instances: Instances, instance_id: str) -> None:
    if instances.find(instance_id) is not None:
        instances.terminate(instance_id, SPOT_TERMINATION)


def _rebalance(world: World, body: Mapping[str, Any]) -> dict[str, Any]:
    instance = _spot(world, body)
    ec2_events.rebalance_recommended(world, instance.id)
    return {"instanceId": instance.id}


def _spot(world: World, body: Mapping[str, Any]) -> Instance:
    instance = world.part(Instances).find(body["instanceId"])
    if instance is None or instance.spot_request_id is None:
        raise Invalid(f"{body['instanceId']} is not a spot instance of this world")
    return instance
