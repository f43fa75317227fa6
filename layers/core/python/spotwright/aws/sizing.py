"""What a node of an instance type offers to pods under a class: capacity, and allocatable after overheads.

Source: Karpenter's AWS provider as documented (concepts: NodeClasses, ``spec.kubelet``) and the EKS images' own
kube-reserved formula; checked against its published instance types reference. CPU in millicores, memory in bytes.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Final

import msgspec

from spotwright.aws.described import Described
from spotwright.aws.families import Family
from spotwright.model import quantity, resources
from spotwright.model.nodeclass import EC2NodeClass

MIB: Final = 2**20
GIB: Final = 2**30
# The contiguous memory that Graviton guests set aside.
_ARM_CMA_MIB: Final = 64
_EVICTION_MEMORY: Final = 100 * MIB
_EVICTION_STORAGE_PERCENT: Final = 10
_RESERVED_STORAGE: Final = GIB
_DEFAULT_VOLUME: Final = "20Gi"
# Millicores up to which a share, in parts of 10,000, is reserved for Kubernetes.
_CPU_BRACKETS: Final = ((0, 1000, 600), (1000, 2000, 100), (2000, 4000, 50), (4000, 2**63, 25))
_GPU_RESOURCES: Final = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "habana": "habana.ai/gaudi"}


class Overheads(msgspec.Struct, frozen=True):
    """Settings of the cluster, under Karpenter's names. ``vm_memory_overhead_percent``: a share, e.g. 0.075."""

    vm_memory_overhead_percent: str = "0.075"
    reserved_enis: int = 0


class Size(msgspec.Struct, frozen=True):
    """``allocatable`` is ``capacity`` without the three overheads, never negative."""

    capacity: dict[str, int]
    allocatable: dict[str, int]
    kube_reserved: dict[str, int]
    system_reserved: dict[str, int]
    eviction_threshold: dict[str, int]


def size(described: Described, node_class: EC2NodeClass, family: Family, overheads: Overheads) -> Size:
    """Capacity and overheads. Raises QuantityError for amounts of the class."""
    kubelet = Kubelet(node_class.kubelet)
    capacity = _capacity(described, node_class, family, kubelet, overheads)
    kept = _kube_reserved(described, family, kubelet, capacity[resources.PODS])
    system, eviction = kubelet.amounts("systemReserved"), _eviction(kubelet, capacity)
    reserved = resources.add(kept, system, eviction)
    allocatable = {name: max(left - reserved.get(name, 0), 0) for name, left in capacity.items()}
    return Size(capacity, allocatable, kept, system, eviction)


class Kubelet:
    """The parts of a raw KubeletConfiguration that sizing reads; what is not a plain value is left aside.

    Expressions (CEL) are refused by validation, so here they only must not break the catalog.
    """

    def __init__(self, raw: Mapping[str, object]) -> None:
        self._raw = raw

    def number(self, name: str) -> int | None:
        value = self._raw.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def amounts(self, name: str) -> dict[str, int]:
        """A map of reserved amounts, e.g. kubeReserved."""
        given = self._raw.get(name)
        found = {}
        for resource, value in (given if isinstance(given, Mapping) else {}).items():
            try:
                found[str(resource)] = quantity.amount(str(resource), value)
            except quantity.QuantityError:
                continue
        return found

    def eviction(self, signal: str) -> str | None:
        given = self._raw.get("evictionHard")
        value = given.get(signal) if isinstance(given, Mapping) else None
        return None if value is None else str(value)


def _capacity(
    described: Described, node_class: EC2NodeClass, family: Family, kubelet: Kubelet, overheads: Overheads
) -> dict[str, int]:
    gpus = {_GPU_RESOURCES.get(gpu.manufacturer.lower(), ""): gpu.count for gpu in described.gpus}
    neuron = described.neuron
    possible = {
        "vpc.amazonaws.com/pod-eni": described.branch_interfaces,
        "vpc.amazonaws.com/efa": described.efa_interfaces,
        "aws.amazon.com/neuron": sum(one.count for one in neuron),
        "aws.amazon.com/neuroncore": neuron[0].count * neuron[0].cores if neuron else 0,
    } | {name: count for name, count in gpus.items() if name}
    certain = {
        resources.CPU: described.vcpus * 1000,
        resources.MEMORY: _memory(described, overheads),
        resources.EPHEMERAL_STORAGE: ephemeral_storage(described, node_class, family),
        resources.PODS: pods(described, family, kubelet, overheads),
    }
    return certain | {name: count for name, count in possible.items() if count}


def _memory(described: Described, overheads: Overheads) -> int:
    """Bytes that the operating system will see: without Graviton's CMA and the hypervisor's share."""
    mib = described.memory_mib - (_ARM_CMA_MIB if described.architectures[:1] == ("arm64",) else 0)
    share = Fraction(overheads.vm_memory_overhead_percent) * mib
    return (mib - _ceil(share)) * MIB


def ephemeral_storage(described: Described, node_class: EC2NodeClass, family: Family) -> int:
    """Bytes of the disk that pods write to: local disks under RAID0, else the root or ephemeral volume."""
    if node_class.instance_store_policy == "RAID0" and described.local_storage_gb:
        return described.local_storage_gb * 10**9
    devices = node_class.block_devices
    root = [one for one in devices if one.root_volume]
    named = [one for one in devices if family.ephemeral_device and one.device_name == family.ephemeral_device]
    last = list(devices[-1:]) if not family.ephemeral_device else []
    own = [one for one in family.devices if one.device_name == family.ephemeral_device]
    chosen = (*root, *named, *last, *own)
    stated = chosen[0].volume_size if chosen else ""
    return quantity.amount(resources.EPHEMERAL_STORAGE, stated or _DEFAULT_VOLUME)


def pods(described: Described, family: Family, kubelet: Kubelet, overheads: Overheads) -> int:
    """How many pods: ``maxPods``, else what the network interfaces can address; ``podsPerCore`` lowers it."""
    stated = kubelet.number("maxPods")
    most = eni_pods(described, overheads.reserved_enis) if stated is None else stated
    per_core = kubelet.number("podsPerCore")
    return min(most, per_core * described.vcpus) if per_core and family.pods_per_core else most


def eni_pods(described: Described, reserved_enis: int) -> int:
    """Pods that addresses suffice for: one of each interface is its own, two pods use the host network."""
    interfaces = max(described.interfaces - reserved_enis, 0)
    return interfaces * (described.addresses_per_interface - 1) + 2 if interfaces else 0


def _kube_reserved(described: Described, family: Family, kubelet: Kubelet, pod_count: int) -> dict[str, int]:
    """What kubelet and runtime keep, key by key overridden by ``kubeReserved``."""
    counted = eni_pods(described, 0) if family.overhead_counts_all_pods else pod_count
    return {
        resources.CPU: reserved_cpu(described.vcpus * 1000),
        resources.MEMORY: (11 * counted + 255) * MIB,
        resources.EPHEMERAL_STORAGE: _RESERVED_STORAGE,
    } | kubelet.amounts("kubeReserved")


def reserved_cpu(millicores: int) -> int:
    """Millicores: 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % above; each cut down."""
    return sum(
        (min(millicores, end) - start) * share // 10_000 for start, end, share in _CPU_BRACKETS if millicores > start
    )


def _eviction(kubelet: Kubelet, capacity: Mapping[str, int]) -> dict[str, int]:
    """The hard eviction thresholds; soft ones do not take anything away."""
    memory, storage = capacity[resources.MEMORY], capacity[resources.EPHEMERAL_STORAGE]
    return {
        resources.MEMORY: _threshold(kubelet.eviction("memory.available"), memory, _EVICTION_MEMORY),
        resources.EPHEMERAL_STORAGE: _threshold(
            kubelet.eviction("nodefs.available"), storage, _ceil(Fraction(storage * _EVICTION_STORAGE_PERCENT, 100))
        ),
    }


def _threshold(stated: str | None, capacity: int, default: int) -> int:
    """Bytes. A percentage is of the capacity; 100 % switches the signal off, as the kubelet reads it."""
    if stated is None:
        return default
    try:
        if stated.endswith("%"):
            share = Fraction(stated.removesuffix("%"))
            return 0 if share == 100 else _ceil(share * capacity / 100)
        return quantity.amount(resources.MEMORY, stated)
    except (ValueError, ZeroDivisionError):
        return default


def _ceil(number: Fraction) -> int:
    return -(-number.numerator // number.denominator)
