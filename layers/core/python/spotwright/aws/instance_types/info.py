"""An instance type as EC2 describes it, reduced to what capacity and labels are computed from: no prices, no zones.

Source: https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceTypeInfo.html.
"""

import msgspec

from spotwright.aws.images.aliases import ARCHITECTURES


class Gpu(msgspec.Struct, frozen=True):
    name: str
    manufacturer: str
    count: int
    memory_mib: int


class Accelerator(msgspec.Struct, frozen=True):
    """An inference accelerator or a Neuron device; ``cores`` per device, 0 where EC2 names none."""

    name: str
    manufacturer: str
    count: int
    cores: int = 0


class InstanceTypeInfo(msgspec.Struct, frozen=True, omit_defaults=True):
    """One instance type.

    ``architectures``: as EC2 spells them, in its order. ``interfaces``: network interfaces of the default card;
    ``cards``: of each card, by its index. ``placement_strategies``: cluster, partition, spread.
    ``ebs_attachments``: volumes that can be attached, the root volume among them, 0 = not known; local disks, devices
    and the first network interface are off it already. ``ebs_attachments_shared``: further interfaces lower it.
    ``local_storage_gb``: decimal GB, 0 = no local disks; ``local_nvme``: whether they are NVMe.
    ``network_mbps`` and ``branch_interfaces`` come from published tables, 0 = not known, not trunking-compatible.
    """

    name: str
    architectures: tuple[str, ...]
    vcpus: int
    memory_mib: int
    usage_classes: tuple[str, ...] = ()
    cpu_manufacturer: str = ""
    clock_mhz: int = 0
    hypervisor: str = ""
    ebs_mbps: int = 0
    network_mbps: int = 0
    encryption_in_transit: bool = False
    enclaves: bool = False
    local_storage_gb: int = 0
    local_nvme: bool = False
    gpus: tuple[Gpu, ...] = ()
    inference: tuple[Accelerator, ...] = ()
    neuron: tuple[Accelerator, ...] = ()
    interfaces: int = 0
    addresses_per_interface: int = 0
    branch_interfaces: int = 0
    efa_interfaces: int = 0
    cards: tuple[int, ...] = ()
    ebs_attachments: int = 0
    ebs_attachments_shared: bool = False
    ena: bool = False
    nested_virtualization: bool = False
    placement_strategies: tuple[str, ...] = ()

    @property
    def arch(self) -> str:
        """The Kubernetes architecture: the first that EC2 lists and nodes can have."""
        return next((ARCHITECTURES[name] for name in self.architectures if name in ARCHITECTURES), "")
