"""Instance types as a node was decided by: with the prices and resources of NodeOverlays."""

from spotwright.model.ec2.instance_type import InstanceType
from spotwright.scheduling.offerings.overlays import apply_overlays
from spotwright.scheduling.plan import NewNode
from spotwright.workflows.ports.bundles import LifecyclePorts


def instance_types_for(ports: LifecyclePorts, node: NewNode) -> tuple[InstanceType, ...]:
    """What can be bought for a node, with the prices and resources that it was decided by."""
    catalog = ports.catalogs.read(ports.state.catalog_key())
    if node.price_overlay_applied or node.capacity_overlay_applied:
        catalog = apply_overlays(catalog, ports.cluster.nodeoverlays(), ports.cluster.nodepools()).catalog
    return catalog.instance_types(node.nodeclass, node.nodepool)
