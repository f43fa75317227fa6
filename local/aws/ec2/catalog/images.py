"""The images EKS publishes, registered with EC2, and the SSM parameters that name them.

Versions are release dates as in the names of the real images; the newest is the recommended one. Image ids
are derived from the names, so that they are the same in every run.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from moto.ec2.models import ec2_backends
from moto.ec2.models.amis import Ami

from local.aws.emulator import Emulator

# What EKS supports, and 1.30 since the local control plane may be that.
KUBERNETES_VERSIONS = ("1.30", "1.31", "1.32", "1.33", "1.34", "1.35", "1.36")
AL2023_RELEASES = ("20250821", "20251209", "20260317", "20260811", "20261104")
AL2023_VARIANTS = (
    ("x86_64", "standard"),
    ("x86_64", "nvidia"),
    ("x86_64", "neuron"),
    ("arm64", "standard"),
    ("arm64", "nvidia"),
)
BOTTLEROCKET_RELEASES = (("1.49.0", "20250910"), ("1.55.0", "20260720"), ("1.58.0", "20261021"))
# No AL2 image is published for 1.33 and later, none of Windows Server 2025 before 1.35.
AL2_VERSIONS = ("1.30", "1.31", "1.32")
AL2_RELEASES = ("20250821", "20251124")
WINDOWS_RELEASE = "20261015"
EKS_OWNER = "602401143452"
BOTTLEROCKET_OWNER = "092701018921"
WINDOWS_OWNER = "801119661308"


@dataclass(frozen=True)
class Image:
    """One published image: where SSM names it (`parameters`) and how EC2 shows it."""

    name: str
    architecture: str
    release_date: str
    owner: str
    root_device: str
    parameters: tuple[str, ...]

    @property
    def id(self) -> str:
        return "ami-" + hashlib.sha256(self.name.encode()).hexdigest()[:17]


def published_images() -> Iterator[Image]:
    """Every image, oldest release first within its kind."""
    for kubernetes in KUBERNETES_VERSIONS:
        yield from _al2023(kubernetes)
        yield from _bottlerocket(kubernetes)
        yield from _windows(kubernetes)
    for kubernetes in AL2_VERSIONS:
        yield from _al2(kubernetes)


def _al2(kubernetes: str) -> Iterator[Image]:
    for suffix, architecture in (("", "x86_64"), ("-arm64", "arm64"), ("-gpu", "x86_64")):
        folder = f"/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2{suffix}"
        for release in AL2_RELEASES:
            name = f"amazon-eks{suffix}-node-{kubernetes}-v{release}"
            names = [name, "recommended"] if release == AL2_RELEASES[-1] else [name]
            parameters = tuple(f"{folder}/{item}/image_id" for item in names)
            yield Image(name, architecture, release, EKS_OWNER, "/dev/xvda", parameters)


def _windows(kubernetes: str) -> Iterator[Image]:
    for year in ("2019", "2022", "2025"):
        if year == "2025" and kubernetes < "1.35":
            continue
        name = f"Windows_Server-{year}-English-Core-EKS_Optimized-{kubernetes}"
        parameters = (f"/aws/service/ami-windows-latest/{name}/image_id",)
        dated = f"{name}-{WINDOWS_RELEASE[:4]}.{WINDOWS_RELEASE[4:6]}.{WINDOWS_RELEASE[6:]}"
        yield Image(dated, "x86_64", WINDOWS_RELEASE, WINDOWS_OWNER, "/dev/sda1", parameters)


def _al2023(kubernetes: str) -> Iterator[Image]:
    for architecture, variant in AL2023_VARIANTS:
        folder = f"/aws/service/eks/optimized-ami/{kubernetes}/amazon-linux-2023/{architecture}/{variant}"
        for release in AL2023_RELEASES:
            name = f"amazon-eks-node-al2023-{architecture}-{variant}-{kubernetes}-v{release}"
            names = [name, "recommended"] if release == AL2023_RELEASES[-1] else [name]
            parameters = tuple(f"{folder}/{item}/image_id" for item in names)
            yield Image(name, architecture, release, EKS_OWNER, "/dev/xvda", parameters)


def _bottlerocket(kubernetes: str) -> Iterator[Image]:
    for suffix in ("", "-nvidia"):
        for architecture in ("x86_64", "arm64"):
            folder = f"/aws/service/bottlerocket/aws-k8s-{kubernetes}{suffix}/{architecture}"
            for version, released in BOTTLEROCKET_RELEASES:
                name = f"bottlerocket-aws-k8s-{kubernetes}{suffix}-{architecture}-v{version}"
                names = [version, "latest"] if version == BOTTLEROCKET_RELEASES[-1][0] else [version]
                parameters = tuple(f"{folder}/{item}/image_id" for item in names)
                yield Image(name, architecture, released, BOTTLEROCKET_OWNER, "/dev/xvda", parameters)


class PublicParameters:
    """Public SSM parameters of the images: name -> (value, time of the last change)."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator

    @cached_property
    def parameters(self) -> dict[str, tuple[str, datetime]]:
        return {
            parameter: (image.id, _released(image)) for image in published_images() for parameter in image.parameters
        }


def _released(image: Image) -> datetime:
    return datetime.strptime(image.release_date, "%Y%m%d").replace(hour=18, tzinfo=UTC)


def register_images(emulator: Emulator) -> None:
    """Register every image with EC2, public, owned by AWS's own accounts."""
    backend: Any = ec2_backends[emulator.account][emulator.region]
    for image in published_images():
        backend.amis[image.id] = Ami(
            backend,
            image.id,
            name=image.name,
            description=f"{image.name}, local stand-in",
            owner_id=image.owner,
            owner_alias="amazon",
            public=True,
            virtualization_type="hvm",
            architecture=image.architecture,
            creation_date=_released(image).replace(tzinfo=None),
            image_location=f"{image.owner}/{image.name}",
            hypervisor="xen",
            root_device_type="ebs",
            root_device_name=image.root_device,
            region_name=f"{emulator.region}a",
        )
