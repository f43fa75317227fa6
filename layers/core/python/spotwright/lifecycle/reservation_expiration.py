"""What happens to a NodeClaim when its capacity reservation ends: a capacity block takes its nodes with it; nodes of
other reservations stay and become on-demand.

Source: Karpenter's AWS provider ``pkg/controllers/capacityreservation``. Karpenter leaves the label
``capacity-reservation-interruptible`` on a node that left its reservation; here all three labels go.
"""

from typing import Final

from spotwright.lifecycle.steps import Deletion
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import CapacityReservation, EC2NodeClass

# As a merge patch of a claim's or a node's labels.
ON_DEMAND_LABELS: Final[dict[str, str | None]] = {
    labels.CAPACITY_TYPE: labels.ON_DEMAND,
    **dict.fromkeys(labels.RESERVATION_LABELS),
}


def is_reserved(claim: NodeClaim) -> bool:
    return claim.metadata.labels.get(labels.CAPACITY_TYPE) == labels.RESERVED


def nodeclaim_reservation(claim: NodeClaim, nodeclass: EC2NodeClass | None) -> CapacityReservation | None:
    """The claim's reservation in the status of its class; None = it ended, or the class does not select it."""
    if nodeclass is None:
        return None
    id = claim.metadata.labels.get(labels.RESERVATION_ID)
    return next((reservation for reservation in nodeclass.capacity_reservations if reservation.id == id), None)


def capacity_block_expiration(claim: NodeClaim, nodeclass: EC2NodeClass | None) -> Deletion | None:
    """A claim in an expiring capacity block is deleted, so that its pods are drained before EC2 takes the instance."""
    reservation = nodeclaim_reservation(claim, nodeclass)
    if reservation is None or reservation.reservation_type != labels.CAPACITY_BLOCK or reservation.state != "expiring":
        return None
    end = f" at {reservation.end_time.isoformat()}" if reservation.end_time else ""
    return Deletion("capacity_block_expiring", f"capacity block {reservation.id} ends{end}")


def has_ending_reservation(claim: NodeClaim, nodeclass: EC2NodeClass | None) -> bool:
    """Whether the claim is reserved and its reservation is not active in the status of the class."""
    if claim.metadata.deletion_timestamp is not None or not is_reserved(claim):
        return False
    reservation = nodeclaim_reservation(claim, nodeclass)
    return reservation is None or reservation.state != "active"
