"""The status of NodeOverlays: whether each is applied, or why not."""

from datetime import datetime
from typing import Final

from spotwright.errors import Conflict, NotFound
from spotwright.lifecycle import conditions, nodepool_status
from spotwright.lifecycle.steps import ConditionChange, false_condition, transition_events, true_condition
from spotwright.model.karpenter.nodeoverlay import NodeOverlay
from spotwright.scheduling.offerings.overlays import OverlayStatus, apply_overlays
from spotwright.telemetry import log_lines
from spotwright.telemetry.emit import log_line
from spotwright.workflows.lifecycle.actions import log, record_events
from spotwright.workflows.ports.bundles import LifecyclePorts

VALID: Final = "ValidationSucceeded"


def update_nodeoverlays(ports: LifecyclePorts, *, now: datetime) -> None:
    """Check them together, as the planner does; one that is changed concurrently is left to the next time."""
    overlays = ports.cluster.nodeoverlays()
    key = ports.state.catalog_key()
    if not overlays or not key:
        return
    verdicts = apply_overlays(ports.catalogs.read(key), overlays, ports.cluster.nodepools()).statuses
    by_name = {overlay.name: overlay for overlay in overlays}
    for verdict in verdicts:
        try:
            _write_conditions(ports, by_name[verdict.name], verdict, now)
        except (Conflict, NotFound) as lost:
            log_line(log, log_lines.CHANGED_CONCURRENTLY, kind="nodeoverlay", object=verdict.name, conflict=str(lost))


def _write_conditions(ports: LifecyclePorts, overlay: NodeOverlay, verdict: OverlayStatus, now: datetime) -> None:
    changes: tuple[ConditionChange, ...] = (
        (false_condition(VALID, verdict.reason, verdict.message),) if verdict.reason else (true_condition(VALID),)
    )
    metadata = overlay.metadata
    written = conditions.conditions_to_write(
        metadata, overlay.conditions, changes, dependents=conditions.NODEOVERLAY_CONDITIONS, now=now
    )
    if written:
        ports.cluster.set_conditions("nodeoverlays", metadata, written)
        record_events(ports, "nodeoverlays", metadata, transition_events(overlay.conditions, written), now=now)
        record_events(ports, "nodeoverlays", metadata, nodepool_status.validation_events(changes), now=now)
