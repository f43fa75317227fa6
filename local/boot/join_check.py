"""Would this instance's node join the cluster? Everything that a wrong byte breaks is looked at here."""

import functools
import ipaddress
from dataclasses import dataclass
from typing import Any

from local.boot.bootstrap_scripts import parse_al2, parse_windows
from local.boot.bottlerocket import parse_bottlerocket
from local.boot.capacity import DEFAULT_VOLUME_GIB, InstanceType, NodeResources, node_allocatable, node_capacity
from local.boot.kubelet import KubeletSettings, read_settings
from local.boot.user_data import BootError, NodeConfig, parse_al2023

ACCESS_ENTRY_TYPES = {"windows": "EC2_WINDOWS"}
USER_DATA_READERS = {
    "AL2": parse_al2,
    "AL2023": parse_al2023,
    "Bottlerocket": parse_bottlerocket,
    "Windows2019": parse_windows,
    "Windows2022": parse_windows,
    "Windows2025": parse_windows,
}


@dataclass(frozen=True, slots=True)
class Cluster:
    """What EKS says of the cluster. `certificate_authority` is PEM; `dns` the address pods ask for names."""

    name: str
    endpoint: str
    certificate_authority: bytes
    service_cidr: str
    vpc_id: str


@dataclass(frozen=True, slots=True)
class Instance:
    """A launched instance, as the local AWS reports it. `role_name` is, empty without a profile.

    `ami_family` decides how user data is read. `launch_time` is a Unix time in
    seconds; `volume_gib` 0 when the launch did not size the volume that pods write to.
    """

    id: str
    state: str
    launch_time: float
    type: str
    zone: str
    zone_id: str
    region: str
    private_ip: str
    private_dns_name: str
    user_data: str
    role_name: str
    image_architecture: str
    vpc_id: str
    volume_gib: int
    ami_family: str = "AL2023"

    @property
    def os(self) -> str:
        """The operating system as nodes label it."""
        return "windows" if self.ami_family.startswith("Windows") else "linux"


@dataclass(frozen=True, slots=True)
class JoiningNode:
    """The node joins, and this is what it says of itself."""

    instance: Instance
    settings: KubeletSettings
    capacity: NodeResources
    allocatable: NodeResources


@dataclass(frozen=True, slots=True)
class JoinRefusal:
    """The node does not join. `final` is False when that may change while the instance runs."""

    code: str
    reason: str
    final: bool = True


def check_join(
    instance: Instance, cluster: Cluster, access_entries: dict[str, str], instance_type: InstanceType
) -> JoiningNode | JoinRefusal:
    """`access_entries` maps the names of roles with an access entry to the entry's type."""
    try:
        config = _node_config(instance.ami_family, instance.user_data)
        _check_cluster(config, cluster)
        settings = read_settings(config)
        _check_dns(settings, config, cluster)
        _check_place(instance, cluster, instance_type)
        capacity = _capacity(instance, config, settings, instance_type)
        allocatable = node_allocatable(instance_type, settings, capacity)
    except BootError as refused:
        return JoinRefusal(refused.code, str(refused))
    wanted = ACCESS_ENTRY_TYPES.get(instance.os, "EC2_LINUX")
    if access_entries.get(instance.role_name) != wanted:
        return _no_entry(instance, access_entries, wanted)
    return JoiningNode(instance, settings, capacity, allocatable)


@functools.lru_cache(maxsize=64)
def _node_config(ami_family: str, user_data: str) -> NodeConfig:
    """Instances of one launch template have the same. Raises BootError."""
    return USER_DATA_READERS[ami_family](user_data)


def _check_cluster(config: NodeConfig, cluster: Cluster) -> None:
    if config.cluster_name != cluster.name:
        raise BootError("ClusterName", f"cluster.name is {config.cluster_name!r}, not {cluster.name!r}")
    if config.endpoint != cluster.endpoint:
        raise BootError("Endpoint", f"no API server at {config.endpoint}: the cluster's is {cluster.endpoint}")
    if config.certificate_authority.rstrip(b"\n") != cluster.certificate_authority.rstrip(b"\n"):
        raise BootError("Authority", "cluster.certificateAuthority did not sign the API server's certificate")
    if config.cidr and config.cidr != cluster.service_cidr:
        raise BootError("Cidr", f"cluster.cidr is {config.cidr}, services are in {cluster.service_cidr}")


def _check_dns(settings: KubeletSettings, config: NodeConfig, cluster: Cluster) -> None:
    """A kubelet starts with any address here, but its pods would resolve nothing."""
    addresses: Any = config.kubelet.get("clusterDNS") or []
    if not isinstance(addresses, list):
        raise BootError("ClusterDns", "clusterDNS is not a list")
    expected = str(ipaddress.ip_network(cluster.service_cidr)[10])
    if addresses and addresses != [expected]:
        raise BootError("ClusterDns", f"clusterDNS is {addresses}, the cluster's DNS is {expected}")


def _check_place(instance: Instance, cluster: Cluster, instance_type: InstanceType) -> None:
    if instance.vpc_id != cluster.vpc_id:
        text = f"the subnet is in {instance.vpc_id}, from where {cluster.vpc_id} cannot be reached"
        raise BootError("Subnet", text)
    if instance.image_architecture not in instance_type.architectures:
        text = f"the image is for {instance.image_architecture}, {instance.type} is {instance_type.architectures}"
        raise BootError("Architecture", text)


def _capacity(
    instance: Instance, config: NodeConfig, settings: KubeletSettings, instance_type: InstanceType
) -> NodeResources:
    volume = instance.volume_gib or DEFAULT_VOLUME_GIB
    raid = config.storage_strategy in ("RAID0", "RAID10")
    return node_capacity(instance_type, settings, volume_gib=volume, raid=raid)


def _no_entry(instance: Instance, entries: dict[str, str], wanted: str) -> JoinRefusal:
    """A kubelet keeps asking, so an entry that comes later still lets the node in."""
    if not instance.role_name:
        return JoinRefusal("NoInstanceProfile", "the instance has no instance profile", final=False)
    found = entries.get(instance.role_name)
    has = f"an access entry of type {found}" if found else "no access entry"
    return JoinRefusal("AccessEntry", f"role {instance.role_name} has {has}, nodes need {wanted}", final=False)
