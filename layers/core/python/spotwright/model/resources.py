"""Amounts of resources: name → integer. Absent means none.

Units: ``cpu`` millicores, ``memory`` and ``ephemeral-storage`` bytes, everything else pieces.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from spotwright.model import quantity

type Resources = Mapping[str, int]

CPU: Final = "cpu"
MEMORY: Final = "memory"
PODS: Final = "pods"
EPHEMERAL_STORAGE: Final = "ephemeral-storage"
NODES: Final = "nodes"
EFA: Final = "vpc.amazonaws.com/efa"


def parse(amounts: Mapping[str, str | float | int]) -> dict[str, int]:
    """Resources from a manifest's map; raises QuantityError naming resource and value."""
    parsed = {}
    for name, value in amounts.items():
        try:
            parsed[name] = quantity.amount(name, value)
        except quantity.QuantityError as error:
            raise quantity.QuantityError(f"{name}: {error}") from None
    return parsed


def add(*resourceses: Resources) -> dict[str, int]:
    total: dict[str, int] = {}
    for resources in resourceses:
        for name, size in resources.items():
            total[name] = total.get(name, 0) + size
    return total


def subtract(minuend: Resources, subtrahend: Resources) -> dict[str, int]:
    """The difference by resource, which may be negative, with the names of both sides."""
    rest = dict(minuend)
    for name, size in subtrahend.items():
        rest[name] = rest.get(name, 0) - size
    return rest


def maximum(resourceses: Iterable[Resources]) -> dict[str, int]:
    """The largest amount of each resource."""
    largest: dict[str, int] = {}
    for resources in resourceses:
        for name, size in resources.items():
            largest[name] = max(largest.get(name, size), size)
    return largest


def scale(resources: Resources, times: int) -> dict[str, int]:
    return {name: size * times for name, size in resources.items()}


def fits(wanted: Resources, available: Resources) -> bool:
    """Whether the wanted amounts are available; zero always is, and nothing fits where an amount is negative."""
    if any(size < 0 for size in available.values()):
        return False
    return all(size <= available.get(name, 0) for name, size in wanted.items() if size > 0)


def text(amounts: Resources) -> dict[str, str]:
    """Amounts as a manifest would state them, sorted by name."""
    return {name: quantity.text(name, amounts[name]) for name in sorted(amounts)}
