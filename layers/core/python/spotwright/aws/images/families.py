"""AMI families: the defaults of their images for disks, pod density and kubelet configuration.

Source: https://docs.aws.amazon.com/eks/latest/userguide/eks-optimized-amis.html and the defaults Karpenter documents.
Families that are not listed here are refused with a condition that names the field.
"""

from typing import Final

import msgspec

from spotwright.aws.refusal import Refusal
from spotwright.model.karpenter.nodeclass import BlockDeviceMapping, EC2NodeClass

AL2: Final = "AL2"
AL2023: Final = "AL2023"
BOTTLEROCKET: Final = "Bottlerocket"
CUSTOM: Final = "Custom"
# The build of each Windows release, as its nodes are labelled.
WINDOWS_BUILDS: Final = {"Windows2019": "10.0.17763", "Windows2022": "10.0.20348", "Windows2025": "10.0.26100"}


class AMIFamily(msgspec.Struct, frozen=True):
    """What holds for every image of a family.

    ``ephemeral_device``: the disk that pods' local storage is on; "" = the last mapping of the EC2NodeClass.

    ``uses_eni_limited_memory_overhead``: kube-reserved memory is sized for the ENI-limited density whatever maxPods
    says. ``supports_eni_limited_pod_density``: the instance's network interfaces limit its pods.
    ``allows_any_kubelet_field``: takes any kubelet setting.
    """

    name: str
    block_device_mappings: tuple[BlockDeviceMapping, ...]
    ephemeral_device: str
    pods_per_core_enabled: bool = True
    uses_eni_limited_memory_overhead: bool = True
    supports_eni_limited_pod_density: bool = True
    allows_any_kubelet_field: bool = False


def _disk(device: str, size: str) -> BlockDeviceMapping:
    return BlockDeviceMapping(device, volume_size=size, volume_type="gp3", encrypted=True, delete_on_termination=True)


FAMILIES: Final = {
    AL2: AMIFamily(AL2, (_disk("/dev/xvda", "20Gi"),), "/dev/xvda"),
    AL2023: AMIFamily(AL2023, (_disk("/dev/xvda", "20Gi"),), "/dev/xvda", allows_any_kubelet_field=True),
    BOTTLEROCKET: AMIFamily(
        BOTTLEROCKET,
        (_disk("/dev/xvda", "4Gi"), _disk("/dev/xvdb", "20Gi")),
        "/dev/xvdb",
        pods_per_core_enabled=False,
        uses_eni_limited_memory_overhead=False,
    ),
    CUSTOM: AMIFamily(CUSTOM, (), "", allows_any_kubelet_field=True),
} | {
    name: AMIFamily(
        name,
        (_disk("/dev/sda1", "50Gi"),),
        "/dev/sda1",
        uses_eni_limited_memory_overhead=False,
        supports_eni_limited_pod_density=False,
    )
    for name in WINDOWS_BUILDS
}

_FAMILY_OF_ALIAS: Final = {
    "al2": AL2,
    "al2023": AL2023,
    "bottlerocket": BOTTLEROCKET,
    "windows2019": "Windows2019",
    "windows2022": "Windows2022",
    "windows2025": "Windows2025",
}


def ami_family_name(nodeclass: EC2NodeClass) -> str:
    """``spec.amiFamily``, else the family of the alias in ``spec.amiSelectorTerms``; "" when there is neither."""
    if nodeclass.ami_family:
        return nodeclass.ami_family
    aliases = (term.alias.partition("@")[0] for term in nodeclass.ami_selector_terms if term.alias)
    return next((_FAMILY_OF_ALIAS.get(alias, "") for alias in aliases), "")


def ami_family(nodeclass: EC2NodeClass) -> AMIFamily | Refusal:
    """The family of a class, or why the class has none."""
    name = ami_family_name(nodeclass)
    if name in FAMILIES:
        return FAMILIES[name]
    if not name:
        return Refusal("UnsupportedAMIFamily", "spec.amiFamily: required when spec.amiSelectorTerms has no alias")
    return unsupported_family(name)


def unsupported_family(name: str) -> Refusal:
    return Refusal(
        "UnsupportedAMIFamily", f"spec.amiFamily: there is no family {name}; there are {', '.join(FAMILIES)}"
    )
