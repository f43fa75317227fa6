"""What EKS says of a cluster before anything is made in it."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from spotwright.adapters.aws.answers import ask, find
from spotwright.workflows.install.preflight.facts import Addon, ClusterDescription, NotAsked

if TYPE_CHECKING:
    from mypy_boto3_eks.client import EKSClient


def describe(eks: "EKSClient", name: str) -> ClusterDescription | None | NotAsked:
    """The cluster; None when EKS says that there is none."""
    answer = find("eks:DescribeCluster", lambda: eks.describe_cluster(name=name)["cluster"])
    return answer if answer is None or isinstance(answer, NotAsked) else _description(answer)


def _description(cluster: Mapping[str, Any]) -> ClusterDescription:
    network = cluster.get("resourcesVpcConfig") or {}
    return ClusterDescription(
        status=cluster.get("status", ""),
        version=cluster.get("version", ""),
        authentication_mode=(cluster.get("accessConfig") or {}).get("authenticationMode", ""),
        has_public_endpoint=bool(network.get("endpointPublicAccess", True)),
        has_private_endpoint=bool(network.get("endpointPrivateAccess", False)),
        public_cidrs=tuple(network.get("publicAccessCidrs") or ()),
        vpc_id=network.get("vpcId", ""),
        subnet_ids=tuple(network.get("subnetIds") or ()),
        security_groups=tuple(
            filter(None, (network.get("clusterSecurityGroupId"), *(network.get("securityGroupIds") or ())))
        ),
        is_auto_mode=bool((cluster.get("computeConfig") or {}).get("enabled")),
    )


def cluster_names(eks: "EKSClient") -> tuple[str, ...] | NotAsked:
    def listed() -> tuple[str, ...]:
        pages = eks.get_paginator("list_clusters").paginate()
        return tuple(name for page in pages for name in page["clusters"])

    return ask("eks:ListClusters", listed)


def addons(eks: "EKSClient", cluster: str) -> dict[str, Addon] | NotAsked:
    """The names of the cluster's add-ons."""

    def listed() -> dict[str, Addon]:
        pages = eks.get_paginator("list_addons").paginate(clusterName=cluster)
        return {name: Addon() for page in pages for name in page["addons"]}

    return ask("eks:ListAddons", listed)
