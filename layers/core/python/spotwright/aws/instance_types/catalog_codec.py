"""A catalog as bytes: small, and quick to read in a process that has just started.

Equal requirements, amounts and types are written once and referred to by number: most labels of most types repeat, and
EC2NodeClasses differ in little. Decoding makes a single object of equal entries, which is shared wherever it is used.
"""

from collections.abc import Hashable, Mapping
from typing import Final

import msgspec

from spotwright.model.ec2.instance_type import Catalog, InstanceType, Offering
from spotwright.model.requirements import Requirement, Requirements

SCHEMA: Final = 2
_UNPRICED: Final = 2

type _Numbers = tuple[int, ...]
type _Amounts = tuple[tuple[str, int], ...]
# key, complement, values, gte, lte, min_values
type _Requirement = tuple[str, bool, tuple[str, ...], int | None, int | None, int | None]
# zone, capacity type, price, whether it is available (_UNPRICED: but for its price), requirements, reservation capacity
type _Offering = tuple[str, str, int, bool | int, int, int]
# name of a map, its entries
type _Kubelet = tuple[tuple[str, tuple[tuple[str, str], ...]], ...]
# name, requirements, capacity, allocatable, offerings, kubelet
type _Type = tuple[str, int, int, int, int, int]


class _Body(msgspec.Struct, frozen=True):
    """Tables; every number is a row of another table. ``sets``: the requirements of a type or an offering.

    ``attachable``: for each type the row of its attachable volumes; ``needed``: requirements whose label must exist
    although they only exclude values. Catalogs of earlier versions lack both.
    """

    requirements: tuple[_Requirement, ...]
    sets: tuple[_Numbers, ...]
    amounts: tuple[_Amounts, ...]
    offerings: tuple[tuple[_Offering, ...], ...]
    kubelets: tuple[_Kubelet, ...]
    types: tuple[_Type, ...]
    by_class: dict[str, _Numbers]
    source: str
    signatures: dict[str, str]
    shifted: tuple[str, ...]
    memory: dict[str, tuple[int, int]] = {}
    attachable: _Numbers = ()
    needed: _Numbers = ()
    schema: int = SCHEMA


class _Table[Row: Hashable]:
    """Numbers rows from 0 in the order in which they come; equal rows have the same number."""

    def __init__(self) -> None:
        self._numbers: dict[Row, int] = {}

    def number(self, row: Row) -> int:
        return self._numbers.setdefault(row, len(self._numbers))

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(self._numbers)


class _Writer:
    """The tables of a catalog that is being written."""

    def __init__(self) -> None:
        self.requirements, self.sets = _Table[tuple[_Requirement, bool]](), _Table[_Numbers]()
        self.amounts, self.kubelets = _Table[_Amounts](), _Table[_Kubelet]()
        self.offerings, self.types = _Table[tuple[_Offering, ...]](), _Table[tuple[_Type, int]]()
        # By identity: EC2NodeClasses with equal types share the tuple, offerings of a zone their requirements.
        self._type_numbers: dict[int, _Numbers] = {}
        self._set_numbers: dict[int, int] = {}

    def all(self, instance_types: tuple[InstanceType, ...]) -> _Numbers:
        if id(instance_types) not in self._type_numbers:
            self._type_numbers[id(instance_types)] = tuple(self.type(instance_type) for instance_type in instance_types)
        return self._type_numbers[id(instance_types)]

    def type(self, instance_type: InstanceType) -> int:
        offerings = self.offerings.number(tuple(self._offering(offering) for offering in instance_type.offerings))
        capacity, allocatable = self._amounts(instance_type.capacity), self._amounts(instance_type.allocatable)
        kubelet = self.kubelets.number(
            tuple(
                (name, tuple(instance_type.kubelet_reserved[name].items())) for name in instance_type.kubelet_reserved
            )
        )
        row = (instance_type.name, self._set(instance_type.requirements), capacity, allocatable, offerings, kubelet)
        return self.types.number((row, self._amounts(instance_type.attachable_volumes)))

    def _offering(self, offering: Offering) -> _Offering:
        price, extra = offering.price_picousd_per_hour, self._set(offering.requirements)
        available = _UNPRICED if offering.lacks_price else offering.available
        return (offering.zone, offering.capacity_type, price, available, extra, offering.reservation_capacity)

    def _set(self, all_of: Requirements) -> int:
        if id(all_of) not in self._set_numbers:
            numbers = tuple(self.requirements.number(_requirement(requirement)) for requirement in all_of)
            self._set_numbers[id(all_of)] = self.sets.number(numbers)
        return self._set_numbers[id(all_of)]

    def _amounts(self, amounts: Mapping[str, int]) -> int:
        return self.amounts.number(tuple(sorted(amounts.items())))


def _requirement(requirement: Requirement) -> tuple[_Requirement, bool]:
    return (
        requirement.key,
        requirement.complement,
        tuple(sorted(requirement.values)),
        requirement.gte,
        requirement.lte,
        requirement.min_values,
    ), requirement.must_exist


def encode(catalog: Catalog, header: "CatalogHeader | None" = None) -> bytes:
    """Equal catalogs give equal bytes."""
    catalog_header = header or CatalogHeader(shifted=catalog.shifted_zone_ids)
    writer = _Writer()
    by_class = {name: writer.all(catalog.by_nodeclass[name]) for name in sorted(catalog.by_nodeclass)}
    body = _Body(
        requirements=tuple(row for row, _ in writer.requirements.rows),
        sets=writer.sets.rows,
        amounts=writer.amounts.rows,
        offerings=writer.offerings.rows,
        kubelets=writer.kubelets.rows,
        types=tuple(row for row, _ in writer.types.rows),
        by_class=by_class,
        source=catalog.source,
        signatures=dict(sorted(catalog_header.signatures.items())),
        shifted=catalog_header.shifted,
        memory=catalog_header.memory,
        attachable=tuple(attachable for _, attachable in writer.types.rows),
        needed=tuple(number for number, (_, present) in enumerate(writer.requirements.rows) if present),
    )
    return msgspec.json.encode(body)


class CatalogHeader(msgspec.Struct, frozen=True):
    """What a catalog was made from. ``source``: the key of its region facts in the blob store.

    ``signatures``: EC2NodeClass → digest of what its instance types depend on. ``shifted``: ids of the zones that
    traffic was shifted away from, sorted. ``memory``: see ``discovered_capacity.DiscoveredMemory``.
    """

    source: str = ""
    signatures: dict[str, str] = {}
    shifted: tuple[str, ...] = ()
    memory: dict[str, tuple[int, int]] = {}
    schema: int = 0


def read_header(body: bytes) -> CatalogHeader:
    """The header of an encoded catalog, without its instance types; raises msgspec.DecodeError."""
    return msgspec.json.decode(body, type=CatalogHeader)


def decode(body: bytes) -> Catalog:
    """The catalog; raises msgspec.DecodeError for bytes that are not a catalog."""
    body_read = msgspec.json.decode(body, type=_Body)
    needed = frozenset(body_read.needed)
    requirements = [
        Requirement(key, complement, frozenset(values), gte, lte, least, number in needed)
        for number, (key, complement, values, gte, lte, least) in enumerate(body_read.requirements)
    ]
    sets = [
        Requirements({requirements[number].key: requirements[number] for number in numbers})
        for numbers in body_read.sets
    ]
    amounts = [dict(entries) for entries in body_read.amounts]
    kubelets = [{name: dict(entries) for name, entries in kubelet} for kubelet in body_read.kubelets]
    offerings = [
        tuple(
            Offering(zone, kind, price, available is True, sets[extra], reserved, lacks_price=available == _UNPRICED)
            for zone, kind, price, available, extra, reserved in offering
        )
        for offering in body_read.offerings
    ]
    attachable = [amounts[number] for number in body_read.attachable] or [{}] * len(body_read.types)
    types = [
        InstanceType(
            name,
            sets[labels],
            amounts[capacity],
            amounts[allocatable],
            offerings[sold],
            kubelet_reserved=kubelets[kubelet],
            attachable_volumes=volumes,
        )
        for (name, labels, capacity, allocatable, sold, kubelet), volumes in zip(
            body_read.types, attachable, strict=True
        )
    ]
    by_class = {name: tuple(types[number] for number in numbers) for name, numbers in body_read.by_class.items()}
    return Catalog(by_class, body_read.source, shifted_zone_ids=body_read.shifted)
