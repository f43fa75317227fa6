"""The ceilings of a cluster's launches as its plan sees them: without nodes that EC2 never launched.

The cluster's row counts what was decided. Where EC2 has no capacity, the same nodes are decided again and again; rows
of launches say how many of them became instances. They are read only when a good part of a ceiling is used.
"""

from datetime import datetime, timedelta
from typing import Final

import msgspec

from spotwright.decisions import ceilings
from spotwright.model.snapshot import LaunchedInMinute, Snapshot
from spotwright.scheduling.plan import NewNode
from spotwright.workflows.ports.rows import FINAL_PHASES, ClusterRow, LaunchRow, epoch_ms
from spotwright.workflows.ports.state import StatePort

# Rows of launches are read when so many percent of a ceiling are used.
READ_PERCENT: Final = 50
_WINDOW: Final = timedelta(minutes=ceilings.HOUR_MINUTES)


def with_launch_bounds(snapshot: Snapshot, row: ClusterRow, state: StatePort) -> Snapshot:
    """The snapshot with what the ceilings leave. ``row``: the cluster's, read before the snapshot. Raises ApiError."""
    bounds = ceilings.launch_bounds(snapshot.settings, row.launched, snapshot.now)
    if any(bound.used * 100 >= bound.allowed * READ_PERCENT for bound in bounds):
        launched = _without_failed(row, state, snapshot.now)
        bounds = ceilings.launch_bounds(snapshot.settings, launched, snapshot.now)
    return msgspec.structs.replace(snapshot, launch_bounds=bounds)


def _without_failed(row: ClusterRow, state: StatePort, now: datetime) -> tuple[LaunchedInMinute, ...]:
    rows = state.launches(created_after=epoch_ms(now - _WINDOW))
    failed = [_failed(launch) for launch in rows if launch.phase in FINAL_PHASES]
    return ceilings.without_failed(row.launched, failed)


def _failed(row: LaunchRow) -> LaunchedInMinute:
    """The nodes of a launch that ended without an instance for them."""
    nodes = len(set(row.claims) - row.instances.keys())
    price = msgspec.json.decode(row.node, type=NewNode).price_picousd_per_hour if nodes else 0
    return LaunchedInMinute(row.created // 60_000, 0, nodes, nodes * price)
