"""EC2's description of instance types, as InstanceTypeInfo."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from spotwright.aws.instance_types.info import Accelerator, Gpu, InstanceTypeInfo

_EBS_BY_DEFAULT: Final = "default"


def decode_instance_type(
    raw: Mapping[str, Any], *, network_mbps: Mapping[str, int], branch_interfaces: Mapping[str, int]
) -> InstanceTypeInfo:
    """``network_mbps``, ``branch_interfaces``: published figures that EC2 does not describe, by type name."""
    name, network = raw["InstanceType"], raw.get("NetworkInfo") or {}
    processor, ebs = raw.get("ProcessorInfo") or {}, raw.get("EbsInfo") or {}
    storage = raw.get("InstanceStorageInfo") or {}
    return InstanceTypeInfo(
        name=name,
        architectures=tuple(processor.get("SupportedArchitectures") or ()),
        vcpus=raw["VCpuInfo"]["DefaultVCpus"],
        memory_mib=raw["MemoryInfo"]["SizeInMiB"],
        usage_classes=tuple(raw.get("SupportedUsageClasses") or ()),
        cpu_manufacturer=processor.get("Manufacturer") or "",
        clock_mhz=round((processor.get("SustainedClockSpeedInGhz") or 0) * 1000),
        hypervisor="" if raw.get("BareMetal") else raw.get("Hypervisor") or "",
        ebs_mbps=_ebs_mbps(ebs),
        network_mbps=network_mbps.get(name, 0),
        encryption_in_transit=bool(network.get("EncryptionInTransitSupported")),
        enclaves=raw.get("NitroEnclavesSupport") == "supported",
        local_storage_gb=storage.get("TotalSizeInGB") or 0,
        local_nvme=storage.get("NvmeSupport", "unsupported") != "unsupported",
        gpus=tuple(_gpu(gpu) for gpu in (raw.get("GpuInfo") or {}).get("Gpus") or ()),
        inference=tuple(_inference((raw.get("InferenceAcceleratorInfo") or {}).get("Accelerators") or ())),
        neuron=tuple(_neuron((raw.get("NeuronInfo") or {}).get("NeuronDevices") or ())),
        interfaces=_interfaces(network),
        addresses_per_interface=network.get("Ipv4AddressesPerInterface") or 0,
        branch_interfaces=branch_interfaces.get(name, 0),
        efa_interfaces=(network.get("EfaInfo") or {}).get("MaximumEfaInterfaces") or 0,
        cards=_cards(network),
        ebs_attachments=ebs.get("MaximumEbsAttachments") or 0,
        ebs_attachments_shared=ebs.get("AttachmentLimitType") == "shared" and raw.get("Hypervisor") != "xen",
        ena=network.get("EnaSupport") in ("supported", "required"),
        nested_virtualization="nested-virtualization" in (processor.get("SupportedFeatures") or ()),
        placement_strategies=tuple((raw.get("PlacementGroupInfo") or {}).get("SupportedStrategies") or ()),
    )


def _ebs_mbps(ebs: Mapping[str, Any]) -> int:
    if ebs.get("EbsOptimizedSupport") != _EBS_BY_DEFAULT:
        return 0
    return (ebs.get("EbsOptimizedInfo") or {}).get("MaximumBandwidthInMbps") or 0


def _interfaces(network: Mapping[str, Any]) -> int:
    """Interfaces of the default network card, which has the addresses of pods."""
    default = network.get("DefaultNetworkCardIndex") or 0
    for card in network.get("NetworkCards") or ():
        if card.get("NetworkCardIndex") == default:
            return int(card["MaximumNetworkInterfaces"])
    return network.get("MaximumNetworkInterfaces") or 0


def _cards(network: Mapping[str, Any]) -> tuple[int, ...]:
    """Interfaces of every network card, by index."""
    cards = sorted(
        network.get("NetworkCards") or (), key=lambda network_card: network_card.get("NetworkCardIndex") or 0
    )
    return tuple(card.get("MaximumNetworkInterfaces") or 0 for card in cards)


def _gpu(raw: Mapping[str, Any]) -> Gpu:
    memory = (raw.get("MemoryInfo") or {}).get("SizeInMiB") or 0
    return Gpu(raw.get("Name") or "", raw.get("Manufacturer") or "", raw.get("Count") or 0, memory)


def _inference(items: Iterable[Mapping[str, Any]]) -> Iterable[Accelerator]:
    return (
        Accelerator(item.get("Name") or "", item.get("Manufacturer") or "", item.get("Count") or 0) for item in items
    )


def _neuron(items: Iterable[Mapping[str, Any]]) -> Iterable[Accelerator]:
    return (
        Accelerator(
            item.get("Name") or "", "aws", item.get("Count") or 0, (item.get("CoreInfo") or {}).get("Count") or 0
        )
        for item in items
    )
