"""The labels of an instance type: every type states every label, DoesNotExist where it has none.

Source: Karpenter's published instance types reference; EC2's own figures under Karpenter's names.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from spotwright.aws.described import Accelerator, Described
from spotwright.model import labels
from spotwright.model.karpenter.nodeclass import CapacityReservation, PlacementGroup
from spotwright.model.requirements import Requirement, Requirements

NITRO_SANDBOX: Final = "karpenter.k8s.aws/nitro-sandbox"
_SHAPE: Final = re.compile(r"^(?P<category>[a-z]+)(?:-[0-9]+tb)?(?P<generation>[0-9]+).*\.")
_GPU: Final = ("gpu-name", "gpu-manufacturer", "gpu-count", "gpu-memory")
_ACCELERATOR: Final = ("accelerator-name", "accelerator-manufacturer", "accelerator-count")


def requirements(
    described: Described,
    *,
    region: str,
    zones: Iterable[str],
    capacity_types: Iterable[str],
    windows_build: str = "",
    reservations: Iterable[CapacityReservation] = (),
    group: PlacementGroup | None = None,
) -> Requirements:
    """All labels of the type where it can be bought. ``windows_build``: of the class's images, "" = Linux.

    ``group``: the placement group that the class's nodes start in; in which partition is open until EC2 says it.
    """
    reserved = tuple(reservations)
    several = {
        labels.ZONE: frozenset(zones),
        labels.CAPACITY_TYPE: frozenset(capacity_types),
        # The launch decides: dedicated hardware only where the default is not allowed.
        labels.TENANCY: frozenset(labels.TENANCIES),
        labels.RESERVATION_ID: frozenset(one.id for one in reserved),
        labels.RESERVATION_TYPE: frozenset(one.reservation_type for one in reserved),
        labels.RESERVATION_INTERRUPTIBLE: frozenset(_spelled(one.interruptible) for one in reserved),
        labels.PLACEMENT_GROUP_ID: frozenset((group.id,) if group else ()),
        labels.PLACEMENT_GROUP_PARTITION: frozenset(group.partition_names if group else ()),
    }
    single = {labels.REGION: region} | dict(_kubernetes(described, windows_build)) | dict(_aws(described))
    found = {key: Requirement(key, False, values) for key, values in several.items()}
    found |= {key: Requirement(key, False, frozenset((value,) if value else ())) for key, value in single.items()}
    return Requirements({key: found[key] for key in sorted(found)})


def _kubernetes(described: Described, windows_build: str) -> Iterator[tuple[str, str]]:
    yield labels.INSTANCE_TYPE, described.name
    yield labels.ARCH, described.arch
    yield labels.OS, "windows" if windows_build else "linux"
    yield labels.WINDOWS_BUILD, windows_build
    yield NITRO_SANDBOX, _spelled(described.enclaves)


def _aws(described: Described) -> Iterator[tuple[str, str]]:
    """``karpenter.k8s.aws/instance-…`` labels; "" = the type has none."""
    named = dict(_size(described)) | dict(_figures(described)) | _gpu(described) | _accelerator(described)
    for name, value in named.items():
        yield labels.INSTANCE_PREFIX + name, value


def _size(described: Described) -> Iterator[tuple[str, str]]:
    family, _, size = described.name.partition(".")
    shape = _SHAPE.match(described.name)
    yield "category", shape["category"] if shape else ""
    yield "generation", shape["generation"] if shape else ""
    yield "family", family
    yield "size", size
    yield "capability-flex", _spelled("-flex" in family)


def _figures(described: Described) -> Iterator[tuple[str, str]]:
    yield "cpu", str(described.vcpus)
    yield "cpu-manufacturer", described.cpu_manufacturer.lower()
    yield "cpu-sustained-clock-speed-mhz", str(described.clock_mhz)
    yield "memory", str(described.memory_mib)
    yield "ebs-bandwidth", _count(described.ebs_mbps)
    yield "network-bandwidth", _count(described.network_mbps)
    yield "hypervisor", described.hypervisor
    yield "encryption-in-transit-supported", _spelled(described.encryption_in_transit)
    yield "local-nvme", _count(described.local_storage_gb if described.local_nvme else 0)


def _gpu(described: Described) -> dict[str, str]:
    """Only a type with one kind of GPU says which."""
    if len(described.gpus) != 1:
        return dict.fromkeys(_GPU, "")
    gpu = described.gpus[0]
    values = (_kebab(gpu.name), _kebab(gpu.manufacturer), str(gpu.count), str(gpu.memory_mib))
    return dict(zip(_GPU, values, strict=True))


def _accelerator(described: Described) -> dict[str, str]:
    accelerator = _only(described.neuron or described.inference)
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


def _spelled(truth: object) -> str:
    return "true" if truth else "false"
