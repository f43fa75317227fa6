"""NodeOverlays over a catalog: prices and extended resources as the user states them, per NodePool.

Source: Karpenter v1.14 ``pkg/controllers/nodeoverlay`` and ``pkg/apis/v1alpha1/nodeoverlay.go``. An overlay selects by
the labels of a pool's template together with those of a type and of an offering, and a label that none of them has
is not met. Heavier overlays win; of two with one weight that touch the same price or the same resource, the one that
comes first by name does nothing at all.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final

import msgspec

from spotwright.model import labels, resources
from spotwright.model.ec2.instance_type import PICOUSD, Catalog, InstanceType, Offering
from spotwright.model.karpenter.nodeoverlay import NodeOverlay
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.requirements import Requirement, RequirementError, Requirements, conjunction, from_labels
from spotwright.scheduling.inputs.nodeclaim_templates import can_meet

INVALID: Final = "RuntimeValidation"
CONFLICT: Final = "Conflict"

_PRICE: Final = re.compile(r"^(\d+\.?\d*|\.\d+)$", re.ASCII)
_ADJUSTMENT: Final = re.compile(r"^(?P<number>[+-](\d+\.?\d*|\.\d+))(?P<percent>%?)$", re.ASCII)
# Labels that an offering has as its own.
_PLACE: Final = frozenset((labels.ZONE, labels.CAPACITY_TYPE))
_HUGE: Final = "hugepages-"
# What the cloud says about these is measured; an overlay may only add what devices and kernels offer besides.
_MEASURED: Final = frozenset((resources.CPU, resources.MEMORY, resources.EPHEMERAL_STORAGE, resources.PODS))


class OverlayStatus(msgspec.Struct, frozen=True):
    """Whether an overlay counts: ``reason`` is "", RuntimeValidation or Conflict, ``message`` says what is wrong."""

    name: str
    reason: str = ""
    message: str = ""


class OverlaidCatalog(msgspec.Struct, frozen=True):
    """A catalog with overlays applied, and a verdict on each of them, by name."""

    catalog: Catalog
    statuses: tuple[OverlayStatus, ...] = ()


class _Change(msgspec.Struct, frozen=True):
    """A valid overlay: what it asks for, and what it does."""

    overlay: NodeOverlay
    wanted: Requirements

    @property
    def prices(self) -> bool:
        return bool(self.overlay.price or self.overlay.price_adjustment)


class _Scope:
    """Types of one class as nodes with one set of template labels see them."""

    def __init__(self, pool: Requirements, types: tuple[InstanceType, ...]) -> None:
        self.pool = pool
        self.types = types
        # (type, offering) and (type, offering, resource) -> the overlay that sets it, and the least weight that touched
        # it.
        self.prices: dict[tuple[int, int], tuple[NodeOverlay, int]] = {}
        self.capacity: dict[tuple[int, int, str], tuple[NodeOverlay, int]] = {}

    def made(self) -> tuple[InstanceType, ...]:
        """The types with everything applied; the same tuple when nothing is."""
        if not self.prices and not self.capacity:
            return self.types
        stated: dict[tuple[int, int], dict[str, int]] = {}
        for (number, place, name), (setter, _) in self.capacity.items():
            stated.setdefault((number, place), {})[name] = setter.capacity[name]
        changed = {number for number, _ in (*self.prices, *stated)}
        made = (
            self._made(number, instance_type, stated) if number in changed else (instance_type,)
            for number, instance_type in enumerate(self.types)
        )
        return tuple(entry for entries in made for entry in entries)

    def _made(
        self, number: int, instance_type: InstanceType, stated: Mapping[tuple[int, int], dict[str, int]]
    ) -> list[InstanceType]:
        """A type's entries, one for each amount of resources that it has somewhere; that of the cloud's first."""
        offerings = [
            _priced(offering, self.prices[number, place][0]) if (number, place) in self.prices else offering
            for place, offering in enumerate(instance_type.offerings)
        ]
        groups: dict[tuple[tuple[str, int], ...], list[Offering]] = {}
        for place, offering in enumerate(offerings):
            extra = stated.get((number, place), {})
            groups.setdefault(tuple(sorted(extra.items())), []).append(offering)
        changed = msgspec.structs.replace(
            instance_type,
            price_overlay_applied=tuple(offerings) != instance_type.offerings,
            capacity_overlay_applied=any(groups),
        )
        ordered = sorted(groups.items(), key=lambda group: bool(group[0]))
        if len(ordered) == 1:
            return [_with(changed, dict(ordered[0][0]), offerings)]
        return [_with(_sold_by(changed, several), dict(extra), several) for extra, several in ordered]


def apply_overlays(catalog: Catalog, overlays: Sequence[NodeOverlay], pools: Iterable[NodePool]) -> OverlaidCatalog:
    """The catalog as the overlays change it for each of these pools."""
    if not overlays:
        return OverlaidCatalog(catalog)
    verdicts, changes = [], []
    for overlay in sorted(sorted(overlays, key=lambda each: each.name, reverse=True), key=lambda each: -each.weight):
        wanted, fault = _read(overlay)
        if wanted is None:
            verdicts.append(OverlayStatus(overlay.name, INVALID, fault))
        else:
            changes.append(_Change(overlay, wanted))
    scopes = _scopes(catalog, changes, pools)
    distinct = list({id(scope): scope for scope in scopes.values()}.values())
    for change in changes:
        verdicts.append(_applied(change, distinct))
    made = {id(scope): scope.made() for scope in distinct}
    by_pool = {name: made[id(scope)] for name, scope in scopes.items() if made[id(scope)] is not scope.types}
    return OverlaidCatalog(
        msgspec.structs.replace(catalog, by_nodepool=by_pool),
        tuple(sorted(verdicts, key=lambda overlay_status: overlay_status.name)),
    )


def _scopes(catalog: Catalog, changes: Sequence[_Change], pools: Iterable[NodePool]) -> dict[str, _Scope]:
    """A scope for each pool; pools that no overlay can tell apart share one."""
    asked = {requirement.key for change in changes for requirement in change.wanted}
    shared: dict[object, _Scope] = {}
    found = {}
    for pool in sorted(pools, key=lambda nodepool: nodepool.name):
        stated = from_labels(pool.labels | {labels.NODEPOOL: pool.name})
        requirements = Requirements(
            {requirement.key: requirement for requirement in stated if requirement.key in asked}
        )
        types = catalog.instance_types(pool.node_class_ref.name)
        key = (id(types), tuple(sorted(requirements.labels().items())))
        found[pool.name] = shared.setdefault(key, _Scope(requirements, types))
    return found


def _applied(change: _Change, scopes: Iterable[_Scope]) -> OverlayStatus:
    """Enter an overlay everywhere, or nowhere when it conflicts with one of its weight."""
    overlay = change.overlay
    prices: list[tuple[_Scope, tuple[int, int]]] = []
    capacity: list[tuple[_Scope, tuple[int, int, str]]] = []
    for scope in scopes:
        for number, places in _selected(change, scope):
            if change.prices:
                prices += [(scope, (number, place)) for place in places]
            capacity += [(scope, (number, place, name)) for place in places for name in sorted(overlay.capacity)]
    for scope, priced in prices:
        if (known := scope.prices.get(priced)) is not None and known[1] == overlay.weight:
            what = f"the price of {scope.types[priced[0]].name}"
            return OverlayStatus(overlay.name, CONFLICT, _conflict(overlay, what))
    for scope, sized in capacity:
        if (known := scope.capacity.get(sized)) is not None and known[1] == overlay.weight:
            what = f"{sized[2]} of {scope.types[sized[0]].name}"
            return OverlayStatus(overlay.name, CONFLICT, _conflict(overlay, what))
    for scope, priced in prices:
        scope.prices[priced] = (scope.prices.get(priced, (overlay, 0))[0], overlay.weight)
    for scope, sized in capacity:
        scope.capacity[sized] = (scope.capacity.get(sized, (overlay, 0))[0], overlay.weight)
    return OverlayStatus(overlay.name)


def _conflict(overlay: NodeOverlay, what: str) -> str:
    return (
        f"another NodeOverlay sets {what} with the same weight, {overlay.weight}: give them different weights;"
        " until then this one does nothing"
    )


def _selected(change: _Change, scope: _Scope) -> Iterator[tuple[int, tuple[int, ...]]]:
    """(type, offerings) that an overlay is about."""
    by_place = [requirement for requirement in change.wanted if requirement.key in _PLACE]
    other_requirements = [requirement for requirement in change.wanted if requirement.key not in _PLACE]
    for number, instance_type in enumerate(scope.types):
        unmet = frozenset(
            requirement.key
            for requirement in other_requirements
            if not _meets(requirement, scope.pool, instance_type.requirements)
        )
        places = tuple(
            place
            for place, offering in enumerate(instance_type.offerings)
            if _sold_at(by_place, offering)
            and all(
                # A type states what any of its offerings may be, an offering what it is.
                _meets(requirement, scope.pool, instance_type.requirements, offering.requirements)
                if requirement.key in offering.requirements
                else requirement.key not in unmet
                for requirement in other_requirements
            )
        )
        if places:
            yield number, places


def _sold_at(demands: Iterable[Requirement], offering: Offering) -> bool:
    return all(
        requirement.has(offering.zone if requirement.key == labels.ZONE else offering.capacity_type)
        for requirement in demands
    )


def _meets(demand: Requirement, *requirementses: Requirements) -> bool:
    """Whether what is stated about a label meets a demand; a label nobody states is absent."""
    stated = [requirements.by_key[demand.key] for requirements in requirementses if demand.key in requirements]
    if not stated:
        return demand.allows_absence
    requirement = stated[0]
    for one in stated[1:]:
        requirement = requirement.intersection(one)
    return can_meet(requirement, demand)


def _read(overlay: NodeOverlay) -> tuple[Requirements | None, str]:
    """What an overlay asks for; None and what is wrong with it when it cannot be applied."""
    if fault := next(_faults(overlay), ""):
        return None, fault
    try:
        wanted = conjunction(expression.requirement() for expression in overlay.requirements)
    except RequirementError as error:
        return None, f"spec.requirements: {error}"
    return wanted, "" if wanted is not None else "spec.requirements contradict each other: no offering meets them"


def _faults(overlay: NodeOverlay) -> Iterator[str]:
    if overlay.read_error:
        yield overlay.read_error
    if overlay.price and overlay.price_adjustment:
        yield "spec.price and spec.priceAdjustment exclude each other: state one of them"
    if overlay.price and not _PRICE.match(overlay.price):
        yield f"spec.price: {overlay.price!r} is not a price in USD per hour such as 0.25"
    if overlay.price_adjustment and not _ADJUSTMENT.match(overlay.price_adjustment):
        yield (
            f"spec.priceAdjustment: {overlay.price_adjustment!r} is not a signed amount of USD per hour or percentage"
            " such as +0.05, -0.05, +10% or -10%"
        )
    for name, amount in sorted(overlay.capacity.items()):
        if name in _MEASURED:
            yield f"spec.capacity: {name} is what the instance type has; only other resources can be stated"
        elif amount < 0:
            yield f"spec.capacity: {name} {amount} is negative"


def _priced(offering: Offering, overlay: NodeOverlay) -> Offering:
    """The offering at the overlay's price: never below nothing, to the nearest picodollar.

    An overlay that names instance types and nothing else also makes buyable what only had no price.
    """
    price = Fraction(offering.price_picousd_per_hour)
    if overlay.price:
        price = Fraction(overlay.price) * PICOUSD
    elif found := _ADJUSTMENT.match(overlay.price_adjustment):
        change = Fraction(found["number"])
        price = price * (1 + change / 100) if found["percent"] else price + change * PICOUSD
    named = [(expression.key, expression.operator) for expression in overlay.requirements] == [
        (labels.INSTANCE_TYPE, "In")
    ]
    available = offering.available or (offering.lacks_price and named and bool(overlay.price))
    return msgspec.structs.replace(offering, price_picousd_per_hour=max(0, round(price)), available=available)


def _with(instance_type: InstanceType, extra: dict[str, int], offerings: Sequence[Offering]) -> InstanceType:
    """A type where it has ``extra``."""
    return msgspec.structs.replace(
        instance_type,
        capacity=instance_type.capacity | extra,
        allocatable=_allocatable(instance_type, extra),
        offerings=tuple(offerings),
    )


def _sold_by(instance_type: InstanceType, offerings: Sequence[Offering]) -> InstanceType:
    """A type whose labels say of where it is sold what these offerings say."""
    said: dict[str, set[str]] = {
        labels.ZONE: {offering.zone for offering in offerings},
        labels.CAPACITY_TYPE: {offering.capacity_type for offering in offerings},
    }
    for key in instance_type.requirements.by_key:
        requirements = [offering.requirements.by_key[key] for offering in offerings if key in offering.requirements]
        if len(requirements) == len(offerings) and not any(requirement.complement for requirement in requirements):
            said[key] = {value for requirement in requirements for value in requirement.values}
    stated = {key: Requirement(key, False, frozenset(values)) for key, values in said.items() if "" not in values}
    merged = instance_type.requirements.by_key | stated
    return msgspec.structs.replace(
        instance_type, requirements=Requirements({key: merged[key] for key in sorted(merged)})
    )


def _allocatable(instance_type: InstanceType, extra: Mapping[str, int]) -> dict[str, int]:
    """What pods may use once the type has ``extra``. Huge pages are taken from memory, as kubelet counts."""
    before = sum(instance_type.capacity.get(name, 0) for name in extra if name.startswith(_HUGE))
    taken = sum(size for name, size in extra.items() if name.startswith(_HUGE)) - before
    left = instance_type.allocatable | dict(extra)
    if taken:
        left[resources.MEMORY] = max(0, left.get(resources.MEMORY, 0) - taken)
    return left
