"""Instance catalogs as files."""

from pathlib import Path

import msgspec

from spotwright.adapters.kubernetes.codecs.decode_errors import describe_error
from spotwright.cli import InputError
from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import PICOUSD, Catalog, InstanceType, Offering
from spotwright.model.requirements import NodeSelectorRequirement, Requirement, Requirements, from_expressions

type Amounts = dict[str, str | int | float]


class _Requirement(msgspec.Struct):
    key: str
    operator: str
    values: list[str] | None = None


class _Overhead(msgspec.Struct):
    kubeReserved: Amounts = {}
    systemReserved: Amounts = {}
    evictionThreshold: Amounts = {}


class _Offering(msgspec.Struct):
    requirements: dict[str, str | None]
    price: float
    available: bool = True
    reservationCapacity: int = 0


class _Type(msgspec.Struct):
    name: str
    requirements: list[_Requirement]
    capacity: Amounts
    offerings: list[_Offering]
    overhead: _Overhead | None = None


class _File(msgspec.Struct):
    instanceTypes: list[_Type]


def read_catalog_file(path: str) -> Catalog:
    """A catalog file (``{"instanceTypes": [...]}``); raises InputError."""
    try:
        content = Path(path).read_bytes()
        file = msgspec.json.decode(content, type=_File)
        types = tuple(_instance_type(entry) for entry in file.instanceTypes)
    except OSError as error:
        raise InputError(f"{path}: the catalog cannot be read: {error.strerror}") from None
    except (RecursionError, ValueError) as error:
        is_json = isinstance(error, msgspec.ValidationError) or not isinstance(error, msgspec.DecodeError)
        why = describe_error(error) if is_json else "it is not JSON"
        raise InputError(f"{path}: not an instance catalog: {why} (spotwright catalog -o json writes one)") from None
    return Catalog({"": types}, source=path)


def _instance_type(entry: _Type) -> InstanceType:
    expressions = (
        NodeSelectorRequirement(requirement.key, requirement.operator, tuple(requirement.values or ()))
        for requirement in entry.requirements
    )
    capacity = resources.parse(entry.capacity)
    return InstanceType(
        name=entry.name,
        requirements=from_expressions(expressions),
        capacity=capacity,
        allocatable=_allocatable(capacity, entry.overhead or _Overhead()),
        offerings=tuple(_offering(offering) for offering in entry.offerings),
    )


def _allocatable(capacity: dict[str, int], overhead: _Overhead) -> dict[str, int]:
    reserved = resources.add(
        *(
            resources.parse(amounts)
            for amounts in (overhead.kubeReserved, overhead.systemReserved, overhead.evictionThreshold)
        )
    )
    left = {name: size - reserved.get(name, 0) for name, size in capacity.items()}
    huge_pages = sum(size for name, size in capacity.items() if name.startswith("hugepages-"))
    if huge_pages:
        left[resources.MEMORY] = max(0, left.get(resources.MEMORY, 0) - huge_pages)
    return left


def _offering(entry: _Offering) -> Offering:
    requirements = (
        Requirement(key, False, frozenset(() if value is None else (value,)))
        for key, value in sorted(entry.requirements.items())
        if key not in (labels.ZONE, labels.CAPACITY_TYPE)
    )
    return Offering(
        zone=entry.requirements.get(labels.ZONE) or "",
        capacity_type=entry.requirements.get(labels.CAPACITY_TYPE) or "",
        price_picousd_per_hour=round(entry.price * PICOUSD),
        available=entry.available,
        requirements=Requirements({requirement.key: requirement for requirement in requirements}),
        reservation_capacity=entry.reservationCapacity,
    )
