"""Whether an instance type can run a class at all, whatever image and price say.

Source: Karpenter's AWS provider as documented; https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceTypeInfo.html.
"""

from collections.abc import Iterator
from typing import Final

from spotwright.aws import families
from spotwright.aws.described import Described
from spotwright.model.karpenter.nodeclass import EC2NodeClass

NITRO: Final = "nitro"
EFA_ONLY: Final = "efa-only"


def problems(described: Described, node_class: EC2NodeClass, family: families.Family) -> tuple[str, ...]:
    """Why the type cannot run the class, as sentences; empty = it can."""
    return (
        *_image(described, family),
        *_interfaces(described, node_class),
        *_processor(described, node_class),
        *_placement(described, node_class),
    )


def _image(described: Described, family: families.Family) -> Iterator[str]:
    if family.name == families.AL2023 and described.name.startswith("a1."):
        yield "Amazon Linux 2023 does not boot on the first Graviton"
    if family.name in families.WINDOWS and described.arch != "amd64":
        yield "Windows runs on amd64 only"


def _interfaces(described: Described, node_class: EC2NodeClass) -> Iterator[str]:
    wanted = node_class.network_interfaces
    if not wanted:
        return
    if not described.ena:
        yield "spec.networkInterfaces: the type has no ENA"
    for one in wanted:
        if one.network_card_index >= len(described.cards):
            yield f"spec.networkInterfaces: there is no network card {one.network_card_index}"
        elif one.device_index >= described.cards[one.network_card_index]:
            yield f"spec.networkInterfaces: card {one.network_card_index} has no device {one.device_index}"
    efa_only = sum(one.interface_type == EFA_ONLY for one in wanted)
    if efa_only > described.efa_interfaces:
        yield f"spec.networkInterfaces: {efa_only} efa-only, the type takes {described.efa_interfaces}"


def _processor(described: Described, node_class: EC2NodeClass) -> Iterator[str]:
    options = node_class.cpu_options
    if options is not None and options.nested_virtualization == "enabled" and not described.nested_virtualization:
        yield "spec.cpuOptions.nestedVirtualization: the processor cannot"
    if node_class.connection_tracking is not None and described.hypervisor != NITRO:
        yield "spec.connectionTracking: only on Nitro"


def _placement(described: Described, node_class: EC2NodeClass) -> Iterator[str]:
    group = node_class.placement_group
    if group is not None and group.strategy not in described.placement_strategies:
        yield f"spec.placementGroupSelector: the type does not go into a {group.strategy} group"
