"""The whole decision: nodes that static NodePools lack, a place for every pending pod, room for capacity buffers.

What is decided is in ``plan``. Nothing here depends on the order in which pods, nodes or pools are listed.
"""

from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling import capacity_buffers, static_pools
from spotwright.scheduling.plan import Plan


def plan(snapshot: Snapshot, catalog: Catalog) -> Plan:
    """Static pools first, since pods may use their nodes; buffers last, on what the pods leave."""
    decided = static_pools.plan_with_static_pools(snapshot, catalog)
    return capacity_buffers.add_capacity_buffers(decided, snapshot, catalog)
