"""A catalog as a table for people, and as the catalog file that ``spotwright plan --catalog`` reads."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from spotwright.aws.instance_types.capacity import NodeResources
from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import PICOUSD, InstanceType, Offering
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.scheduling.explain.node_choice import format_amount

type Json = dict[str, Any]

_HEADINGS: Final = ("TYPE", "CPU", "MEMORY", "PODS", "ON-DEMAND", "SPOT FROM", "ZONES")
# Heading → labels, of which the first that a type has is shown.
_WIDE_COLUMNS: Final = {
    "ARCH": (labels.ARCH,),
    "GENERATION": (f"{labels.INSTANCE_PREFIX}generation",),
    "GPU": (f"{labels.INSTANCE_PREFIX}gpu-name", f"{labels.INSTANCE_PREFIX}accelerator-name"),
    "GPUS": (f"{labels.INSTANCE_PREFIX}gpu-count", f"{labels.INSTANCE_PREFIX}accelerator-count"),
    "NETWORK": (f"{labels.INSTANCE_PREFIX}network-bandwidth",),
}
# More than any price.
_UNSOLD: Final = 2**63


class CatalogRow(msgspec.Struct, frozen=True):
    """An instance type with its overheads; ``size`` None = only their sum is known."""

    instance_type: InstanceType
    size: NodeResources | None = None


def catalog_to_json(rows: Sequence[CatalogRow]) -> str:
    """``{"instanceTypes": [...]}``, prices in USD per hour (yuan in China), one type per line."""
    lines = (msgspec.json.encode(_row(row)).decode() for row in rows)
    return '{"instanceTypes": [\n' + ",\n".join(lines) + "\n]}"


def _row(row: CatalogRow) -> Json:
    instance_type = row.instance_type
    return {
        "name": instance_type.name,
        "requirements": [_selector(selector) for selector in instance_type.requirements.node_selector_requirements()],
        "capacity": resources.text(instance_type.capacity),
        "overhead": _overhead(row),
        "offerings": [_offering(offering) for offering in instance_type.offerings],
    }


def _overhead(row: CatalogRow) -> Json:
    """The difference of capacity and allocatable; their sum under ``kubeReserved`` where only that is known."""
    instance_type, size = row.instance_type, row.size
    if size is None:
        sums = {name: whole - instance_type.allocatable.get(name, 0) for name, whole in instance_type.capacity.items()}
        return {"kubeReserved": resources.text({name: size for name, size in sums.items() if size})}
    return {
        "kubeReserved": resources.text(size.kube_reserved),
        "systemReserved": resources.text(size.system_reserved),
        "evictionThreshold": resources.text(size.eviction_threshold),
    }


def _selector(selector: NodeSelectorRequirement) -> Json:
    expression: Json = {"key": selector.key, "operator": str(selector.operator)}
    return expression | ({"values": list(selector.values)} if selector.values else {})


def _offering(offering: Offering) -> Json:
    offering_labels = {requirement.key: requirement.sole_value for requirement in offering.requirements}
    return {
        "requirements": {labels.CAPACITY_TYPE: offering.capacity_type, labels.ZONE: offering.zone} | offering_labels,
        "price": offering.price_picousd_per_hour / PICOUSD,
        "available": offering.available,
        "reservationCapacity": offering.reservation_capacity,
    }


def sort_rows(rows: Sequence[CatalogRow], by: str) -> list[CatalogRow]:
    """The rows by ``name``, ``price``, ``spot``, ``cpu`` or ``memory``; of equal ones the name decides.

    Types of a family go from small to large. Types without available offerings come last.
    """

    def order(row: CatalogRow) -> tuple[object, ...]:
        prices, capacity = _prices(row), row.instance_type.capacity
        family, cpu = row.instance_type.name.partition(".")[0], capacity.get(resources.CPU, 0)
        amounts = {
            "name": 0,
            "price": prices.get(labels.ON_DEMAND, min(prices.values(), default=0)),
            "spot": prices.get(labels.SPOT, _UNSOLD),
            "cpu": cpu,
            "memory": capacity.get(resources.MEMORY, 0),
        }
        return not prices, amounts[by], family, cpu, row.instance_type.name

    return sorted(rows, key=order)


def catalog_to_text(
    rows: Sequence[CatalogRow], about: str, *, is_wide: bool = False, label_keys: Sequence[str] = ()
) -> list[str]:
    """A table of allocatable resources and prices, in the order given. ``label_keys``: labels in columns of their own.

    ``is_wide``: with architecture, GPUs or other accelerators, and network bandwidth in Mbit/s.
    """
    extra = [*(_WIDE_COLUMNS if is_wide else {}), *(key.rpartition("/")[2].upper() for key in label_keys)]
    keys = [*(_WIDE_COLUMNS.values() if is_wide else ()), *((key,) for key in label_keys)]
    table = [(*_HEADINGS, *extra), *((*_cells(row), *(_label(row, of) for of in keys)) for row in rows)]
    widths = [max(len(cells[column]) for cells in table) for column in range(len(table[0]))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) for cells in table)
    number = f"{len(rows)} instance type{'' if len(rows) == 1 else 's'}"
    return [
        about,
        f"{number}; cpu, memory and pods are allocatable; prices in USD an hour (CNY in China)",
        *(line.rstrip() for line in lines),
    ]


def _label(row: CatalogRow, keys: Sequence[str]) -> str:
    """The value of the first of these labels that a type has."""
    stated = (row.instance_type.requirements.by_key.get(key) for key in keys)
    return next((", ".join(sorted(label.values)) for label in stated if label and label.values), "-")


def _cells(row: CatalogRow) -> tuple[str, ...]:
    instance_type, prices = row.instance_type, _prices(row)
    allocatable = instance_type.allocatable
    sizes = (
        format_amount(name, allocatable.get(name, 0)) for name in (resources.CPU, resources.MEMORY, resources.PODS)
    )
    zones = sorted({offering.zone for offering in instance_type.offerings if offering.available})
    return (
        instance_type.name,
        *sizes,
        _price(prices, labels.ON_DEMAND),
        _price(prices, labels.SPOT),
        " ".join(zones) or "-",
    )


def _prices(row: CatalogRow) -> Mapping[str, int]:
    """Capacity type → the lowest price of its available offerings."""
    lowest: dict[str, int] = {}
    for kind, price in _offers(row.instance_type):
        lowest[kind] = min(lowest.get(kind, price), price)
    return lowest


def _offers(instance_type: InstanceType) -> Iterator[tuple[str, int]]:
    return (
        (offering.capacity_type, offering.price_picousd_per_hour)
        for offering in instance_type.offerings
        if offering.available
    )


def _price(prices: Mapping[str, int], kind: str) -> str:
    return f"{prices[kind] / PICOUSD:.4f}" if kind in prices else "-"
