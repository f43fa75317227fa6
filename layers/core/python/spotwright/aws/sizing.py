"""What a node of an instance type offers to pods under a class: capacity, and allocatable after overheads.

Source: Karpenter's AWS provider as documented (concepts: NodeClasses, ``spec.kubelet``) and the EKS images' own
kube-reserved formula; checked against its published instance types reference. CPU in millicores, memory in bytes.
"""

from collections.abc import Mapping
from fractions import Fraction
from typing import Final

import msgspec

from spotwright.aws.compatibility import EFA_ONLY
from spotwright.aws.described import Described
from spotwright.aws.expressions import Variables
from spotwright.aws.families import WINDOWS, Family
from spotwright.aws.kubelet_sizing import RESERVATIONS, Kubelet, KubeletError
from spotwright.model import quantity, resources
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.kubernetes.volumes import EBS_CSI_DRIVER

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


# What a node of a family that is not limited by its network interfaces runs at most.
_PODS_WITHOUT_ENI_LIMIT: Final = 110
EFA: Final = "vpc.amazonaws.com/efa"


class Overheads(msgspec.Struct, frozen=True):
    """Settings of the cluster, under Karpenter's names. ``vm_memory_overhead_percent``: a share, e.g. 0.075.

    ``expressions``: whether kubelet amounts may be expressions (gate NodeClassCEL).
    """

    vm_memory_overhead_percent: str = "0.075"
    reserved_enis: int = 0
    expressions: bool = False


class Size(msgspec.Struct, frozen=True):
    """``allocatable`` is ``capacity`` without the three overheads, never negative.

    ``kubelet``: reserved amounts as the node's kubelet must state them, where the class states expressions.
    ``attachable``: CSI driver → how many volumes of pods.
    """

    capacity: dict[str, int]
    allocatable: dict[str, int]
    kube_reserved: dict[str, int]
    system_reserved: dict[str, int]
    eviction_threshold: dict[str, int]
    kubelet: dict[str, dict[str, str]] = {}
    attachable: dict[str, int] = {}


def size(
    described: Described,
    node_class: EC2NodeClass,
    family: Family,
    overheads: Overheads,
    memory_bytes: int | None = None,
) -> Size:
    """Capacity and overheads. ``memory_bytes``: what nodes of this type and image were seen to have; None = unknown.

    Raises QuantityError and KubeletError for amounts of the class.
    """
    raw, variables = node_class.kubelet, _variables(described) if overheads.expressions else None
    kubelet = Kubelet(raw, variables)
    capacity = _capacity(described, node_class, family, kubelet, overheads, memory_bytes)
    kubelet = kubelet.with_pods(capacity[resources.PODS])
    kept = _kube_reserved(described, family, kubelet, capacity[resources.PODS])
    system, eviction = kubelet.amounts("systemReserved"), _eviction(kubelet, capacity)
    reserved = resources.add(kept, system, eviction)
    allocatable = {name: max(left - reserved.get(name, 0), 0) for name, left in capacity.items()}
    stated = {name: kubelet.reserved(name) for name in RESERVATIONS if raw.get(name) and kubelet.has_expressions}
    return Size(capacity, allocatable, kept, system, eviction, stated, attachable(described, node_class, family))


def attachable(described: Described, node_class: EC2NodeClass, family: Family) -> dict[str, int]:
    """Volumes of pods that the EBS driver will allow, as it counts when it starts: without those that the node starts
    with and, where the limit is shared, without further interfaces: the class's, or the one that the CNI keeps warm.

    Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/volume_limits.html.
    """
    if not described.ebs_attachments:
        return {}
    own = len(node_class.block_device_mappings or family.devices) or 1
    further = max(len(node_class.network_interfaces), 2 if described.interfaces > 1 else 1) - 1
    shared = further if described.ebs_attachments_shared else 0
    return {EBS_CSI_DRIVER: max(described.ebs_attachments - own - shared, 1)}


def faults(described: Described, node_class: EC2NodeClass, family: Family, overheads: Overheads) -> tuple[str, ...]:
    """Expressions of the class that have no usable value for a type, as sentences; () = all have one."""
    kubelet = Kubelet(node_class.kubelet, _variables(described))
    try:
        count = pods(described, node_class, family, kubelet, overheads)
    except KubeletError as error:
        return (str(error),)
    return kubelet.with_pods(count).faults()


def _variables(described: Described) -> Variables:
    """What expressions may name."""
    return {
        "vcpus": described.vcpus,
        "memory_mib": described.memory_mib,
        "default_enis": described.interfaces,
        "ips_per_eni": described.addresses_per_interface,
        "max_pods": eni_pods(described, 0),
        "instance_type": described.name,
    }


def _capacity(
    described: Described,
    node_class: EC2NodeClass,
    family: Family,
    kubelet: Kubelet,
    overheads: Overheads,
    memory_bytes: int | None,
) -> dict[str, int]:
    certain = {
        resources.CPU: described.vcpus * 1000,
        resources.MEMORY: _memory(described, overheads) if memory_bytes is None else memory_bytes,
        resources.EPHEMERAL_STORAGE: ephemeral_storage(described, node_class, family),
        resources.PODS: pods(described, node_class, family, kubelet, overheads),
    }
    return certain | {name: count for name, count in _devices(described, node_class, family).items() if count}


def _devices(described: Described, node_class: EC2NodeClass, family: Family) -> dict[str, int]:
    """Extended resources; 0 = the type has none."""
    neuron, interfaces = described.neuron, node_class.network_interfaces
    efa_only = sum(one.interface_type == EFA_ONLY for one in interfaces)
    found = {
        "vpc.amazonaws.com/pod-eni": described.branch_interfaces,
        "vpc.amazonaws.com/PrivateIPv4Address": described.addresses_per_interface - 1 if family.name in WINDOWS else 0,
        EFA: efa_only if interfaces else described.efa_interfaces,
        "aws.amazon.com/neuron": sum(one.count for one in neuron),
        "aws.amazon.com/neuroncore": neuron[0].count * neuron[0].cores if neuron else 0,
    }
    gpus = ({_GPU_RESOURCES.get(gpu.manufacturer.lower(), ""): gpu.count} for gpu in described.gpus)
    return {name: count for name, count in resources.add(found, *gpus).items() if name}


def _memory(described: Described, overheads: Overheads) -> int:
    """Bytes that the operating system will see: without Graviton's CMA and the hypervisor's share."""
    mib = described.memory_mib - (_ARM_CMA_MIB if described.architectures[:1] == ("arm64",) else 0)
    share = Fraction(overheads.vm_memory_overhead_percent) * mib
    return (mib - _ceil(share)) * MIB


def ephemeral_storage(described: Described, node_class: EC2NodeClass, family: Family) -> int:
    """Bytes of the disk that pods write to: local disks under RAID0, else the root or ephemeral volume."""
    if node_class.instance_store_policy == "RAID0" and described.local_storage_gb:
        return described.local_storage_gb * 10**9
    devices = node_class.block_device_mappings
    root = [one for one in devices if one.root_volume]
    named = [one for one in devices if family.ephemeral_device and one.device_name == family.ephemeral_device]
    last = list(devices[-1:]) if not family.ephemeral_device else []
    own = [one for one in family.devices if one.device_name == family.ephemeral_device]
    stated = (one.volume_size for one in (*root, *named, *last, *own) if one.volume_size)
    return quantity.amount(resources.EPHEMERAL_STORAGE, next(stated, _DEFAULT_VOLUME))


def pods(described: Described, node_class: EC2NodeClass, family: Family, kubelet: Kubelet, overheads: Overheads) -> int:
    """How many pods: ``maxPods``, else what the network interfaces can address; ``podsPerCore`` lowers it."""
    most = kubelet.max_pods()
    if most is None:
        first_card = (one for one in node_class.network_interfaces if one.network_card_index == 0)
        taken = overheads.reserved_enis + sum(one.interface_type == EFA_ONLY for one in first_card)
        most = eni_pods(described, taken) if family.eni_limited else _PODS_WITHOUT_ENI_LIMIT
    per_core = kubelet.number("podsPerCore")
    return min(most, per_core * described.vcpus) if per_core and family.pods_per_core else most


def eni_pods(described: Described, taken_enis: int) -> int:
    """Pods that addresses suffice for: one of each interface is its own, two pods use the host network.

    ``taken_enis``: interfaces that give pods no addresses. An interface is never lent prefixes: users who delegate
    them state ``maxPods``.
    """
    interfaces = max(described.interfaces - taken_enis, 0)
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
