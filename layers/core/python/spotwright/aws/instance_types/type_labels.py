"""The labels of an instance type: every type states every label, DoesNotExist where it has none.

A type on bare metal has the label of its hypervisor, with an empty value, as with Karpenter.

Source: Karpenter's published instance types reference; EC2's own figures under Karpenter's names.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from spotwright.aws.instance_types.info import Accelerator, InstanceTypeInfo
from spotwright.model import labels
from spotwright.model.karpenter.nodeclass import CapacityReservation, PlacementGroup
from spotwright.model.requirements import Requirement, Requirements

NITRO_SANDBOX_LABEL: Final = "karpenter.k8s.aws/nitro-sandbox"
_MAY_BE_EMPTY: Final = labels.INSTANCE_PREFIX + "hypervisor"
_SHAPE: Final = re.compile(r"^(?P<category>[a-z]+)(?:-[0-9]+tb)?(?P<generation>[0-9]+).*\.")
_GPU: Final = ("gpu-name", "gpu-manufacturer", "gpu-count", "gpu-memory")
_ACCELERATOR: Final = ("accelerator-name", "accelerator-manufacturer", "accelerator-count")


def type_requirements(
    info: InstanceTypeInfo,
    *,
    region: str,
    zones: Iterable[str],
    capacity_types: Iterable[str],
    windows_build: str = "",
    reservations: Iterable[CapacityReservation] = (),
    placement_group: PlacementGroup | None = None,
) -> Requirements:
    """All labels of the type where it can be bought. ``windows_build``: of the class's images, "" = Linux.

    ``placement_group``: the placement group that the class's nodes start in; EC2 chooses the partition at launch.
    """
    reserved = tuple(reservations)
    multi_valued = {
        labels.ZONE: frozenset(zones),
        labels.CAPACITY_TYPE: frozenset(capacity_types),
        # The launch decides: dedicated hardware only where the default is not allowed.
        labels.TENANCY: frozenset(labels.TENANCIES),
        labels.RESERVATION_ID: frozenset(reservation.id for reservation in reserved),
        labels.RESERVATION_TYPE: frozenset(reservation.reservation_type for reservation in reserved),
        labels.RESERVATION_INTERRUPTIBLE: frozenset(_bool(reservation.interruptible) for reservation in reserved),
        labels.PLACEMENT_GROUP_ID: frozenset((placement_group.id,) if placement_group else ()),
        labels.PLACEMENT_GROUP_PARTITION: frozenset(placement_group.partition_names if placement_group else ()),
    }
    single_valued = (
        {labels.REGION: region} | dict(_kubernetes_labels(info, windows_build)) | dict(_instance_labels(info))
    )
    requirements = {key: Requirement(key, False, values) for key, values in multi_valued.items()}
    requirements |= {
        key: Requirement(key, False, frozenset((value,) if value or key == _MAY_BE_EMPTY else ()))
        for key, value in single_valued.items()
    }
    return Requirements({key: requirements[key] for key in sorted(requirements)})


def _kubernetes_labels(info: InstanceTypeInfo, windows_build: str) -> Iterator[tuple[str, str]]:
    yield labels.INSTANCE_TYPE, info.name
    yield labels.ARCH, info.arch
    yield labels.OS, "windows" if windows_build else "linux"
    yield labels.WINDOWS_BUILD, windows_build
    yield NITRO_SANDBOX_LABEL, _bool(info.enclaves)


def _instance_labels(info: InstanceTypeInfo) -> Iterator[tuple[str, str]]:
    """``karpenter.k8s.aws/instance-…`` labels; "" = the type has none."""
    named = dict(_size(info)) | dict(_figures(info)) | _gpu(info) | _accelerator(info)
    for name, value in named.items():
        yield labels.INSTANCE_PREFIX + name, value


def _size(info: InstanceTypeInfo) -> Iterator[tuple[str, str]]:
    family, _, size = info.name.partition(".")
    shape = _SHAPE.match(info.name)
    yield "category", shape["category"] if shape else ""
    yield "generation", shape["generation"] if shape else ""
    yield "family", family
    yield "size", size
    yield "capability-flex", _bool("-flex" in family)


def _figures(info: InstanceTypeInfo) -> Iterator[tuple[str, str]]:
    yield "cpu", str(info.vcpus)
    yield "cpu-manufacturer", info.cpu_manufacturer.lower()
    yield "cpu-sustained-clock-speed-mhz", str(info.clock_mhz)
    yield "memory", str(info.memory_mib)
    yield "ebs-bandwidth", _count(info.ebs_mbps)
    yield "network-bandwidth", _count(info.network_mbps)
    yield "hypervisor", info.hypervisor
    yield "encryption-in-transit-supported", _bool(info.encryption_in_transit)
    yield "local-nvme", _count(info.local_storage_gb if info.local_nvme else 0)


def _gpu(info: InstanceTypeInfo) -> dict[str, str]:
    """Only a type with one kind of GPU says which."""
    if len(info.gpus) != 1:
        return dict.fromkeys(_GPU, "")
    gpu = info.gpus[0]
    values = (_kebab(gpu.name), _kebab(gpu.manufacturer), str(gpu.count), str(gpu.memory_mib))
    return dict(zip(_GPU, values, strict=True))


def _accelerator(info: InstanceTypeInfo) -> dict[str, str]:
    accelerator = _only(info.neuron or info.inference)
    if accelerator is None:
        return dict.fromkeys(_ACCELERATOR, "")
    values = (_kebab(accelerator.name), _kebab(accelerator.manufacturer), str(accelerator.count))
    return dict(zip(_ACCELERATOR, values, strict=True))


def _only(accelerators: tuple[Accelerator, ...]) -> Accelerator | None:
    return accelerators[0] if len(accelerators) == 1 else None


def _kebab(text: str) -> str:
    return text.lower().replace(" ", "-")


def _count(number: int) -> str:
    return str(number) if number else ""


def _bool(truth: object) -> str:
    return "true" if truth else "false"
