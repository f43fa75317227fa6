"""Zones that the cluster's traffic is shifted away from: what EC2 says of them, and does there, is not relied on.

As in Karpenter, nothing is terminated or tagged there until the shift ends, and an instance is not taken for gone.
"""

from typing import Final

from spotwright.workflows.ports.bundles import LifecyclePorts

# How soon it is tried again there.
RETRY_SECONDS: Final = 60


def shifted_zones(ports: LifecyclePorts) -> frozenset[str]:
    """Names of the shifted zones, by the newest catalog. It knows their ids; classes know which names those have."""
    shifted = ports.catalogs.read(ports.state.catalog_key()).shifted_zone_ids
    if not shifted:
        return frozenset()
    subnets = (subnet for node_class in ports.cluster.nodeclasses() for subnet in node_class.subnets)
    return frozenset(subnet.zone for subnet in subnets if subnet.zone_id in shifted)
