"""The network of a cluster: one VPC, a /18 subnet in each of three zones, the nodes' and EKS's security group.

Tags are those the Karpenter guide and EKS put on them, so that the usual selectors find them.
"""

import ipaddress
import threading
from dataclasses import dataclass
from typing import Any

from moto.ec2.models import ec2_backends

from local.aws.emulator import Emulator

BLOCK = ipaddress.IPv4Network("192.168.0.0/16")
ZONE_LETTERS = ("a", "b", "c")


@dataclass(frozen=True)
class ClusterNetwork:
    vpc_id: str
    subnet_ids: tuple[str, ...]
    security_group_id: str
    cluster_security_group_id: str


class Networks:
    """Networks by cluster name, each made on first use."""

    def __init__(self, emulator: Emulator) -> None:
        self._backend: Any = ec2_backends[emulator.account][emulator.region]
        self._region = emulator.region
        self._lock = threading.Lock()
        self._networks: dict[str, ClusterNetwork] = {}

    def for_cluster(self, cluster: str) -> ClusterNetwork:
        with self._lock:
            if cluster not in self._networks:
                self._networks[cluster] = self._made(cluster)
            return self._networks[cluster]

    def _made(self, cluster: str) -> ClusterNetwork:
        vpc = self._backend.create_vpc(str(BLOCK))
        vpc.add_tags({"Name": cluster})
        own = self._group(cluster, vpc.id, f"eks-cluster-sg-{cluster}", {"aws:eks:cluster-name": cluster})
        # EKS lets the members of its group reach each other.
        self._backend.authorize_security_group_ingress(own, "-1", None, None, [], source_groups=[{"GroupId": own}])
        return ClusterNetwork(
            vpc.id,
            self._subnets(cluster, vpc.id),
            self._group(cluster, vpc.id, f"{cluster}-node", {"karpenter.sh/discovery": cluster}),
            own,
        )

    def _subnets(self, cluster: str, vpc_id: str) -> tuple[str, ...]:
        subnets = []
        for letter, block in zip(ZONE_LETTERS, BLOCK.subnets(new_prefix=18), strict=False):
            subnet = self._backend.create_subnet(vpc_id, str(block), availability_zone=self._region + letter)
            subnet.add_tags(
                {
                    "Name": f"{cluster}-private-{letter}",
                    "karpenter.sh/discovery": cluster,
                    f"kubernetes.io/cluster/{cluster}": "shared",
                }
            )
            subnets.append(subnet.id)
        return tuple(subnets)

    def _group(self, cluster: str, vpc_id: str, name: str, tags: dict[str, str]) -> str:
        group = self._backend.create_security_group(name, f"{name} of {cluster}", vpc_id=vpc_id)
        group.add_tags({"Name": name, f"kubernetes.io/cluster/{cluster}": "owned"} | tags)
        return str(group.id)


def cluster_network(emulator: Emulator, cluster: str) -> ClusterNetwork:
    """The network of `cluster`, made now if it is new."""
    return emulator.component(Networks).for_cluster(cluster)
