"""Claims whose capacity reservation ends: instances run on as on-demand, those of a capacity block are deleted."""

from spotwright.lifecycle import reservation_expiration
from spotwright.lifecycle.steps import Deletion
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import Node, instance_id
from spotwright.model.snapshot import RESERVED_CAPACITY
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.lifecycle.actions import log
from spotwright.workflows.ports.bundles import LifecyclePorts


def step_reservations(ports: LifecyclePorts, claim: NodeClaim, node: Node | None) -> Deletion | None:
    """Why the claim must be deleted; else the labels of claim and node are corrected. Only for reserved claims."""
    if not reservation_expiration.is_reserved(claim) or RESERVED_CAPACITY not in ports.settings.feature_gates:
        return None
    ending = reservation_expiration.capacity_block_expiration(claim, ports.cluster.nodeclass(claim.node_class_ref.name))
    if ending is None:
        _relabel(ports, claim, node)
    return ending


def _relabel(ports: LifecyclePorts, claim: NodeClaim, node: Node | None) -> None:
    """Label an instance that EC2 no longer shows in a reservation as on-demand; the claim last, since it is checked."""
    instance = ports.ec2.instance(instance_id(claim.provider_id))
    if instance is None or instance.state not in ("pending", "running") or instance.reservation_id:
        return
    if node is not None:
        ports.cluster.patch_metadata("nodes", node.metadata, {"labels": reservation_expiration.ON_DEMAND_LABELS})
    ports.cluster.patch_metadata("nodeclaims", claim.metadata, {"labels": reservation_expiration.ON_DEMAND_LABELS})
    log_line(log, log_lines.LEFT_RESERVATION, nodeclaim=claim.name)
