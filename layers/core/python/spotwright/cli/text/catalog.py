"""A catalog as a table for people, and as the catalog file that ``spotwright plan --catalog`` reads."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from spotwright.aws.instance_types.capacity import NodeResources
from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import PICOUSD, InstanceType, Offering
from spotwright.model.requirements import NodeSelectorRequirement

type Json = dict[str, Any]

_HEADINGS: Final = ("TYPE", "CPU", "MEMORY", "PODS", "ON-DEMAND", "SPOT FROM", "ZONES")


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


def catalog_to_text(rows: Sequence[CatalogRow], about: str) -> list[str]:
    """A table of allocatable resources and prices; types without available offerings come last."""
    ordered = sorted(rows, key=lambda row: (not _prices(row), row.instance_type.name))
    table = [_HEADINGS, *(_cells(row) for row in ordered)]
    widths = [max(len(cells[column]) for cells in table) for column in range(len(_HEADINGS))]
    lines = ("  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)) for cells in table)
    return [
        about,
        f"{len(rows)} instance types; cpu, memory and pods are allocatable",
        *(line.rstrip() for line in lines),
    ]


def _cells(row: CatalogRow) -> tuple[str, ...]:
    instance_type, prices = row.instance_type, _prices(row)
    allocatable = resources.text(instance_type.allocatable)
    sizes = (allocatable.get(name, "0") for name in (resources.CPU, resources.MEMORY, resources.PODS))
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
