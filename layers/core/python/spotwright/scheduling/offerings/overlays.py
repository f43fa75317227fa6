"""NodeOverlays over a catalog: prices and extended resources as the user states them, per NodePool.

Source: Karpenter v1.14 ``pkg/controllers/nodeoverlay``. An overlay selects by the labels of a NodePool's template
together with those of a type and of an offering; a label that none of them has is not met. Heavier overlays win; of two
with one weight that touch the same price or the same resource, the first by name does nothing at all.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import msgspec

from spotwright.model import labels
from spotwright.model.ec2.instance_type import Catalog, InstanceType, Offering
from spotwright.model.karpenter.nodeoverlay import NodeOverlay
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.requirements import Requirement, Requirements, from_labels
from spotwright.scheduling.inputs.nodeclaim_templates import can_meet
from spotwright.scheduling.offerings.overlaid_types import overlay_type
from spotwright.scheduling.offerings.overlay_requirements import read_requirements

INVALID: Final = "RuntimeValidation"
CONFLICT: Final = "Conflict"

# Labels that an offering has as its own.
_PLACE_LABELS: Final = frozenset((labels.ZONE, labels.CAPACITY_TYPE))

type _Place = tuple[int, int]
"""An offering: the number of its type, and its own number in the type."""


class OverlayStatus(msgspec.Struct, frozen=True):
    """Whether an overlay counts: ``reason`` is "", RuntimeValidation or Conflict, ``message`` says what is wrong."""

    name: str
    reason: str = ""
    message: str = ""


class OverlaidCatalog(msgspec.Struct, frozen=True):
    """A catalog with overlays applied, and the status of each overlay, by name."""

    catalog: Catalog
    statuses: tuple[OverlayStatus, ...] = ()


class _ValidOverlay(msgspec.Struct, frozen=True):
    overlay: NodeOverlay
    requirements: Requirements

    @property
    def changes_price(self) -> bool:
        return bool(self.overlay.price or self.overlay.price_adjustment)


class _Scope:
    """Types of one EC2NodeClass as NodePools with the same template labels see them.

    ``prices`` and ``capacity``: by offering, and by offering and resource, the overlay that sets it and the overlay of
    the least weight that is about it too.
    """

    def __init__(self, pool_labels: Requirements, types: tuple[InstanceType, ...]) -> None:
        self.pool_labels = pool_labels
        self.types = types
        self.prices: dict[_Place, tuple[NodeOverlay, NodeOverlay]] = {}
        self.capacity: dict[tuple[_Place, str], tuple[NodeOverlay, NodeOverlay]] = {}

    def overlaid_types(self) -> tuple[InstanceType, ...]:
        """The types with everything applied; the same tuple when nothing is."""
        if not self.prices and not self.capacity:
            return self.types
        prices: dict[int, dict[int, NodeOverlay]] = {}
        for (number, place), (overlay, _) in self.prices.items():
            prices.setdefault(number, {})[place] = overlay
        capacities: dict[int, dict[int, dict[str, int]]] = {}
        for ((number, place), name), (overlay, _) in self.capacity.items():
            capacities.setdefault(number, {}).setdefault(place, {})[name] = overlay.capacity[name]
        return tuple(
            entry
            for number, instance_type in enumerate(self.types)
            for entry in (
                overlay_type(instance_type, prices.get(number, {}), capacities.get(number, {}))
                if number in prices or number in capacities
                else (instance_type,)
            )
        )


def apply_overlays(catalog: Catalog, overlays: Sequence[NodeOverlay], nodepools: Iterable[NodePool]) -> OverlaidCatalog:
    """The catalog as the overlays change it for each of these NodePools."""
    if not overlays:
        return OverlaidCatalog(catalog)
    statuses, valid = [], []
    by_name = sorted(overlays, key=lambda overlay: overlay.name, reverse=True)
    for overlay in sorted(by_name, key=lambda overlay: -overlay.weight):
        requirements = read_requirements(overlay)
        if isinstance(requirements, str):
            statuses.append(OverlayStatus(overlay.name, INVALID, requirements))
        else:
            valid.append(_ValidOverlay(overlay, requirements))
    scopes = _scopes(catalog, valid, nodepools)
    distinct = list({id(scope): scope for scope in scopes.values()}.values())
    statuses += [_apply(overlay, distinct) for overlay in valid]
    types = {id(scope): scope.overlaid_types() for scope in distinct}
    by_nodepool = {name: types[id(scope)] for name, scope in scopes.items() if types[id(scope)] is not scope.types}
    return OverlaidCatalog(
        msgspec.structs.replace(catalog, by_nodepool=by_nodepool),
        tuple(sorted(statuses, key=lambda status: status.name)),
    )


def _scopes(catalog: Catalog, overlays: Sequence[_ValidOverlay], nodepools: Iterable[NodePool]) -> dict[str, _Scope]:
    """A scope for each NodePool; NodePools that no overlay can tell apart share one."""
    keys = {requirement.key for overlay in overlays for requirement in overlay.requirements}
    shared: dict[object, _Scope] = {}
    scopes = {}
    for pool in sorted(nodepools, key=lambda nodepool: nodepool.name):
        stated = from_labels(pool.labels | {labels.NODEPOOL: pool.name})
        pool_labels = Requirements({requirement.key: requirement for requirement in stated if requirement.key in keys})
        types = catalog.instance_types(pool.node_class_ref.name)
        key = (id(types), tuple(sorted(pool_labels.labels().items())))
        scopes[pool.name] = shared.setdefault(key, _Scope(pool_labels, types))
    return scopes


def _apply(valid: _ValidOverlay, scopes: Iterable[_Scope]) -> OverlayStatus:
    """Apply an overlay everywhere, or nowhere when it conflicts with an overlay of the same weight."""
    overlay = valid.overlay
    prices: list[tuple[_Scope, _Place]] = []
    capacity: list[tuple[_Scope, tuple[_Place, str]]] = []
    for scope in scopes:
        for place in _selected_offerings(valid, scope):
            prices += [(scope, place)] if valid.changes_price else []
            capacity += [(scope, (place, name)) for name in sorted(overlay.capacity)]
    if conflict := _find_conflict(overlay, prices, capacity):
        return conflict
    for scope, place in prices:
        scope.prices[place] = (scope.prices.get(place, (overlay, overlay))[0], overlay)
    for scope, resource in capacity:
        scope.capacity[resource] = (scope.capacity.get(resource, (overlay, overlay))[0], overlay)
    return OverlayStatus(overlay.name)


def _find_conflict(
    overlay: NodeOverlay,
    prices: Sequence[tuple[_Scope, _Place]],
    capacity: Sequence[tuple[_Scope, tuple[_Place, str]]],
) -> OverlayStatus | None:
    """The status of an overlay that sets what an overlay of the same weight sets; None if there is none."""
    priced = [
        (other, "the price", scope.types[place[0]].name)
        for scope, place in prices
        if place in scope.prices and (other := scope.prices[place][1]).weight == overlay.weight
    ]
    sized = [
        (other, resource[1], scope.types[resource[0][0]].name)
        for scope, resource in capacity
        if resource in scope.capacity and (other := scope.capacity[resource][1]).weight == overlay.weight
    ]
    conflicts = priced or sized
    if not conflicts:
        return None
    other, subject, _ = conflicts[0]
    types = sorted({name for conflicting, _, name in conflicts if conflicting.name == other.name})
    more = f" (+{len(types) - 1} types)" if len(types) > 1 else ""
    message = (
        f"NodeOverlay {other.name} has the same weight {overlay.weight} and also sets {subject} of {types[0]}{more}:"
        " give them different weights; until then this one does nothing"
    )
    return OverlayStatus(overlay.name, CONFLICT, message)


def _selected_offerings(valid: _ValidOverlay, scope: _Scope) -> Iterator[_Place]:
    """The offerings that an overlay is about."""
    on_place = [requirement for requirement in valid.requirements if requirement.key in _PLACE_LABELS]
    on_type = [requirement for requirement in valid.requirements if requirement.key not in _PLACE_LABELS]
    for number, instance_type in enumerate(scope.types):
        unmet = frozenset(
            requirement.key
            for requirement in on_type
            if not _meets(requirement, scope.pool_labels, instance_type.requirements)
        )
        for place, offering in enumerate(instance_type.offerings):
            if _is_at(on_place, offering) and all(
                # A type states what any of its offerings may be, an offering what it is.
                _meets(requirement, scope.pool_labels, instance_type.requirements, offering.requirements)
                if requirement.key in offering.requirements
                else requirement.key not in unmet
                for requirement in on_type
            ):
                yield number, place


def _is_at(requirements: Iterable[Requirement], offering: Offering) -> bool:
    return all(
        requirement.has(offering.zone if requirement.key == labels.ZONE else offering.capacity_type)
        for requirement in requirements
    )


def _meets(requirement: Requirement, *sources: Requirements) -> bool:
    """Whether what these sources state about a label meets a requirement; a label that none states is absent."""
    stated = [source.by_key[requirement.key] for source in sources if requirement.key in source]
    if not stated:
        return requirement.allows_absence
    label = stated[0]
    for further in stated[1:]:
        label = label.intersection(further)
    return can_meet(label, requirement)
