"""What becomes of a claim in a capacity reservation: capacity blocks end with their nodes, other ones without.

Source: Karpenter's AWS provider ``pkg/controllers/capacityreservation``. It leaves the label that says whether the
reservation is interruptible on a node that is no longer in one; we take off all three.
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
    """The claim's reservation as its class shows it; None = it ended, or is none that the class selects."""
    if nodeclass is None:
        return None
    id = claim.metadata.labels.get(labels.RESERVATION_ID)
    return next((reservation for reservation in nodeclass.capacity_reservations if reservation.id == id), None)


def capacity_block_expiration(claim: NodeClaim, nodeclass: EC2NodeClass | None) -> Deletion | None:
    """Instances of a capacity block are taken back before it ends: their pods leave while there is time."""
    reservation = nodeclaim_reservation(claim, nodeclass)
    if reservation is None or reservation.reservation_type != labels.CAPACITY_BLOCK or reservation.state != "expiring":
        return None
    end = f" at {reservation.end_time.isoformat()}" if reservation.end_time else ""
    return Deletion("capacity_block_expiring", f"capacity block {reservation.id} ends{end}")


def has_ending_reservation(claim: NodeClaim, nodeclass: EC2NodeClass | None) -> bool:
    """Whether the class no longer shows the claim's reservation as one that goes on."""
    if claim.metadata.deletion_timestamp is not None or not is_reserved(claim):
        return False
    reservation = nodeclaim_reservation(claim, nodeclass)
    return reservation is None or reservation.state != "active"
