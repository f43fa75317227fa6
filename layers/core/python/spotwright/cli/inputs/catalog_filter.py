"""Which instance types of a catalog are asked for."""

import difflib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

import msgspec

from spotwright.cli import InputError
from spotwright.cli.inputs.label_selector import parse_label_selector
from spotwright.model import labels, quantity
from spotwright.model.ec2.instance_type import InstanceType
from spotwright.model.requirements import Requirement, Requirements
from spotwright.scheduling.inputs.nodeclaim_templates import can_meet


class CatalogOptions(msgspec.Struct, frozen=True):
    """What is asked for, as it was typed. ``names``: instance types with wildcards; empty = all.

    ``values``: label key → allowed values; ``bounds``: label key → least and largest amount, "" = none.
    """

    names: Sequence[str] = ()
    selectors: Sequence[str] = ()
    values: dict[str, Sequence[str]] = {}
    bounds: dict[str, tuple[str, str]] = {}


class CatalogFilter(msgspec.Struct, frozen=True):
    """``of_types``: requirements on a type; ``of_offerings``: on zone and capacity type."""

    names: Sequence[str]
    of_types: Requirements
    of_offerings: Requirements

    def apply(self, instance_type: InstanceType) -> InstanceType | None:
        """The type with the offerings that are asked for; None if it is not asked for, or nothing of it is on offer."""
        if self.names and not any(fnmatchcase(instance_type.name, name) for name in self.names):
            return None
        stated = instance_type.requirements
        if not all(_meets(stated.by_key.get(requirement.key), requirement) for requirement in self.of_types):
            return None
        if not len(self.of_offerings):
            return instance_type
        zone, capacity_type = self.of_offerings.get(labels.ZONE), self.of_offerings.get(labels.CAPACITY_TYPE)
        offerings = tuple(
            offering
            for offering in instance_type.offerings
            if offering.available and zone.has(offering.zone) and capacity_type.has(offering.capacity_type)
        )
        return msgspec.structs.replace(instance_type, offerings=offerings) if offerings else None


def build_filter(options: CatalogOptions, types: Sequence[InstanceType], place: str) -> CatalogFilter:
    """The filter for a catalog of these types; raises InputError for names, labels and values that none of them has.

    ``place``: where the types are from, and where else to look.
    """
    known_keys = {labels.ZONE, labels.CAPACITY_TYPE}.union(
        *(instance_type.requirements.by_key for instance_type in types)
    )
    _check_names(options.names, types, place)
    requirements = Requirements()
    for selector in options.selectors:
        requirements = requirements.intersection(parse_label_selector(selector, known_keys))
    requirements = requirements.intersection(
        Requirement(key, False, frozenset(values)) for key, values in options.values.items() if values
    )
    requirements = requirements.intersection(_bounds(options.bounds))
    _check_values(requirements, types)
    places = frozenset((labels.ZONE, labels.CAPACITY_TYPE))
    return CatalogFilter(
        options.names,
        Requirements({item.key: item for item in requirements if item.key not in places}),
        Requirements({item.key: item for item in requirements if item.key in places}),
    )


def _meets(label: Requirement | None, requirement: Requirement) -> bool:
    """Whether a label that a type states, or does not state, meets a requirement."""
    return requirement.allows_absence if label is None else can_meet(label, requirement)


def _bounds(bounds: dict[str, tuple[str, str]]) -> Iterable[Requirement]:
    for key, (least, most) in bounds.items():
        if least or most:
            lower, upper = _number(key, "min", least, 0), _number(key, "max", most, 2**63 - 1)
            if lower > upper:
                option = _option(key)
                raise InputError(f"--min-{option} {least} is above --max-{option} {most}: nothing lies between them")
            yield Requirement(key, True, gte=lower, lte=upper)


def _option(key: str) -> str:
    return "memory" if key.endswith("memory") else "cpu"


def _number(key: str, bound: str, text: str, default: int) -> int:
    """An amount in the label's unit: cpu in cores, memory in MiB; ``bound``: min or max. Raises InputError."""
    option = _option(key)
    if not text:
        return default
    try:
        amount = quantity.parse(text)
    except quantity.QuantityError as error:
        raise InputError(f"--{bound}-{option}: {error}") from None
    if amount < 0:
        raise InputError(f"--{bound}-{option} {text}: an amount is 0 or more")
    # Memory without a suffix is in MiB already, as in the label.
    return int(amount / 2**20) if option == "memory" and not text.isdigit() else int(amount)


def _check_names(names: Iterable[str], types: Sequence[InstanceType], place: str) -> None:
    known = [instance_type.name for instance_type in types]
    for name in names:
        if not any(fnmatchcase(other, name) for other in known):
            similar = difflib.get_close_matches(name, known, n=1)
            hint = f"; did you mean {similar[0]}?" if similar else f" in {place}"
            raise InputError(f"there is no instance type {name}{hint}")


def _check_values(requirements: Requirements, types: Sequence[InstanceType]) -> None:
    from spotwright.scheduling.explain.label_values import explain_unknown_values, known_values

    for requirement in requirements:
        if unknown := explain_unknown_values(requirement, known_values(requirement.key, types)):
            raise InputError(unknown)
