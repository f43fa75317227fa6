"""Instance types that can be bought, read from a catalog file."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cases.judge.quantity import Raw, Resources, minus, resources, total
from tests.cases.judge.requirement import (
    CAPACITY_TYPE,
    INSTANCE_TYPE,
    ZONE,
)


@dataclass(eq=False)
class Offering:
    """One (zone, capacity type[, reservation]) an instance type can be bought in; price in USD per hour."""

    labels: Mapping[str, str | None]
    price: float
    available: bool
    reservation_capacity: int


@dataclass(eq=False)
class InstanceType:
    """One instance type; `values` are the label values its requirements allow, None meaning without the label."""

    name: str
    values: Mapping[str, frozenset[str | None]]
    capacity: Resources
    allocatable: Resources
    offerings: tuple[Offering, ...]


def instance_type(raw: Raw) -> InstanceType:
    """From one entry of a catalog. Allocatable = capacity - overhead, memory also without hugepages, floor 0."""
    values: dict[str, frozenset[str | None]] = {}
    for r in raw["requirements"]:
        if r["operator"] == "In":
            values[r["key"]] = frozenset(str(v) for v in r["values"])
        elif r["operator"] == "DoesNotExist":
            values[r["key"]] = frozenset((None,))
    capacity = resources(raw["capacity"])
    overhead = total(resources(part) for part in (raw.get("overhead") or {}).values())
    allocatable = {k: v for k, v in minus(capacity, overhead).items() if k in capacity}
    huge = sum(v for k, v in capacity.items() if k.startswith("hugepages-"))
    if huge:
        allocatable["memory"] = max(0, allocatable.get("memory", 0) - huge)
    offerings = tuple(
        Offering(
            {k: None if v is None else str(v) for k, v in o["requirements"].items()},
            float(o["price"]),
            o.get("available") is not False,
            int(o.get("reservationCapacity") or 0),
        )
        for o in raw["offerings"]
    )
    values.setdefault(INSTANCE_TYPE, frozenset((raw["name"],)))
    for key in (ZONE, CAPACITY_TYPE):
        values.setdefault(key, frozenset(o.labels.get(key) for o in offerings if o.available))
    return InstanceType(raw["name"], values, capacity, allocatable, offerings)


_catalogs: dict[Path, dict[str, InstanceType]] = {}


def catalog(path: Path) -> dict[str, InstanceType]:
    """Instance types by name, read once per process."""
    if path not in _catalogs:
        raw = json.loads(path.read_text())
        _catalogs[path] = {t["name"]: instance_type(t) for t in raw["instanceTypes"]}
    return _catalogs[path]


def find_catalog(name: str, case: Path) -> Path:
    """catalogs/NAME.json beside the case or above it."""
    for folder in case.resolve().parents:
        candidate = folder / "catalogs" / f"{name}.json"
        if candidate.exists():
            return candidate
    raise FileNotFoundError(f"{case}: catalog {name!r} not found beside the case or above it")
