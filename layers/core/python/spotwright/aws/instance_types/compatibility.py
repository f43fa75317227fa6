"""Whether an instance type can run an EC2NodeClass at all, apart from images and prices.

Source: Karpenter's AWS provider as documented; https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceTypeInfo.html.
"""

from collections.abc import Iterator
from typing import Final

from spotwright.aws.images import families
from spotwright.aws.instance_types.info import InstanceTypeInfo
from spotwright.model.karpenter.nodeclass import EC2NodeClass

NITRO: Final = "nitro"
EFA_ONLY: Final = "efa-only"


def incompatibilities(info: InstanceTypeInfo, nodeclass: EC2NodeClass, family: families.AMIFamily) -> tuple[str, ...]:
    """Why the type cannot run the class, as sentences; empty = it can."""
    return (
        *_image_reasons(info, family),
        *_interface_reasons(info, nodeclass),
        *_processor_reasons(info, nodeclass),
        *_placement_reasons(info, nodeclass),
    )


def _image_reasons(info: InstanceTypeInfo, family: families.AMIFamily) -> Iterator[str]:
    if family.name == families.AL2023 and info.name.startswith("a1."):
        yield "Amazon Linux 2023 does not boot on the first Graviton"
    if family.name in families.WINDOWS_BUILDS and info.arch != "amd64":
        yield "Windows runs on amd64 only"


def _interface_reasons(info: InstanceTypeInfo, nodeclass: EC2NodeClass) -> Iterator[str]:
    interfaces = nodeclass.network_interfaces
    if not interfaces:
        return
    if not info.ena:
        yield "spec.networkInterfaces: the type has no ENA"
    for interface in interfaces:
        if interface.network_card_index >= len(info.cards):
            yield f"spec.networkInterfaces: there is no network card {interface.network_card_index}"
        elif interface.device_index >= info.cards[interface.network_card_index]:
            yield f"spec.networkInterfaces: card {interface.network_card_index} has no device {interface.device_index}"
    efa_only = sum(interface.interface_type == EFA_ONLY for interface in interfaces)
    if efa_only > info.efa_interfaces:
        yield f"spec.networkInterfaces: {efa_only} efa-only, the type takes {info.efa_interfaces}"


def _processor_reasons(info: InstanceTypeInfo, nodeclass: EC2NodeClass) -> Iterator[str]:
    options = nodeclass.cpu_options
    if options is not None and options.nested_virtualization == "enabled" and not info.nested_virtualization:
        yield "spec.cpuOptions.nestedVirtualization: the processor cannot"
    if nodeclass.connection_tracking is not None and info.hypervisor != NITRO:
        yield "spec.connectionTracking: only on Nitro"


def _placement_reasons(info: InstanceTypeInfo, nodeclass: EC2NodeClass) -> Iterator[str]:
    group = nodeclass.placement_group
    if group is not None and group.strategy not in info.placement_strategies:
        yield f"spec.placementGroupSelector: the type does not go into a {group.strategy} group"
