"""When nodes that are not spot may become spot: once the pools have been without trouble for a while.

A node falls back to on-demand because EC2 has no spot capacity, or takes it back. Consolidation finds at once that spot
is cheaper; if it followed at once, the node would go back and forth with the pool. Each new trouble begins the time
anew, that of a launch that was to return among them.
"""

from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from spotwright.disruption import cheaper_nodes
from spotwright.disruption.cheaper_nodes import SpotPool
from spotwright.model import labels
from spotwright.model.ec2.instance_type import WILDCARD, InstanceType
from spotwright.model.plurals import counted
from spotwright.model.snapshot import OfferingHistory, Snapshot
from spotwright.scheduling.plan import NewNode

# So long a spot pool has had capacity and was not interrupted before nodes return to it.
HEALTHY_MS: Final = 30 * 60 * 1000


def in_healthy_pools(node: NewNode, types: Sequence[InstanceType], snapshot: Snapshot) -> NewNode:
    """The node, to be launched as spot only in pools without trouble; without such a pool it does not become spot."""
    troubled = _troubled(snapshot)
    if not troubled or node.capacity_type != labels.SPOT:
        return node

    def is_healthy(pool: SpotPool) -> bool:
        return not any(_concerns(history, pool) for history in troubled)

    choices = [
        (options[0].best_price, -len(options), number, choice)
        for number, choice in enumerate(cheaper_nodes.in_pools(node, types, is_healthy))
        if (options := cheaper_nodes.launch_options(choice, types, (labels.SPOT,)))
    ]
    if choices:
        return min(choices)[-1]
    stated = {labels.CAPACITY_TYPE: (labels.ON_DEMAND,)}
    return msgspec.structs.replace(node, requirements=cheaper_nodes.narrow(node.requirements, stated))


def describe_trouble(nodes: Iterable[NewNode], snapshot: Snapshot) -> str:
    """Why spot does not count, to be added to a sentence; "" = there was no trouble in the pools of these nodes."""
    names = {name for node in nodes for name in node.instance_types}
    concerned = [history for history in _troubled(snapshot) if history.instance_type in (*names, WILDCARD)]
    if not concerned:
        return ""
    last = max(concerned, key=lambda history: history.troubled_at_ms)
    # Clocks of functions differ: what another one saw may lie ahead.
    minutes = max(0, -(-(_now_ms(snapshot) - last.troubled_at_ms) // 60_000))
    what = "spot" if last.instance_type == WILDCARD else f"spot {last.instance_type}"
    where = "" if last.zone == WILDCARD else f" in {last.zone}"
    return (
        f": {what}{where} had no capacity or was interrupted {counted(minutes, 'minute')} ago, and nodes return to"
        f" spot after {HEALTHY_MS // 60_000} minutes without that"
    )


def _troubled(snapshot: Snapshot) -> list[OfferingHistory]:
    since = _now_ms(snapshot) - HEALTHY_MS
    return [history for history in snapshot.offering_histories if history.troubled_at_ms > since]


def _concerns(history: OfferingHistory, pool: SpotPool) -> bool:
    return history.instance_type in (pool[0], WILDCARD) and history.zone in (pool[1], WILDCARD)


def _now_ms(snapshot: Snapshot) -> int:
    return int(snapshot.now.timestamp() * 1000)
