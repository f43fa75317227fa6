"""What an AMI alias means: a set of SSM parameters, each holding the image for one architecture and variant.

Source: https://docs.aws.amazon.com/eks/latest/userguide/retrieve-ami-id.html (Amazon Linux),
https://docs.aws.amazon.com/eks/latest/userguide/retrieve-ami-id-bottlerocket.html and
https://docs.aws.amazon.com/eks/latest/userguide/retrieve-windows-ami-id.html.
"""

import re
from typing import Final

import msgspec

from spotwright.aws.images.families import WINDOWS_BUILDS
from spotwright.aws.refusal import Refusal
from spotwright.model import labels
from spotwright.model.quoting import quote
from spotwright.model.requirements import NodeSelectorRequirement, Operator

GPU_COUNT: Final = labels.INSTANCE_PREFIX + "gpu-count"
ACCELERATOR_COUNT: Final = labels.INSTANCE_PREFIX + "accelerator-count"
ARCHITECTURES: Final = {"x86_64": "amd64", "arm64": "arm64"}

_ALIAS: Final = re.compile(r"(?P<family>[a-z0-9]+)@(?P<version>\S+)")
_WINDOWS_FAMILY: Final = re.compile(r"windows(?P<year>2019|2022|2025)")
# The first Kubernetes version that has no AL2 image, and the first that has one for Windows Server 2025.
_AFTER_AL2: Final = (1, 33)
_FIRST_WINDOWS_2025: Final = (1, 35)


class ImageParameter(msgspec.Struct, frozen=True):
    """An SSM parameter that holds an image id, and which instance types that image is for."""

    path: str
    requirements: tuple[NodeSelectorRequirement, ...]


def alias_parameters(alias: str, kubernetes_version: str) -> tuple[ImageParameter, ...] | Refusal:
    """The parameters of an alias such as ``al2023@latest`` on Kubernetes ``kubernetes_version`` (major.minor)."""
    parsed = _ALIAS.fullmatch(alias)
    if parsed is None:
        return _refuse(alias, "must look like al2023@latest or al2023@v20250821")
    minor = ".".join(str(part) for part in _version_number(kubernetes_version))
    match parsed["family"]:
        case "al2" if _version_number(kubernetes_version) >= _AFTER_AL2:
            why = f"there is no AL2 image for Kubernetes {kubernetes_version}; the last is for 1.32"
            return _refuse(alias, why)
        case "al2":
            return _al2(minor, parsed["version"])
        case "al2023":
            return _al2023(minor, parsed["version"])
        case "bottlerocket":
            return _bottlerocket(minor, parsed["version"])
        case "windows2025" if _version_number(kubernetes_version) < _FIRST_WINDOWS_2025:
            why = f"there is no such image for Kubernetes {kubernetes_version}; the first is for 1.35"
            return _refuse(alias, why)
        case family if (windows := _WINDOWS_FAMILY.fullmatch(family)) is not None:
            if parsed["version"] != "latest":
                return _refuse(alias, "a Windows alias has the version latest only")
            return _windows(minor, windows["year"])
    return _refuse(alias, "families are al2, al2023, bottlerocket, windows2019, windows2022, windows2025")


def _refuse(alias: str, why: str) -> Refusal:
    return Refusal("UnsupportedAlias", f"alias {quote(alias)}: {why}")


def _version_number(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version)[:2])


def _al2(kubernetes: str, release: str) -> tuple[ImageParameter, ...]:
    """The GPU image serves NVIDIA GPUs and Neuron accelerators."""
    root = f"/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2"
    parameters = []
    for architecture, suffix, variant in (
        ("x86_64", "", "standard"), ("arm64", "-arm64", "standard"),
        ("x86_64", "-gpu", "nvidia"), ("x86_64", "-gpu", "neuron"),
    ):  # fmt: skip
        leaf = "recommended" if release == "latest" else f"amazon-eks{suffix}-node-{kubernetes}-{release}"
        parameters.append(
            ImageParameter(f"{root}{suffix}/{leaf}/image_id", variant_requirements(architecture, variant))
        )
    return tuple(parameters)


def _al2023(kubernetes: str, release: str) -> tuple[ImageParameter, ...]:
    root = f"/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2023"
    parameters = []
    for architecture, variants in {"x86_64": ("standard", "nvidia", "neuron"), "arm64": ("standard", "nvidia")}.items():
        for variant in variants:
            name = f"amazon-eks-node-al2023-{architecture}-{variant}-{kubernetes}-{release}"
            leaf = "recommended" if release == "latest" else name
            path = f"{root}/{architecture}/{variant}/{leaf}/image_id"
            parameters.append(ImageParameter(path, variant_requirements(architecture, variant)))
    return tuple(parameters)


def _bottlerocket(kubernetes: str, release: str) -> tuple[ImageParameter, ...]:
    """The standard image for x86_64 is also the one for Neuron."""
    parameters = []
    for architecture, suffix, variant in (
        ("x86_64", "", "standard"), ("x86_64", "", "neuron"), ("x86_64", "-nvidia", "nvidia"),
        ("arm64", "", "standard"), ("arm64", "-nvidia", "nvidia"),
    ):  # fmt: skip
        leaf = release.removeprefix("v")
        path = f"/aws/service/bottlerocket/aws-k8s-{kubernetes}{suffix}/{architecture}/{leaf}/image_id"
        parameters.append(ImageParameter(path, variant_requirements(architecture, variant)))
    return tuple(parameters)


def _windows(kubernetes: str, year: str) -> tuple[ImageParameter, ...]:
    path = f"/aws/service/ami-windows-latest/Windows_Server-{year}-English-Core-EKS_Optimized-{kubernetes}/image_id"
    build = NodeSelectorRequirement(labels.WINDOWS_BUILD, Operator.IN, (WINDOWS_BUILDS[f"Windows{year}"],))
    system = NodeSelectorRequirement(labels.OS, Operator.IN, ("windows",))
    arch = NodeSelectorRequirement(labels.ARCH, Operator.IN, ("amd64",))
    return (ImageParameter(path, (system, arch, build)),)


def variant_requirements(architecture: str, variant: str) -> tuple[NodeSelectorRequirement, ...]:
    """The instance types a variant is for: standard has no GPU and no accelerator; sorted by length, then key."""
    arch = NodeSelectorRequirement(labels.ARCH, Operator.IN, (ARCHITECTURES[architecture],))
    match variant:
        case "nvidia":
            return (arch, NodeSelectorRequirement(GPU_COUNT, Operator.EXISTS))
        case "neuron":
            return (arch, NodeSelectorRequirement(ACCELERATOR_COUNT, Operator.EXISTS))
    absent = Operator.DOES_NOT_EXIST
    return (arch, NodeSelectorRequirement(GPU_COUNT, absent), NodeSelectorRequirement(ACCELERATOR_COUNT, absent))
