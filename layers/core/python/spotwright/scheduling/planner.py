"""The whole decision: nodes that static NodePools lack, a place for every pending pod, room for capacity buffers.

Nothing here depends on the order in which pods, nodes or NodePools are listed.
"""

from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.capacity_buffers import (
    active_buffers,
    add_capacity_buffers,
    build_virtual_pods,
    with_virtual_pods,
)
from spotwright.scheduling.plan import Plan
from spotwright.scheduling.pod_planner import plan_pods
from spotwright.scheduling.static_capacity.provisioning import (
    add_static_capacity,
    plan_static_capacity,
    with_static_nodes,
)


def plan(snapshot: Snapshot, catalog: Catalog) -> Plan:
    """Static NodePools first, since pods may use their nodes; buffers last, on what the pods leave."""
    static = plan_static_capacity(snapshot, catalog)
    for_pods = add_static_capacity(plan_pods(with_static_nodes(snapshot, static), catalog), static)
    buffers = active_buffers(snapshot)
    virtual_pods = [pod for buffer in buffers for pod in build_virtual_pods(buffer, snapshot.now)]
    if not virtual_pods:
        return add_capacity_buffers(for_pods, Plan(), buffers)
    for_buffers = plan_pods(with_virtual_pods(snapshot, for_pods, virtual_pods), catalog)
    return add_capacity_buffers(for_pods, for_buffers, buffers)
