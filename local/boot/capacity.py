"""What a booted instance of a type offers: capacity as the kernel would report it, allocatable as kubelet would.

The reservations are nodeadm's for AL2023 (awslabs/amazon-eks-ami, nodeadm/internal/kubelet/config.go). What a
kernel keeps of the memory is an estimate from published nodes: 6 % of the first 8 GiB, 2 % up to 64 GiB,
1.5 % above; arm64 also loses 64 MiB to its contiguous memory area.
"""

from dataclasses import dataclass
from typing import Any

from local.boot.kubelet import KubeletSettings
from local.boot.quantity import parse_bytes
from local.boot.user_data import BootError

MIB = 1024**2
GIB = 1024**3
ARM_CONTIGUOUS_BYTES = 64 * MIB
# (up to, part kept by the kernel)
KERNEL_SHARES = ((8 * GIB, 0.06), (64 * GIB, 0.02), (2**63, 0.015))
FILESYSTEM_SHARE = 0.004
EPHEMERAL_RESERVED_BYTES = GIB
EVICTION_MEMORY_BYTES = 100 * MIB
EVICTION_EPHEMERAL_SHARE = 0.10
DEFAULT_VOLUME_GIB = 20


@dataclass(frozen=True, slots=True)
class InstanceType:
    """What matters of an instance type. `eni_max_pods` is its limit by network interfaces."""

    vcpus: int
    memory_mib: int
    architectures: tuple[str, ...]
    local_storage_gb: int
    eni_max_pods: int


@dataclass(frozen=True, slots=True)
class NodeResources:
    """Amounts of a node: cpu in millicores, memory and ephemeral storage in bytes, pods."""

    cpu_millicores: int
    memory_bytes: int
    ephemeral_bytes: int
    pods: int

    def quantities(self) -> dict[str, str]:
        """As Kubernetes writes them."""
        return {
            "cpu": f"{self.cpu_millicores}m",
            "memory": f"{self.memory_bytes // 1024}Ki",
            "ephemeral-storage": f"{self.ephemeral_bytes // 1024}Ki",
            "pods": str(self.pods),
            "hugepages-1Gi": "0",
            "hugepages-2Mi": "0",
        }


def read_instance_type(description: dict[str, Any]) -> InstanceType:
    """From an entry of DescribeInstanceTypes."""
    network = description["NetworkInfo"]
    cards = network.get("NetworkCards") or [{"MaximumNetworkInterfaces": network["MaximumNetworkInterfaces"]}]
    default = cards[network.get("DefaultNetworkCardIndex", 0)]
    interfaces = int(default["MaximumNetworkInterfaces"])
    return InstanceType(
        vcpus=int(description["VCpuInfo"]["DefaultVCpus"]),
        memory_mib=int(description["MemoryInfo"]["SizeInMiB"]),
        architectures=tuple(description["ProcessorInfo"]["SupportedArchitectures"]),
        local_storage_gb=int(description.get("InstanceStorageInfo", {}).get("TotalSizeInGB", 0)),
        eni_max_pods=interfaces * (int(network["Ipv4AddressesPerInterface"]) - 1) + 2,
    )


def node_capacity(
    instance_type: InstanceType, settings: KubeletSettings, *, volume_gib: int, raid: bool
) -> NodeResources:
    """What the node has in all. `raid`: local disks carry the node's storage instead of the root volume."""
    memory = instance_type.memory_mib * MIB
    kept = _kernel_bytes(memory) + (ARM_CONTIGUOUS_BYTES if "arm64" in instance_type.architectures else 0)
    if raid and instance_type.local_storage_gb:
        storage = instance_type.local_storage_gb * 1000**3
    else:
        storage = volume_gib * GIB
    return NodeResources(
        cpu_millicores=instance_type.vcpus * 1000,
        memory_bytes=(memory - kept) // 1024 * 1024,
        ephemeral_bytes=int(storage * (1 - FILESYSTEM_SHARE)),
        pods=_pods(instance_type, settings),
    )


def node_allocatable(instance_type: InstanceType, settings: KubeletSettings, capacity: NodeResources) -> NodeResources:
    """What pods may use: capacity without kube-reserved, system-reserved and eviction thresholds."""
    kube = _default_reserved(instance_type) | settings.kube_reserved
    system = settings.system_reserved
    memory_threshold = _threshold(settings, "memory.available", capacity.memory_bytes, EVICTION_MEMORY_BYTES)
    usual = int(capacity.ephemeral_bytes * EVICTION_EPHEMERAL_SHARE)
    disk_threshold = _threshold(settings, "nodefs.available", capacity.ephemeral_bytes, usual)

    def reserved(name: str) -> int:
        return kube.get(name, 0) + system.get(name, 0)

    return NodeResources(
        cpu_millicores=max(0, capacity.cpu_millicores - reserved("cpu")),
        memory_bytes=max(0, capacity.memory_bytes - reserved("memory") - memory_threshold),
        ephemeral_bytes=max(0, capacity.ephemeral_bytes - reserved("ephemeral-storage") - disk_threshold),
        pods=capacity.pods,
    )


def reserved_millicores(vcpus: int) -> int:
    """Kube-reserved cpu: 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % above."""
    total, reserved, start = vcpus * 1000, 0, 0
    for end, per_ten_thousand in ((1000, 600), (2000, 100), (4000, 50), (total, 25)):
        reserved += max(0, min(total, end) - start) * per_ten_thousand // 10000
        start = max(start, end)
    return reserved


def _default_reserved(instance_type: InstanceType) -> dict[str, int]:
    """By the pods that the network interfaces allow, whatever maxPods says."""
    return {
        "cpu": reserved_millicores(instance_type.vcpus),
        "memory": (11 * instance_type.eni_max_pods + 255) * MIB,
        "ephemeral-storage": EPHEMERAL_RESERVED_BYTES,
    }


def _pods(instance_type: InstanceType, settings: KubeletSettings) -> int:
    pods = instance_type.eni_max_pods if settings.max_pods is None else settings.max_pods
    if settings.pods_per_core:
        pods = min(pods, settings.pods_per_core * instance_type.vcpus)
    return pods


def _kernel_bytes(memory: int) -> int:
    kept, start = 0.0, 0
    for end, share in KERNEL_SHARES:
        kept += max(0, min(memory, end) - start) * share
        start = end
    return int(kept)


def _threshold(settings: KubeletSettings, signal: str, capacity: int, usual: int) -> int:
    text = settings.eviction_hard.get(signal)
    try:
        if text is None:
            return usual
        if text.endswith("%"):
            percent = float(text[:-1])
            return 0 if percent >= 100 else int(capacity * percent / 100)
        return parse_bytes(text)
    except ValueError as error:
        raise BootError("KubeletConfiguration", f"evictionHard {signal}: {error}") from error
