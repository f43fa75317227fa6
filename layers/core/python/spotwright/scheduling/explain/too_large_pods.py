"""Why a pod fits on none of the instance types that meet its requirements."""

from collections.abc import Iterable, Sequence

from spotwright.model import labels, quantity, resources
from spotwright.model.ec2.instance_type import InstanceType, Offering
from spotwright.model.kubernetes.volumes import UNLIMITED_VOLUMES, csi_driver, volume_resource
from spotwright.model.requirements import Requirements, integer
from spotwright.scheduling.capacity.pending_pods import PendingClass
from spotwright.scheduling.explain.empty_nodepools import list_refusals
from spotwright.scheduling.explain.label_values import known_values
from spotwright.scheduling.explain.reasons import Nearness, PoolReason
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate, can_meet
from spotwright.scheduling.inputs.nodepools import as_written, field_path
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.offerings.pool_types import PoolInstanceType
from spotwright.scheduling.placement.node_options import PodNeeds


def explain_too_large(needs: PodNeeds, index: OfferingIndex, offerings: int, template: NodeClaimTemplate) -> PoolReason:
    """What the pod lacks on these offerings; then where it would fit, and what EC2 or the NodePool keeps away."""
    pending_class = needs.pending_class
    resource, lack = _short_of(pending_class, index, offerings)
    kept_away = _types_refused(needs, template) or _type_ruled_out(pending_class, template)
    text = lack + _split_type_with_room(pending_class, index, offerings) + kept_away
    return PoolReason("TooLarge", text, Nearness.TOO_LARGE, resource, {"resource": resource})


def count_types(number: int) -> str:
    return f"{number} instance type{'' if number == 1 else 's'}"


def _short_of(pending_class: PendingClass, index: OfferingIndex, offerings: int) -> tuple[str, str]:
    """The first resource that alone rules out every type; else all that the pod asks for together."""
    pool_types = [pool_type for pool_type in index.pool_types if pool_type.offerings & offerings]
    types = count_types(len({pool_type.instance_type.name for pool_type in pool_types}))
    for place, name in enumerate(index.dimensions):
        if lack := _lack(name, place, pending_class.size[place], pool_types, types):
            return name, lack
    requests = ", ".join(
        f"{csi_driver(name) or name} {value}"
        for name, value in resources.text(pending_class.pod_class.requests).items()
        if name != resources.PODS
    )
    return "resources", f"none of {types} has {requests} together"


def _lack(name: str, place: int, request: int, pool_types: Sequence[PoolInstanceType], types: str) -> str:
    """What the pod lacks of one resource; "" if some type has enough."""
    largest = max(pool_types, key=lambda pool_type: (pool_type.free_capacity[place], pool_type.instance_type.name))
    most, type_name = largest.free_capacity[place], largest.instance_type.name
    if request <= 0 or request <= most:
        return ""
    if most <= 0:
        return f"it asks for {name} {quantity.text(name, request)}, none of {types} has any"
    if driver := csi_driver(name):
        return f"it attaches {request} volumes through {driver}, the most is {most} on {type_name} ({types})"
    asked, available = quantity.texts(name, (request, most))
    return f"it asks for {name} {asked}, the most is {available} on {type_name} ({types})"


def _split_type_with_room(pending_class: PendingClass, index: OfferingIndex, offerings: int) -> str:
    """Where a type that has more in some offerings than in others has room for the pod."""
    template = index.pool_type_of[(offerings & -offerings).bit_length() - 1].template_index
    with_room = 0
    for pool_type in index.pool_types:
        if pool_type.instance_type.name in index.split_types[template]:
            with_room |= pool_type.offerings
    with_room &= index.offerings_of_template[template] & index.by_capacity.with_room(pending_class.size)
    if not with_room:
        return ""
    cheapest = (with_room & -with_room).bit_length() - 1
    sold, type_name = index.offerings[cheapest], index.pool_type_of[cheapest].instance_type.name
    return f"; {type_name} has room for it as {sold.capacity_type} in {sold.zone}"


def _types_refused(needs: PodNeeds, template: NodeClaimTemplate) -> str:
    """Types of the NodePool with room for the pod whose offerings EC2 refused lately; "" = there are none."""
    requirements = needs.pod_requirements.requirements
    refused = {
        instance_type.name: [
            offering
            for offering in instance_type.offerings
            if offering.unavailable_reason and template.allows(offering) and _meets(offering, requirements)
        ]
        for instance_type in _with_room(needs.pending_class, template.compatible_instance_types())
        if all(
            can_meet(instance_type.requirements.get(requirement.key), requirement)
            for requirement in requirements
            if requirement.key in instance_type.requirements
        )
    }
    names = [name for name, offerings in refused.items() if offerings]
    if not names:
        return ""
    what = "that would hold it is" if len(names) == 1 else "that would hold it are"
    said = list_refusals(offering for offerings in refused.values() for offering in offerings)
    return f"; {count_types(len(names))} {what} not to be had now{said}"


def _meets(offering: Offering, requirements: Requirements) -> bool:
    return requirements.get(labels.ZONE).has(offering.zone) and requirements.get(labels.CAPACITY_TYPE).has(
        offering.capacity_type
    )


def _with_room(pending_class: PendingClass, types: Iterable[InstanceType]) -> list[InstanceType]:
    """Types that hold the pod where nothing else runs."""
    requests = pending_class.pod_class.requests
    unlimited = {name: UNLIMITED_VOLUMES for name in requests if csi_driver(name)}
    return [one for one in types if resources.fits(requests, unlimited | _with_volumes(one))]


def _type_ruled_out(pending_class: PendingClass, template: NodeClaimTemplate) -> str:
    """The cheapest type with room for the pod that a single requirement of the NodePool rules out.

    One that can be bought, of a current generation, and of an architecture that the NodePool's types have, comes first.
    """
    architectures = known_values(labels.ARCH, template.compatible_instance_types())
    with_room = _with_room(pending_class, template.instance_types)
    newest = _newest_generations(template.instance_types)

    def order(instance_type: InstanceType) -> tuple[bool, bool, bool, int, str]:
        price, architecture = _cheapest(instance_type), instance_type.requirements.get(labels.ARCH)
        category, generation = _generation(instance_type)
        is_old = 2 * generation <= newest.get(category, 0)
        return not price, is_old, not any(map(architecture.has, architectures)), price, instance_type.name

    for instance_type in sorted(with_room, key=order):
        unmet = [
            requirement
            for requirement in template.requirements
            if requirement.key in instance_type.requirements
            and not can_meet(instance_type.requirements.get(requirement.key), requirement)
        ]
        if len(unmet) == 1:
            path = field_path(template.nodepool, unmet[0].key)
            asked = as_written(template.nodepool, unmet[0])
            return f"; {instance_type.name} would hold it, but for the pool's {asked} ({path})"
    return ""


def _newest_generations(types: Iterable[InstanceType]) -> dict[str, int]:
    """The newest generation by category (c, m, r …)."""
    newest: dict[str, int] = {}
    for category, generation in map(_generation, types):
        newest[category] = max(newest.get(category, 0), generation)
    return newest


def _generation(instance_type: InstanceType) -> tuple[str, int]:
    """Category and generation of a type; ("", 0) where it does not state them."""
    stated = instance_type.requirements
    category = stated.get(f"{labels.INSTANCE_PREFIX}category").sole_value or ""
    return category, integer(stated.get(f"{labels.INSTANCE_PREFIX}generation").sole_value or "") or 0


def _cheapest(instance_type: InstanceType) -> int:
    """The least price of its available offerings, on-demand if there are any; 0 without any."""
    prices = {
        offering.capacity_type == labels.SPOT: offering.price_picousd_per_hour
        for offering in sorted(
            instance_type.offerings, key=lambda offering: offering.price_picousd_per_hour, reverse=True
        )
        if offering.available
    }
    return prices.get(False, prices.get(True, 0))


def _with_volumes(instance_type: InstanceType) -> dict[str, int]:
    """What a type has for pods, attachable volumes among it."""
    return instance_type.allocatable | {
        volume_resource(driver): count for driver, count in instance_type.attachable_volumes.items()
    }
