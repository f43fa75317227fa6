"""What EKS says of a cluster.

Source: https://docs.aws.amazon.com/eks/latest/APIReference/API_DescribeCluster.html.
"""

import ipaddress
from typing import TYPE_CHECKING, Final

from spotwright.adapters.aws.errors import translate_errors
from spotwright.model.ec2.fleet import ClusterFacts

if TYPE_CHECKING:
    from mypy_boto3_eks.client import EKSClient

# EKS gives the cluster's DNS service the tenth address of the service range.
_DNS_HOST: Final = 10


def describe_cluster(client: "EKSClient", cluster: str) -> ClusterFacts:
    """Endpoint, certificate authority, version and network of the cluster; raises what eks:DescribeCluster raises."""
    with translate_errors(f"DescribeCluster {cluster}"):
        description = client.describe_cluster(name=cluster)["cluster"]
    network, vpc = description.get("kubernetesNetworkConfig", {}), description.get("resourcesVpcConfig", {})
    cidr = network.get("serviceIpv4Cidr") or network.get("serviceIpv6Cidr") or ""
    return ClusterFacts(
        name=cluster,
        endpoint=description.get("endpoint", ""),
        certificate_authority=description.get("certificateAuthority", {}).get("data", ""),
        version=description.get("version", ""),
        service_cidr=cidr,
        vpc_id=vpc.get("vpcId", ""),
        cluster_security_group=vpc.get("clusterSecurityGroupId", ""),
        arn=description.get("arn", ""),
        dns_ip=dns_address(cidr),
        is_auto_mode=bool((description.get("computeConfig") or {}).get("enabled")),
    )


def dns_address(service_cidr: str) -> str:
    """The address of the cluster's DNS service; "" when the range is not known."""
    if not service_cidr:
        return ""
    return str(ipaddress.ip_network(service_cidr, strict=False).network_address + _DNS_HOST)
