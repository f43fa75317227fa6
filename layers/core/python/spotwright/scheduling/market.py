"""What can be bought now in the NodePools of one weight, cheapest first: one bit for each choice.

A choice is an instance type of a NodePool in one zone under one capacity type. A demand on a label is the set of
choices that meet it, a Python integer; demands together are an AND; the lowest bit is the cheapest choice.
Labels that a choice leaves open (a pool says only ``Exists``, a type runs several systems) are *fields*: a second,
small integer with a bit per value that still is possible, see ``openkeys``.
"""

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate
from operator import or_
from typing import Final

from spotwright.model import labels, resources
from spotwright.model.instancetype import InstanceType, Offering
from spotwright.model.requirements import Requirement
from spotwright.model.volumes import ENDLESS, driver_of
from spotwright.scheduling.templates import Daemon, Template

_EXOTIC: Final = (labels.INSTANCE_PREFIX + "gpu-count", labels.INSTANCE_PREFIX + "accelerator-count")

type Statement = str | Requirement | None
"""What a choice says about a label: its value, what it may be, or nothing."""
type Vector = tuple[int, ...]

# Nobody states the label and nobody needs to: whatever is asked, a node can have it.
ANYTHING: Final = Requirement("*", True)


class Goods:
    """An instance type as one NodePool would run it: ``room`` is allocatable without DaemonSets, per dimension,
    ``overhead`` what those ask for. Of a type that has other resources elsewhere there are several."""

    __slots__ = ("mask", "overhead", "room", "template", "type")

    def __init__(self, template: int, type_: InstanceType, overhead: dict[str, int], room: Vector) -> None:
        self.template = template
        self.type = type_
        self.overhead = overhead
        self.room = room
        self.mask = 0


class Market:
    """The choices of some templates. ``goods_of[i]``, ``offers[i]`` and ``prices[i]`` describe choice i.

    ``cramped``: by template, types without room for their DaemonSets of which a NodeOverlay says what they have.
    """

    def __init__(self, templates: Sequence[Template], daemons: Sequence[Daemon], dimensions: Sequence[str]) -> None:
        """``dimensions``: names of the resources that matter, cpu, memory and pods first."""
        self.templates = templates
        self.dimensions = dimensions
        self._slots = [(name, driver) for name in dimensions if (driver := driver_of(name))]
        self.goods: list[Goods] = []
        self.goods_of: list[Goods] = []
        self.offers: list[Offering] = []
        self.of_template: list[int] = [0] * len(templates)
        self.cramped: list[list[InstanceType]] = [[] for _ in templates]
        self._collect(daemons)
        self.prices = [one.price_picousd_per_hour for one in self.offers]
        self.all = (1 << len(self.offers)) - 1
        further = {tuple(one.requirements.by_key) for one in self.offers if one.requirements.by_key}
        self._offer_keys = {labels.ZONE, labels.CAPACITY_TYPE}.union(*further)
        self._groups: dict[str, dict[Statement, int]] = {}
        self._masks: dict[Requirement, int] = {}
        self._capacities: dict[str, tuple[list[int], list[int]]] = {}
        self.reservations = [_reservation(one) for one in self.offers]
        self.least = [dict(one.must_keep) for one in templates]
        self._ladders = [self._ladder(dimension) for dimension in range(len(dimensions))]

    def _collect(self, daemons: Sequence[Daemon]) -> None:
        found: list[tuple[int, str, int, str, str, int, Goods, Offering]] = []
        for number, template in enumerate(self.templates):
            legal = template.legal_types()
            overhead = template.overhead(legal, daemons)
            for type_, daemons_ask in zip(legal, overhead, strict=True):
                goods = self._goods(number, type_, daemons_ask)
                if goods is not None:
                    for one in type_.offerings:
                        if one.available and template.sells(one):
                            price, place = one.price_picousd_per_hour, len(found)
                            found.append((price, type_.name, number, one.zone, one.capacity_type, place, goods, one))
        # No two entries agree in all of their first six fields.
        found.sort()
        for index, (_, _, number, _, _, _, goods, offering) in enumerate(found):
            goods.mask |= 1 << index
            self.of_template[number] |= 1 << index
            self.goods_of.append(goods)
            self.offers.append(offering)
        self.goods = [goods for goods in self.goods if goods.mask]

    def _goods(self, number: int, type_: InstanceType, overhead: dict[str, int]) -> Goods | None:
        """A type with room for its daemons, or None."""
        allocatable = type_.allocatable
        if self._slots:
            allocatable = allocatable | {name: type_.attachable.get(of, ENDLESS) for name, of in self._slots}
        room = tuple([allocatable.get(name, 0) - overhead.get(name, 0) for name in self.dimensions])
        if min(room) < 0:
            self.cramped[number] += [type_] if type_.capacity_overlaid else []
            return None
        self.goods.append(Goods(number, type_, overhead, room))
        return self.goods[-1]

    def _ladder(self, dimension: int) -> tuple[list[int], list[int]]:
        """Sizes of one resource, ascending, and for each the choices with at least that much."""
        steps: dict[int, int] = {}
        for goods in self.goods:
            steps[goods.room[dimension]] = steps.get(goods.room[dimension], 0) | goods.mask
        sizes, masks, above = sorted(steps), [], 0
        for size in reversed(sizes):
            above |= steps[size]
            masks.append(above)
        return sizes, masks[::-1]

    @cached_property
    def reserved(self) -> int:
        """Choices that come out of capacity reservations."""
        return _mask([index for index, one in enumerate(self.reservations) if one])

    @cached_property
    def only_reserved(self) -> int:
        """Choices of types of which nothing but reservations is on offer."""
        return sum(goods.mask for goods in self.goods if not goods.mask & ~self.reserved)

    @cached_property
    def divided(self) -> list[frozenset[str]]:
        """By template: names of types that have other resources in some offerings than in others."""
        return [_divided(one.types) for one in self.templates]

    def within(self, resource: str, amount: int) -> int:
        """Choices of types whose capacity of a resource is no more than this."""
        if resource not in self._capacities:
            self._capacities[resource] = self._below(resource)
        sizes, masks = self._capacities[resource]
        place = bisect_right(sizes, amount)
        return masks[place - 1] if place else 0

    def _below(self, resource: str) -> tuple[list[int], list[int]]:
        """Capacities of a resource, ascending, and for each the choices with at most that much."""
        steps: dict[int, int] = {}
        for goods in self.goods:
            size = goods.type.capacity.get(resource, 0)
            steps[size] = steps.get(size, 0) | goods.mask
        sizes = sorted(steps)
        return sizes, list(accumulate((steps[size] for size in sizes), or_))

    def settled(self, mask: int, choice: int) -> int:
        """What is left of a mask once a node counts on a choice: one reservation, or none."""
        if not self.reserved:
            return mask
        reservation = self.reservations[choice]
        if not reservation:
            return mask & ~self.reserved
        return mask & _mask([index for index, one in enumerate(self.reservations) if one == reservation])

    def enough(self, mask: int) -> int:
        """A mask without the choices of pools that keep fewer distinct values in it than their minValues ask."""
        for least, ours in zip(self.least, self.of_template, strict=True):
            if least and mask & ours:
                kept = mask & ours
                if any(self.distinct(key, kept, at_most=number) < number for key, number in least.items()):
                    mask &= ~ours
        return mask

    def distinct(self, key: str, mask: int, *, at_most: int) -> int:
        """How many values of a label the choices have between them; counting stops at ``at_most``."""
        found: set[str] = set()
        for statement, choices in self.statements(key).items():
            if choices & mask:
                found.update((statement,) if isinstance(statement, str) else statement.values if statement else ())
                if len(found) >= at_most:
                    return at_most
        return len(found)

    @cached_property
    def plain(self) -> int:
        """Choices without GPUs or accelerators, that are no bare metal: what a pod gets unless it needs more."""
        return sum(goods.mask for goods in self.goods if not _is_exotic(goods.type))

    @cached_property
    def ranks(self) -> list[tuple[int, int]]:
        """(millicores, choices of types with that many), ascending."""
        steps: dict[int, int] = {}
        for goods in self.goods:
            cores = goods.type.capacity.get(resources.CPU, 0)
            steps[cores] = steps.get(cores, 0) | goods.mask
        return sorted(steps.items())

    def fitting(self, amounts: Iterable[int]) -> int:
        """Choices with room for these amounts, given in the order of the dimensions."""
        mask = self.all
        for (sizes, masks), amount in zip(self._ladders, amounts, strict=True):
            if amount > 0:
                place = bisect_left(sizes, amount)
                mask &= masks[place] if place < len(masks) else 0
        return mask

    def dominated(self, room: Vector) -> int:
        """Choices with no more room than this in any dimension."""
        mask = self.all
        for (sizes, masks), amount in zip(self._ladders, room, strict=True):
            place = bisect_left(sizes, amount + 1)
            if place < len(masks):
                mask &= ~masks[place]
        return mask

    def meeting(self, requirement: Requirement) -> int:
        """Choices whose label may meet the requirement."""
        mask = self._masks.get(requirement)
        if mask is None:
            mask = self._masks[requirement] = self._meeting(requirement)
        return mask

    def meeting_all(self, requirements: Iterable[Requirement]) -> int:
        mask = self.all
        for requirement in requirements:
            mask &= self.meeting(requirement)
        return mask

    def _meeting(self, requirement: Requirement) -> int:
        groups = self.statements(requirement.key)
        mask = 0
        for statement, choices in groups.items():
            if states(statement, requirement):
                mask |= choices
        return mask

    def statements(self, key: str) -> dict[Statement, int]:
        """What the choices say about a label, each with the choices that say it."""
        groups = self._groups.get(key)
        if groups is None:
            groups = self._groups[key] = {}
            for statement, mask in self._spoken(key):
                groups[statement] = groups.get(statement, 0) | mask
        return groups

    def _spoken(self, key: str) -> Iterator[tuple[Statement, int]]:
        if key not in self._offer_keys:
            for goods in self.goods:
                yield self._of_type(goods, key), goods.mask
            return
        places: dict[Statement, list[int]] = {}
        for index, offering in enumerate(self.offers):
            places.setdefault(self._said(index, offering, key), []).append(index)
        for statement, several in places.items():
            yield statement, _mask(several)

    def _said(self, index: int, offering: Offering, key: str) -> Statement:
        if key in offering.requirements.by_key:
            return _short(offering.requirements.get(key))
        if key == labels.ZONE and offering.zone:
            return offering.zone
        if key == labels.CAPACITY_TYPE and offering.capacity_type:
            return offering.capacity_type
        return self._of_type(self.goods_of[index], key)

    def _of_type(self, goods: Goods, key: str) -> Statement:
        template = self.templates[goods.template]
        declared = template.requirements.by_key.get(key)
        stated = goods.type.requirements.by_key.get(key)
        if stated is not None:
            several = len(stated.values) != 1 and declared is not None and declared.intersects(stated)
            return _short(stated.intersection(declared) if several and declared is not None else stated)
        if declared is not None:
            return _short(declared)
        if key == labels.INSTANCE_TYPE:
            return goods.type.name
        return ANYTHING if key in template.known else None


def _divided(types: Iterable[InstanceType]) -> frozenset[str]:
    entries = Counter(one.name for one in types if one.capacity_overlaid)
    return frozenset(name for name, count in entries.items() if count > 1)


def _reservation(offering: Offering) -> str:
    stated = offering.requirements.by_key.get(labels.RESERVATION_ID)
    return (stated.sole_value or "") if stated is not None else ""


def _is_exotic(type_: InstanceType) -> bool:
    stated = type_.requirements.by_key
    if type_.name.partition(".")[2].startswith("metal"):
        return True
    return any((one := stated.get(key)) is not None and not one.allows_absence for key in _EXOTIC)


def _short(requirement: Requirement) -> Statement:
    return requirement.sole_value or requirement


def states(statement: Statement, requirement: Requirement) -> bool:
    """Whether a label of which this is known can meet the requirement; a label nobody sets is absent."""
    if isinstance(statement, str):
        return requirement.has(statement)
    if statement is None:
        return requirement.allows_absence
    if statement is ANYTHING:
        return True
    return statement.intersects(requirement) or (statement.allows_absence and requirement.allows_absence)


def _mask(places: Sequence[int]) -> int:
    """The integer with these bits set, given in their order; quick for many."""
    if not places:
        return 0
    content = bytearray(places[-1] // 8 + 1)
    for place in places:
        content[place >> 3] |= 1 << (place & 7)
    return int.from_bytes(content, "little")


def bits(mask: int) -> Iterator[int]:
    """Places of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
