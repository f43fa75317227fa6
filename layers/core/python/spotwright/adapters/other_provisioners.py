"""Who else provisions nodes in a cluster: what EKS says of it, and what runs there."""

from datetime import datetime
from typing import Final

from spotwright.adapters.kubernetes.cluster import KubernetesCluster
from spotwright.model.ec2.fleet import ClusterFacts

AUTO_MODE: Final = "EKS Auto Mode"


class OtherProvisioners:
    """See OtherProvisionerPort. ``is_looked_for`` False: cdk.json skips the check ``provisioner``."""

    def __init__(self, cluster: KubernetesCluster, facts: ClusterFacts, *, is_looked_for: bool) -> None:
        self._cluster, self._facts, self._is_looked_for = cluster, facts, is_looked_for

    def running(self, *, now: datetime) -> str:
        if not self._is_looked_for:
            return ""
        return AUTO_MODE if self._facts.is_auto_mode else self._cluster.running_karpenter(now=now)
