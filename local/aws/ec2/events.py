"""EC2's events on the default bus, as EventBridge delivers them."""

from local.aws.emulator import Emulator
from local.aws.eventbridge import event_bus


def emit_state_change(emulator: Emulator, instance_id: str, state: str) -> None:
    _emit(emulator, "EC2 Instance State-change Notification", instance_id, {"state": state})


def emit_interruption_warning(emulator: Emulator, instance_id: str) -> None:
    _emit(emulator, "EC2 Spot Instance Interruption Warning", instance_id, {"instance-action": "terminate"})


def emit_rebalance_recommendation(emulator: Emulator, instance_id: str) -> None:
    _emit(emulator, "EC2 Instance Rebalance Recommendation", instance_id, {})


def _emit(emulator: Emulator, detail_type: str, instance_id: str, detail: dict[str, str]) -> None:
    arn = f"arn:aws:ec2:{emulator.region}:{emulator.account}:instance/{instance_id}"
    event_bus.emit_service_event(emulator, "aws.ec2", detail_type, {"instance-id": instance_id} | detail, [arn])
