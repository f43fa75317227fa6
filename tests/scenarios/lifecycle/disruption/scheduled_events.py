"""What EC2's status of an instance says that it has scheduled."""

from datetime import datetime

from spotwright.model.ec2.instance_status import InstanceStatus, ScheduledEvent
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation.world import World


def schedule(world: World, claim: NodeClaim, *times: datetime) -> None:
    """What EC2's status of the instance has from now on."""
    events = tuple(ScheduledEvent("instance-retirement", at) for at in times)
    id = instance_id(claim.provider_id)
    world.ec2.statuses[id] = InstanceStatus(id, (), events)


def scheduled(world: World, claim: NodeClaim) -> list[datetime]:
    status = world.ec2.statuses.get(instance_id(claim.provider_id))
    return [event.not_before for event in status.events if event.not_before] if status else []
