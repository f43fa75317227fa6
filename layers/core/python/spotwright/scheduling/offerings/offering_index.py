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
from spotwright.model.ec2.instance_type import InstanceType, Offering
from spotwright.model.kubernetes.volumes import UNLIMITED_VOLUMES, csi_driver
from spotwright.model.requirements import Requirement
from spotwright.scheduling.inputs.daemonset_pods import DaemonSetPod
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate

_EXOTIC: Final = (labels.INSTANCE_PREFIX + "gpu-count", labels.INSTANCE_PREFIX + "accelerator-count")

type LabelStatement = str | Requirement | None
"""What a choice says about a label: its value, what it may be, or nothing."""
type Vector = tuple[int, ...]

# Nobody states the label and nobody needs to: whatever is asked, a node can have it.
ANYTHING: Final = Requirement("*", True)


class PoolInstanceType:
    """An instance type as one NodePool would run it: ``free_capacity`` is allocatable without DaemonSets, per
    dimension, ``daemon_overhead`` what those ask for. Of a type that has other resources elsewhere there are several.
    """

    __slots__ = ("daemon_overhead", "free_capacity", "instance_type", "offerings", "template_index")

    def __init__(self, template: int, type_: InstanceType, overhead: dict[str, int], room: Vector) -> None:
        self.template_index = template
        self.instance_type = type_
        self.daemon_overhead = overhead
        self.free_capacity = room
        self.offerings = 0


class OfferingIndex:
    """The choices of some templates. ``goods_of[i]``, ``offers[i]`` and ``prices[i]`` describe choice i.

    ``too_small_for_daemons``: by template, types without room for their DaemonSets of which a NodeOverlay says what
    they have.
    """

    def __init__(
        self, templates: Sequence[NodeClaimTemplate], daemons: Sequence[DaemonSetPod], dimensions: Sequence[str]
    ) -> None:
        """``dimensions``: names of the resources that matter, cpu, memory and pods first."""
        self.templates = templates
        self.dimensions = dimensions
        self._slots = [(name, driver) for name in dimensions if (driver := csi_driver(name))]
        self.pool_types: list[PoolInstanceType] = []
        self.pool_type_of: list[PoolInstanceType] = []
        self.offerings: list[Offering] = []
        self.offerings_of_template: list[int] = [0] * len(templates)
        self.too_small_for_daemons: list[list[InstanceType]] = [[] for _ in templates]
        self._collect(daemons)
        self.prices = [offering.price_picousd_per_hour for offering in self.offerings]
        self.all_offerings = (1 << len(self.offerings)) - 1
        further = {tuple(offering.requirements.by_key) for offering in self.offerings if offering.requirements.by_key}
        self._offer_keys = {labels.ZONE, labels.CAPACITY_TYPE}.union(*further)
        self._groups: dict[str, dict[LabelStatement, int]] = {}
        self._masks: dict[Requirement, int] = {}
        self._capacities: dict[str, tuple[list[int], list[int]]] = {}
        self.reservation_ids = [_reservation(offering) for offering in self.offerings]
        self.min_values = [dict(template.min_values) for template in templates]
        self._ladders = [self._ladder(dimension) for dimension in range(len(dimensions))]

    def _collect(self, daemons: Sequence[DaemonSetPod]) -> None:
        found: list[tuple[int, str, int, str, str, int, PoolInstanceType, Offering]] = []
        for number, template in enumerate(self.templates):
            legal = template.compatible_instance_types()
            overhead = template.daemon_overheads(legal, daemons)
            for type_, daemons_ask in zip(legal, overhead, strict=True):
                goods = self._goods(number, type_, daemons_ask)
                if goods is not None:
                    for one in type_.offerings:
                        if one.available and template.allows(one):
                            price, place = one.price_picousd_per_hour, len(found)
                            found.append((price, type_.name, number, one.zone, one.capacity_type, place, goods, one))
        # No two entries agree in all of their first six fields.
        found.sort()
        for index, (_, _, number, _, _, _, goods, offering) in enumerate(found):
            goods.offerings |= 1 << index
            self.offerings_of_template[number] |= 1 << index
            self.pool_type_of.append(goods)
            self.offerings.append(offering)
        self.pool_types = [goods for goods in self.pool_types if goods.offerings]

    def _goods(self, number: int, type_: InstanceType, overhead: dict[str, int]) -> PoolInstanceType | None:
        """A type with room for its daemons, or None."""
        allocatable = type_.allocatable
        if self._slots:
            allocatable = allocatable | {
                name: type_.attachable_volumes.get(of, UNLIMITED_VOLUMES) for name, of in self._slots
            }
        room = tuple([allocatable.get(name, 0) - overhead.get(name, 0) for name in self.dimensions])
        if min(room) < 0:
            self.too_small_for_daemons[number] += [type_] if type_.capacity_overlay_applied else []
            return None
        self.pool_types.append(PoolInstanceType(number, type_, overhead, room))
        return self.pool_types[-1]

    def _ladder(self, dimension: int) -> tuple[list[int], list[int]]:
        """Sizes of one resource, ascending, and for each the choices with at least that much."""
        steps: dict[int, int] = {}
        for goods in self.pool_types:
            steps[goods.free_capacity[dimension]] = steps.get(goods.free_capacity[dimension], 0) | goods.offerings
        sizes, masks, above = sorted(steps), [], 0
        for size in reversed(sizes):
            above |= steps[size]
            masks.append(above)
        return sizes, masks[::-1]

    @cached_property
    def reserved_offerings(self) -> int:
        """Choices that come out of capacity reservations."""
        return _mask([index for index, one in enumerate(self.reservation_ids) if one])

    @cached_property
    def reserved_only_types(self) -> int:
        """Choices of types of which nothing but reservations is on offer."""
        return sum(goods.offerings for goods in self.pool_types if not goods.offerings & ~self.reserved_offerings)

    @cached_property
    def split_types(self) -> list[frozenset[str]]:
        """By template: names of types that have other resources in some offerings than in others."""
        return [_divided(template.instance_types) for template in self.templates]

    def offerings_up_to(self, resource: str, amount: int) -> int:
        """Choices of types whose capacity of a resource is no more than this."""
        if resource not in self._capacities:
            self._capacities[resource] = self._below(resource)
        sizes, masks = self._capacities[resource]
        place = bisect_right(sizes, amount)
        return masks[place - 1] if place else 0

    def _below(self, resource: str) -> tuple[list[int], list[int]]:
        """Capacities of a resource, ascending, and for each the choices with at most that much."""
        steps: dict[int, int] = {}
        for goods in self.pool_types:
            size = goods.instance_type.capacity.get(resource, 0)
            steps[size] = steps.get(size, 0) | goods.offerings
        sizes = sorted(steps)
        return sizes, list(accumulate((steps[size] for size in sizes), or_))

    def same_reservation(self, mask: int, choice: int) -> int:
        """What is left of a mask once a node counts on a choice: one reservation, or none."""
        if not self.reserved_offerings:
            return mask
        reservation = self.reservation_ids[choice]
        if not reservation:
            return mask & ~self.reserved_offerings
        return mask & _mask([index for index, one in enumerate(self.reservation_ids) if one == reservation])

    def keep_min_values(self, mask: int) -> int:
        """A mask without the choices of pools that keep fewer distinct values in it than their minValues ask."""
        for least, ours in zip(self.min_values, self.offerings_of_template, strict=True):
            if least and mask & ours:
                kept = mask & ours
                if any(self.count_values(key, kept, at_most=number) < number for key, number in least.items()):
                    mask &= ~ours
        return mask

    def count_values(self, key: str, mask: int, *, at_most: int) -> int:
        """How many values of a label the choices have between them; counting stops at ``at_most``."""
        found: set[str] = set()
        for statement, choices in self.label_statements(key).items():
            if choices & mask:
                found.update((statement,) if isinstance(statement, str) else statement.values if statement else ())
                if len(found) >= at_most:
                    return at_most
        return len(found)

    @cached_property
    def general_purpose(self) -> int:
        """Choices without GPUs or accelerators, that are no bare metal: what a pod gets unless it needs more."""
        return sum(goods.offerings for goods in self.pool_types if not _is_exotic(goods.instance_type))

    @cached_property
    def offerings_by_millicores(self) -> list[tuple[int, int]]:
        """(millicores, choices of types with that many), ascending."""
        steps: dict[int, int] = {}
        for goods in self.pool_types:
            cores = goods.instance_type.capacity.get(resources.CPU, 0)
            steps[cores] = steps.get(cores, 0) | goods.offerings
        return sorted(steps.items())

    def offerings_with_room(self, amounts: Iterable[int]) -> int:
        """Choices with room for these amounts, given in the order of the dimensions."""
        mask = self.all_offerings
        for (sizes, masks), amount in zip(self._ladders, amounts, strict=True):
            if amount > 0:
                place = bisect_left(sizes, amount)
                mask &= masks[place] if place < len(masks) else 0
        return mask

    def dominated_offerings(self, room: Vector) -> int:
        """Choices with no more room than this in any dimension."""
        mask = self.all_offerings
        for (sizes, masks), amount in zip(self._ladders, room, strict=True):
            place = bisect_left(sizes, amount + 1)
            if place < len(masks):
                mask &= ~masks[place]
        return mask

    def offerings_meeting(self, requirement: Requirement) -> int:
        """Choices whose label may meet the requirement."""
        mask = self._masks.get(requirement)
        if mask is None:
            mask = self._masks[requirement] = self._meeting(requirement)
        return mask

    def offerings_meeting_all(self, requirements: Iterable[Requirement]) -> int:
        mask = self.all_offerings
        for requirement in requirements:
            mask &= self.offerings_meeting(requirement)
        return mask

    def _meeting(self, requirement: Requirement) -> int:
        groups = self.label_statements(requirement.key)
        mask = 0
        for statement, choices in groups.items():
            if statement_can_meet(statement, requirement):
                mask |= choices
        return mask

    def label_statements(self, key: str) -> dict[LabelStatement, int]:
        """What the choices say about a label, each with the choices that say it."""
        groups = self._groups.get(key)
        if groups is None:
            groups = self._groups[key] = {}
            for statement, mask in self._spoken(key):
                groups[statement] = groups.get(statement, 0) | mask
        return groups

    def _spoken(self, key: str) -> Iterator[tuple[LabelStatement, int]]:
        if key not in self._offer_keys:
            for goods in self.pool_types:
                yield self._of_type(goods, key), goods.offerings
            return
        places: dict[LabelStatement, list[int]] = {}
        for index, offering in enumerate(self.offerings):
            places.setdefault(self._said(index, offering, key), []).append(index)
        for statement, several in places.items():
            yield statement, _mask(several)

    def _said(self, index: int, offering: Offering, key: str) -> LabelStatement:
        if key in offering.requirements.by_key:
            return _short(offering.requirements.get(key))
        if key == labels.ZONE and offering.zone:
            return offering.zone
        if key == labels.CAPACITY_TYPE and offering.capacity_type:
            return offering.capacity_type
        return self._of_type(self.pool_type_of[index], key)

    def _of_type(self, goods: PoolInstanceType, key: str) -> LabelStatement:
        template = self.templates[goods.template_index]
        declared = template.requirements.by_key.get(key)
        stated = goods.instance_type.requirements.by_key.get(key)
        if stated is not None:
            several = len(stated.values) != 1 and declared is not None and declared.intersects(stated)
            return _short(stated.intersection(declared) if several and declared is not None else stated)
        if declared is not None:
            return _short(declared)
        if key == labels.INSTANCE_TYPE:
            return goods.instance_type.name
        return ANYTHING if key in template.known_label_keys else None


def _divided(types: Iterable[InstanceType]) -> frozenset[str]:
    entries = Counter(instance_type.name for instance_type in types if instance_type.capacity_overlay_applied)
    return frozenset(name for name, count in entries.items() if count > 1)


def _reservation(offering: Offering) -> str:
    stated = offering.requirements.by_key.get(labels.RESERVATION_ID)
    return (stated.sole_value or "") if stated is not None else ""


def _is_exotic(type_: InstanceType) -> bool:
    stated = type_.requirements.by_key
    if type_.name.partition(".")[2].startswith("metal"):
        return True
    return any((requirement := stated.get(key)) is not None and not requirement.allows_absence for key in _EXOTIC)


def _short(requirement: Requirement) -> LabelStatement:
    return requirement.sole_value or requirement


def statement_can_meet(statement: LabelStatement, requirement: Requirement) -> bool:
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


def iterate_bits(mask: int) -> Iterator[int]:
    """Places of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
