"""Zones from which the cluster's traffic is shifted away: what EC2 reports of them is not relied on.

As in Karpenter, nothing is terminated or tagged there until the shift ends, and an instance is not taken for gone.
"""

from typing import Final

from spotwright.workflows.ports.bundles import LifecyclePorts

# How soon a step for an instance in such a zone is tried again.
RETRY_SECONDS: Final = 60


def shifted_zones(ports: LifecyclePorts) -> frozenset[str]:
    """Names of the shifted zones, by the newest catalog or that of some seconds before: a catalog learns of a shift
    within minutes. It has their ids; the subnets of classes have the names.
    """
    shifted = ports.catalogs.read(ports.state.recent_catalog_key()).shifted_zone_ids
    if not shifted:
        return frozenset()
    subnets = (subnet for node_class in ports.cluster.nodeclasses() for subnet in node_class.subnets)
    return frozenset(subnet.zone for subnet in subnets if subnet.zone_id in shifted)
