"""EC2's events on the default bus, as EventBridge delivers them."""

from local.aws import eventbridge
from local.aws.world import World


def state_changed(world: World, instance_id: str, state: str) -> None:
    _emit(world, "EC2 Instance State-change Notification", instance_id, {"state": state})


def interruption_warning(world: World, instance_id: str) -> None:
    _emit(world, "EC2 Spot Instance Interruption Warning", instance_id, {"instance-action": "terminate"})


def rebalance_recommended(world: World, instance_id: str) -> None:
    _emit(world, "EC2 Instance Rebalance Recommendation", instance_id, {})


def _emit(world: World, detail_type: str, instance_id: str, detail: dict[str, str]) -> None:
    arn = f"arn:aws:ec2:{world.region}:{world.account}:instance/{instance_id}"
    eventbridge.emit(world, "aws.ec2", detail_type, {"instance-id": instance_id} | detail, [arn])
