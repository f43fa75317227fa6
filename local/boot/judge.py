"""Would this instance's node join the cluster? Everything that a wrong byte breaks is looked at here."""

import ipaddress
from dataclasses import dataclass
from typing import Any

from local.boot.bottlerocket import parse_bottlerocket
from local.boot.capacity import DEFAULT_VOLUME_GIB, Machine, Resources, allocatable_of, capacity_of
from local.boot.kubelet import KubeletSettings, read_settings
from local.boot.scripts import parse_al2, parse_windows
from local.boot.userdata import NodeConfig, Refused, parse_user_data

ENTRIES = {"windows": "EC2_WINDOWS"}
READERS = {
    "AL2": parse_al2,
    "AL2023": parse_user_data,
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
    vpc: str


@dataclass(frozen=True, slots=True)
class Instance:
    """A launched instance, as the local AWS reports it. `role` is a role name, empty without a profile.

    `system` names the family of the image, which decides how user data is read. `launched` is a Unix time in
    seconds; `volume_gib` 0 when the launch did not size the volume that pods write to.
    """

    id: str
    state: str
    launched: float
    type: str
    zone: str
    zone_id: str
    region: str
    private_ip: str
    private_dns: str
    user_data: str
    role: str
    image_architecture: str
    subnet_vpc: str
    volume_gib: int
    system: str = "AL2023"

    @property
    def os(self) -> str:
        """The operating system as nodes label it."""
        return "windows" if self.system.startswith("Windows") else "linux"


@dataclass(frozen=True, slots=True)
class Joins:
    """The node joins, and this is what it says of itself."""

    instance: Instance
    settings: KubeletSettings
    capacity: Resources
    allocatable: Resources


@dataclass(frozen=True, slots=True)
class Stays:
    """The node does not join. `final` is False when that may change while the instance runs."""

    code: str
    reason: str
    final: bool = True


def judge(instance: Instance, cluster: Cluster, entries: dict[str, str], machine: Machine) -> Joins | Stays:
    """`entries` maps the names of roles with an access entry to the entry's type."""
    try:
        config = READERS[instance.system](instance.user_data)
        _check_cluster(config, cluster)
        settings = read_settings(config)
        _check_dns(settings, config, cluster)
        _check_place(instance, cluster, machine)
        capacity = _capacity(instance, config, settings, machine)
        allocatable = allocatable_of(machine, settings, capacity)
    except Refused as refused:
        return Stays(refused.code, str(refused))
    wanted = ENTRIES.get(instance.os, "EC2_LINUX")
    if entries.get(instance.role) != wanted:
        return _no_entry(instance, entries, wanted)
    return Joins(instance, settings, capacity, allocatable)


def _check_cluster(config: NodeConfig, cluster: Cluster) -> None:
    if config.cluster_name != cluster.name:
        raise Refused("ClusterName", f"cluster.name is {config.cluster_name!r}, not {cluster.name!r}")
    if config.endpoint != cluster.endpoint:
        raise Refused("Endpoint", f"no API server at {config.endpoint}: the cluster's is {cluster.endpoint}")
    if config.certificate_authority.rstrip(b"\n") != cluster.certificate_authority.rstrip(b"\n"):
        raise Refused("Authority", "cluster.certificateAuthority did not sign the API server's certificate")
    if config.cidr and config.cidr != cluster.service_cidr:
        raise Refused("Cidr", f"cluster.cidr is {config.cidr}, services are in {cluster.service_cidr}")


def _check_dns(settings: KubeletSettings, config: NodeConfig, cluster: Cluster) -> None:
    """A kubelet starts with any address here, but its pods would resolve nothing."""
    addresses: Any = config.kubelet.get("clusterDNS") or []
    if not isinstance(addresses, list):
        raise Refused("ClusterDns", "clusterDNS is not a list")
    expected = str(ipaddress.ip_network(cluster.service_cidr)[10])
    if addresses and addresses != [expected]:
        raise Refused("ClusterDns", f"clusterDNS is {addresses}, the cluster's DNS is {expected}")


def _check_place(instance: Instance, cluster: Cluster, machine: Machine) -> None:
    if instance.subnet_vpc != cluster.vpc:
        text = f"the subnet is in {instance.subnet_vpc}, from where {cluster.vpc} cannot be reached"
        raise Refused("Subnet", text)
    if instance.image_architecture not in machine.architectures:
        text = f"the image is for {instance.image_architecture}, {instance.type} is {machine.architectures}"
        raise Refused("Architecture", text)


def _capacity(instance: Instance, config: NodeConfig, settings: KubeletSettings, machine: Machine) -> Resources:
    volume = instance.volume_gib or DEFAULT_VOLUME_GIB
    raid = config.storage_strategy in ("RAID0", "RAID10")
    return capacity_of(machine, settings, volume_gib=volume, raid=raid)


def _no_entry(instance: Instance, entries: dict[str, str], wanted: str) -> Stays:
    """A kubelet keeps asking, so an entry that comes later still lets the node in."""
    if not instance.role:
        return Stays("NoInstanceProfile", "the instance has no instance profile", final=False)
    found = entries.get(instance.role)
    has = f"an access entry of type {found}" if found else "no access entry"
    return Stays("AccessEntry", f"role {instance.role} has {has}, nodes need {wanted}", final=False)
