"""NodeOverlays: whether each counts, and what keeps it from counting; what a node is bought out of under them."""

from datetime import datetime
from typing import Final

from spotwright.failures import Conflict, NotFound
from spotwright.lifecycle import conditions, nodepool_status
from spotwright.lifecycle.steps import ConditionChange, false_condition, transition_events, true_condition
from spotwright.model.ec2.instance_type import InstanceType
from spotwright.model.karpenter.nodeoverlay import NodeOverlay
from spotwright.scheduling.offerings.overlays import OverlayStatus, apply_overlays
from spotwright.scheduling.plan import NewNode
from spotwright.workflows.lifecycle_acting import Acting, log, note

VALID: Final = "ValidationSucceeded"


def types_for(ports: Acting, node: NewNode) -> tuple[InstanceType, ...]:
    """What can be bought for a node, with the prices and resources that it was decided by."""
    catalog = ports.catalogs.read(ports.state.catalog_key())
    if node.price_overlay_applied or node.capacity_overlay_applied:
        catalog = apply_overlays(catalog, ports.cluster.nodeoverlays(), ports.cluster.nodepools()).catalog
    return catalog.instance_types(node.nodeclass, node.nodepool)


def step(ports: Acting, *, now: datetime) -> None:
    """Judge them together, as the planner does; one that somebody else is writing is left to the next time."""
    overlays = ports.cluster.nodeoverlays()
    key = ports.state.catalog_key()
    if not overlays or not key:
        return
    verdicts = apply_overlays(ports.catalogs.read(key), overlays, ports.cluster.nodepools()).statuses
    by_name = {one.name: one for one in overlays}
    for verdict in verdicts:
        try:
            _judge(ports, by_name[verdict.name], verdict, now)
        except (Conflict, NotFound) as lost:
            log.info("overlay is in other hands", extra={"NodeOverlay": verdict.name, "conflict": str(lost)})


def _judge(ports: Acting, overlay: NodeOverlay, verdict: OverlayStatus, now: datetime) -> None:
    changes: tuple[ConditionChange, ...] = (
        (false_condition(VALID, verdict.reason, verdict.message),) if verdict.reason else (true_condition(VALID),)
    )
    about = overlay.metadata
    written = conditions.conditions_to_write(
        about, overlay.conditions, changes, dependents=conditions.NODEOVERLAY_CONDITIONS, now=now
    )
    if written:
        ports.cluster.set_conditions("nodeoverlays", about, written)
        note(ports, "nodeoverlays", about, transition_events(overlay.conditions, written), now=now)
        note(ports, "nodeoverlays", about, nodepool_status.validation_events(changes), now=now)
