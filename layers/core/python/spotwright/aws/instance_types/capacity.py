"""What a node of an instance type offers to pods under a class: capacity, and allocatable after overheads.

Source: Karpenter's AWS provider as documented (concepts: NodeClasses, ``spec.kubelet``) and the EKS images' own
kube-reserved formula; checked against its published instance types reference. CPU in millicores, memory in bytes.
"""

import math
from fractions import Fraction
from typing import Final

import msgspec

from spotwright.aws.images.families import WINDOWS_BUILDS, AMIFamily
from spotwright.aws.instance_types.compatibility import EFA_ONLY
from spotwright.aws.instance_types.info import InstanceTypeInfo
from spotwright.aws.instance_types.overhead import MIB, eviction_thresholds, kube_reserved
from spotwright.aws.kubelet.cel import Variables
from spotwright.aws.kubelet.configuration import RESERVED_FIELDS, KubeletConfiguration, KubeletError
from spotwright.model import quantity, resources
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.kubernetes.volumes import EBS_CSI_DRIVER

# The contiguous memory area (CMA) that Linux reserves on Graviton.
_ARM_CMA_MIB: Final = 64
_DEFAULT_VOLUME: Final = "20Gi"
_GPU_RESOURCES: Final = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu", "habana": "habana.ai/gaudi"}


# What a node of a family that is not limited by its network interfaces runs at most.
_PODS_WITHOUT_ENI_LIMIT: Final = 110


class Overheads(msgspec.Struct, frozen=True):
    """Settings of the cluster, under Karpenter's names. ``vm_memory_overhead_percent``: a share, e.g. 0.075.

    ``nodeclass_cel``: whether kubelet amounts may be expressions (gate NodeClassCEL).
    """

    vm_memory_overhead_percent: str = "0.075"
    reserved_enis: int = 0
    nodeclass_cel: bool = False


class NodeResources(msgspec.Struct, frozen=True):
    """``allocatable`` is ``capacity`` without the three overheads, never negative.

    ``kubelet``: reserved amounts as the node's kubelet must state them, where the class states expressions.
    ``attachable_volumes``: CSI driver → how many volumes of pods.
    """

    capacity: dict[str, int]
    allocatable: dict[str, int]
    kube_reserved: dict[str, int]
    system_reserved: dict[str, int]
    eviction_threshold: dict[str, int]
    kubelet: dict[str, dict[str, str]] = {}
    attachable_volumes: dict[str, int] = {}


def node_resources(
    info: InstanceTypeInfo,
    nodeclass: EC2NodeClass,
    family: AMIFamily,
    overheads: Overheads,
    memory_bytes: int | None = None,
) -> NodeResources:
    """Capacity and overheads. ``memory_bytes``: what nodes of this type and image reported; None = not known yet.

    Raises QuantityError and KubeletError for amounts of the class.
    """
    raw, variables = nodeclass.kubelet, _variables(info) if overheads.nodeclass_cel else None
    kubelet = KubeletConfiguration(raw, variables)
    capacity = _capacity(info, nodeclass, family, kubelet, overheads, memory_bytes)
    kubelet = kubelet.with_max_pods(capacity[resources.PODS])
    counted_pods = eni_limited_pods(info, 0) if family.uses_eni_limited_memory_overhead else capacity[resources.PODS]
    kubernetes = kube_reserved(info.vcpus, kubelet, counted_pods)
    system, eviction = kubelet.reserved_amounts("systemReserved"), eviction_thresholds(kubelet, capacity)
    reserved = resources.add(kubernetes, system, eviction)
    allocatable = {name: max(left - reserved.get(name, 0), 0) for name, left in capacity.items()}
    stated = {
        name: kubelet.reserved_texts(name) for name in RESERVED_FIELDS if raw.get(name) and kubelet.has_expressions
    }
    return NodeResources(
        capacity,
        allocatable,
        kubernetes,
        system,
        eviction,
        stated,
        attachable_volumes(info, nodeclass, family),
    )


def attachable_volumes(info: InstanceTypeInfo, nodeclass: EC2NodeClass, family: AMIFamily) -> dict[str, int]:
    """How many volumes of pods the EBS CSI driver will allow, as it counts when it starts.

    It subtracts the volumes that the node starts with. Where volumes and network interfaces share the limit, it
    subtracts further interfaces too: those of the class, or the interface that the VPC CNI keeps warm.

    Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/volume_limits.html.
    """
    if not info.ebs_attachments:
        return {}
    own = len(nodeclass.block_device_mappings or family.block_device_mappings) or 1
    further = max(len(nodeclass.network_interfaces), 2 if info.interfaces > 1 else 1) - 1
    shared = further if info.ebs_attachments_shared else 0
    return {EBS_CSI_DRIVER: max(info.ebs_attachments - own - shared, 1)}


def expression_errors(
    info: InstanceTypeInfo, nodeclass: EC2NodeClass, family: AMIFamily, overheads: Overheads
) -> tuple[str, ...]:
    """Expressions of the class that have no usable value for a type, as sentences; () = all have one."""
    kubelet = KubeletConfiguration(nodeclass.kubelet, _variables(info))
    try:
        count = max_pods(info, nodeclass, family, kubelet, overheads)
    except KubeletError as error:
        return (str(error),)
    return kubelet.with_max_pods(count).expression_errors()


def _variables(info: InstanceTypeInfo) -> Variables:
    """The variables that expressions may name, with their values for a type."""
    return {
        "vcpus": info.vcpus,
        "memory_mib": info.memory_mib,
        "default_enis": info.interfaces,
        "ips_per_eni": info.addresses_per_interface,
        "max_pods": eni_limited_pods(info, 0),
        "instance_type": info.name,
    }


def _capacity(
    info: InstanceTypeInfo,
    nodeclass: EC2NodeClass,
    family: AMIFamily,
    kubelet: KubeletConfiguration,
    overheads: Overheads,
    memory_bytes: int | None,
) -> dict[str, int]:
    certain = {
        resources.CPU: info.vcpus * 1000,
        resources.MEMORY: _memory(info, overheads) if memory_bytes is None else memory_bytes,
        resources.EPHEMERAL_STORAGE: ephemeral_storage(info, nodeclass, family),
        resources.PODS: max_pods(info, nodeclass, family, kubelet, overheads),
    }
    return certain | {name: count for name, count in _devices(info, nodeclass, family).items() if count}


def _devices(info: InstanceTypeInfo, nodeclass: EC2NodeClass, family: AMIFamily) -> dict[str, int]:
    """Extended resources; 0 = the type has none."""
    neuron, interfaces = info.neuron, nodeclass.network_interfaces
    efa_only = sum(interface.interface_type == EFA_ONLY for interface in interfaces)
    devices = {
        "vpc.amazonaws.com/pod-eni": info.branch_interfaces,
        "vpc.amazonaws.com/PrivateIPv4Address": info.addresses_per_interface - 1
        if family.name in WINDOWS_BUILDS
        else 0,
        resources.EFA: efa_only if interfaces else info.efa_interfaces,
        "aws.amazon.com/neuron": sum(accelerator.count for accelerator in neuron),
        "aws.amazon.com/neuroncore": neuron[0].count * neuron[0].cores if neuron else 0,
    }
    gpus = ({_GPU_RESOURCES.get(gpu.manufacturer.lower(), ""): gpu.count} for gpu in info.gpus)
    return {name: count for name, count in resources.add(devices, *gpus).items() if name}


def _memory(info: InstanceTypeInfo, overheads: Overheads) -> int:
    """Bytes that the operating system will report: without Graviton's CMA and the hypervisor's share."""
    mib = info.memory_mib - (_ARM_CMA_MIB if info.architectures[:1] == ("arm64",) else 0)
    share = Fraction(overheads.vm_memory_overhead_percent) * mib
    return (mib - math.ceil(share)) * MIB


def ephemeral_storage(info: InstanceTypeInfo, nodeclass: EC2NodeClass, family: AMIFamily) -> int:
    """Bytes of the disk that pods write to: local disks under RAID0, else the root or ephemeral volume."""
    if nodeclass.instance_store_policy == "RAID0" and info.local_storage_gb:
        return info.local_storage_gb * 10**9
    devices = nodeclass.block_device_mappings
    root = [mapping for mapping in devices if mapping.root_volume]
    named = [
        mapping for mapping in devices if family.ephemeral_device and mapping.device_name == family.ephemeral_device
    ]
    last = list(devices[-1:]) if not family.ephemeral_device else []
    own = [mapping for mapping in family.block_device_mappings if mapping.device_name == family.ephemeral_device]
    stated = (mapping.volume_size for mapping in (*root, *named, *last, *own) if mapping.volume_size)
    return quantity.amount(resources.EPHEMERAL_STORAGE, next(stated, _DEFAULT_VOLUME))


def max_pods(
    info: InstanceTypeInfo,
    nodeclass: EC2NodeClass,
    family: AMIFamily,
    kubelet: KubeletConfiguration,
    overheads: Overheads,
) -> int:
    """How many pods: ``maxPods``, else what the network interfaces can address; ``podsPerCore`` lowers it."""
    pods = kubelet.max_pods()
    if pods is None:
        first_card = (
            network_interface
            for network_interface in nodeclass.network_interfaces
            if network_interface.network_card_index == 0
        )
        taken = overheads.reserved_enis + sum(
            network_interface.interface_type == EFA_ONLY for network_interface in first_card
        )
        pods = eni_limited_pods(info, taken) if family.supports_eni_limited_pod_density else _PODS_WITHOUT_ENI_LIMIT
    per_core = kubelet.number("podsPerCore")
    return min(pods, per_core * info.vcpus) if per_core and family.pods_per_core_enabled else pods


def eni_limited_pods(info: InstanceTypeInfo, reserved_enis: int) -> int:
    """How many pods get an address: an interface keeps one address, and two pods use the host network.

    ``reserved_enis``: interfaces that give pods no addresses. Prefix delegation is not counted on: users who turn it on
    state ``maxPods``.
    """
    interfaces = max(info.interfaces - reserved_enis, 0)
    return interfaces * (info.addresses_per_interface - 1) + 2 if interfaces else 0
