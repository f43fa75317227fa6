"""How much can be planned in the time that an invocation has left.

Seconds become a budget of work units and a number of pods, both part of the stored snapshot, so that a replay needs
no clock and decides the same.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.inputs.provisionable import ignore_reason
from spotwright.scheduling.strategies.priority import priority_key
from spotwright.settings import UNITS_PER_SECOND

#: The seconds that the invocation has left now; None = a plan may take any time.
type SecondsLeft = Callable[[], float] | None

# For storing snapshot and decision, the commit and the doorbell, each with its retries.
COMMIT_SECONDS: Final = 10
# No further step is begun with less time left: it is the longest that a step takes with all retries of a call.
LAST_SECONDS: Final = 10
# docs/planner-figures.md: 5,000 (1,000 pods of a mix) to 50,000 (5,000 equal ones) in a processor second, with search;
# a function may have a fifth of such a processor.
PODS_PER_SECOND: Final = 1000
# This many pods are planned however little time is left: it takes less than the reserve for the commit.
MINIMUM_PODS: Final = 200
# A plan may search several times with its whole budget: other orders, and a bound on node size.
_SEARCHES_PER_PLAN: Final = 4


def fit(snapshot: Snapshot, seconds_left: SecondsLeft) -> tuple[Snapshot, int]:
    """The snapshot with the work units and pending pods for which there is time, and how many pods were left out.

    Pods of higher priority stay, then older pods, and every pod of a node that is being disrupted.
    """
    if seconds_left is None:
        return snapshot, 0
    seconds = max(0.0, seconds_left() - COMMIT_SECONDS)
    units = min(snapshot.settings.work_units, max(1, int(seconds * UNITS_PER_SECOND / _SEARCHES_PER_PLAN)))
    settings = msgspec.structs.replace(snapshot.settings, work_units=units)
    waiting = [pod for pod in snapshot.pods if not pod.node_name and not ignore_reason(pod)]
    maximum = max(MINIMUM_PODS, int(seconds * PODS_PER_SECOND))
    postponed = {pod.key for pod in sorted(waiting, key=lambda pod: (priority_key(pod), pod.key))[maximum:]}
    pods = tuple(pod for pod in snapshot.pods if pod.key not in postponed) if postponed else snapshot.pods
    # Capacity buffers come after all pending pods.
    buffers = () if postponed else snapshot.capacity_buffers
    return msgspec.structs.replace(snapshot, pods=pods, capacity_buffers=buffers, settings=settings), len(postponed)
