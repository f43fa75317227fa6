"""EventBridge's messages about instances, as interrupt gets them."""

from typing import Any
from uuid import NAMESPACE_OID, uuid5

from spotwright.simulation.world import World

SPOT = "EC2 Spot Instance Interruption Warning"
STATE = "EC2 Instance State-change Notification"
REBALANCE = "EC2 Instance Rebalance Recommendation"
HEALTH = "AWS Health Event"


def envelope(detail_type: str, source: str = "aws.ec2", **detail: Any) -> dict[str, Any]:
    detail = {"instance-id": "i-1"} | detail
    # EventBridge's id is the same for the same message.
    id = uuid5(NAMESPACE_OID, f"{detail_type} {detail}")
    return {
        "version": "0", "id": str(id), "detail-type": detail_type, "source": source, "account": "123456789012",
        "time": "2026-01-05T09:00:00Z", "region": "ap-northeast-2", "resources": [],
        "detail": detail,
    }  # fmt: skip


def change(**detail: Any) -> dict[str, Any]:
    """A scheduled change of instance i-1 in a week."""
    usual = {
        "service": "EC2", "eventTypeCategory": "scheduledChange", "eventTypeCode": "AWS_EC2_INSTANCE_STOP_SCHEDULED",
        "startTime": "Mon, 12 Jan 2026 09:00:00 GMT", "affectedEntities": [{"entityValue": "i-1"}],
    }  # fmt: skip
    return envelope(HEALTH, "aws.health", **(usual | detail))


def notices(count: int) -> list[dict[str, Any]]:
    return [envelope(SPOT, **{"instance-id": f"i-{number:02}"}) for number in range(count)]


def kept(world: World) -> tuple[str, bool]:
    row = world.state.notice("i-1")
    assert row is not None
    return row.kind, row.ended
