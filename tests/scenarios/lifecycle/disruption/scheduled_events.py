"""EC2 schedules events for instances: what its status of them says, and AWS Health's messages."""

from datetime import datetime, timedelta
from typing import Any

from spotwright.model.ec2.instance_status import InstanceStatus, ScheduledEvent
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation import builders
from spotwright.simulation.world import World
from tests.scenarios.lifecycle.conftest import fresh_world

POD = builders.pod("web", cpu_millicores=1800)
HOUR = 3600


def running(pods: int = 1, *budgets: Budget) -> World:
    world = fresh_world()
    world.cluster.update("nodepools", "default", budgets=budgets or (Budget("100%"),))
    world.deploy(POD, pods)
    assert world.run(180, until=lambda: len(world.running_pods()) == pods)
    world.run(60)
    return world


def instance(claim: NodeClaim) -> str:
    return claim.provider_id.rpartition("/")[2]


def announce(world: World, claim: NodeClaim, **ahead: float) -> None:
    """EC2 schedules an event beside those that there are, and AWS Health says so: the time in its own format."""
    at = world.clock.now() + timedelta(**ahead)
    schedule(world, claim, at, *scheduled(world, claim))
    deliver(world, claim, startTime=at.strftime("%a, %d %b %Y %H:%M:%S GMT"))


def deliver(world: World, claim: NodeClaim, **fields: Any) -> None:
    detail = {
        "service": "EC2", "eventTypeCategory": "scheduledChange", "eventTypeCode": "AWS_EC2_RETIREMENT",
        "statusCode": "upcoming", "affectedEntities": [{"entityValue": instance(claim)}],
    }  # fmt: skip
    world.deliver_event("AWS Health Event", detail | fields, source="aws.health")


def names(world: World) -> set[str]:
    return {claim.name for claim in world.claims()}


def schedule(world: World, claim: NodeClaim, *times: datetime) -> None:
    """What EC2's status of the instance has from now on."""
    events = tuple(ScheduledEvent("instance-retirement", at) for at in times)
    id = instance_id(claim.provider_id)
    world.ec2.statuses[id] = InstanceStatus(id, (), events)


def scheduled(world: World, claim: NodeClaim) -> list[datetime]:
    status = world.ec2.statuses.get(instance_id(claim.provider_id))
    return [event.not_before for event in status.events if event.not_before] if status else []
