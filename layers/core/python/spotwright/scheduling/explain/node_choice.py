"""What is said of a new node: why this type, the next best types, and preferences of its pods that it does not meet."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from spotwright.model import labels, quantity, resources
from spotwright.model.ec2.instance_type import PICOUSD
from spotwright.model.kubernetes.volumes import csi_driver
from spotwright.model.plurals import counted
from spotwright.scheduling.capacity.planned_nodes import PlannedNode
from spotwright.scheduling.inputs.pod_classes import PodCount
from spotwright.scheduling.inputs.pod_requirements import PodRequirements
from spotwright.scheduling.offerings.bit_sets import iterate_bits
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.plan import AlternativeOffering, NewNode, ResourceUsage

MAX_ALTERNATIVES: Final = 4


def usage(planned_node: PlannedNode, offering: int) -> tuple[ResourceUsage, ...]:
    """What its pods use of an offering's type, by share, largest first; pods count where they are what fills it."""
    index = planned_node.weight_group.offering_index
    capacity = index.pool_type_of[offering].free_capacity
    used = [
        ResourceUsage(name, requested, available)
        for name, requested, available in zip(index.dimensions, planned_node.usage, capacity, strict=True)
        if requested
    ]
    ordered = sorted(used, key=lambda entry: -entry.share)
    return tuple(entry for entry in ordered if entry is ordered[0] or entry.resource != resources.PODS)


def alternatives(index: OfferingIndex, offerings: int, cheapest: int) -> tuple[AlternativeOffering, ...]:
    """The next best types, and the best under each other capacity type."""
    chosen, names = list[int](), {_type_name(index, cheapest)}
    for offering in iterate_bits(offerings):
        if len(chosen) == MAX_ALTERNATIVES:
            break
        if _type_name(index, offering) not in names:
            names.add(_type_name(index, offering))
            chosen.append(offering)
    for capacity_type, stating in index.by_label.statements(labels.CAPACITY_TYPE).items():
        if capacity_type != index.offerings[cheapest].capacity_type and (rest := stating & offerings):
            chosen.append((rest & -rest).bit_length() - 1)
    return tuple(_alternative(index, offering) for offering in sorted(set(chosen)))


def _alternative(index: OfferingIndex, offering: int) -> AlternativeOffering:
    entry = index.offerings[offering]
    name = _type_name(index, offering)
    return AlternativeOffering(name, entry.capacity_type, entry.zone, entry.price_picousd_per_hour)


def _type_name(index: OfferingIndex, offering: int) -> str:
    return index.pool_type_of[offering].instance_type.name


def explain_choice(
    planned_node: PlannedNode, offerings: int, type_count: int, next_best: Sequence[AlternativeOffering]
) -> str:
    """Why the cheapest of these offerings is what the node is planned for."""
    index = planned_node.weight_group.offering_index
    cheapest = (offerings & -offerings).bit_length() - 1
    chosen = index.offerings[cheapest]
    text = explain_offering(
        _type_name(index, cheapest), chosen.capacity_type, chosen.price_picousd_per_hour, type_count, next_best
    )
    return "; ".join((text, *_penalties(index, offerings, cheapest)))


def _penalties(index: OfferingIndex, offerings: int, cheapest: int) -> Iterator[str]:
    """Why the chosen offering counts dearer than it is, and why the cheapest of those is not chosen that cost less."""
    chosen = index.offerings[cheapest]
    if chosen.penalty_reason:
        yield chosen.penalty_reason
    passed_over = [
        index.offerings[offering]
        for offering in iterate_bits(offerings & index.penalized)
        if index.offerings[offering].price_picousd_per_hour < chosen.price_picousd_per_hour
    ]
    if passed_over:
        yield min(passed_over, key=lambda offering: offering.price_picousd_per_hour).penalty_reason


def explain_offering(
    instance_type: str,
    capacity_type: str,
    price: int,
    type_count: int,
    next_best: Sequence[AlternativeOffering],
    where: str = "",
) -> str:
    """Why an offering is chosen. ``price``: in picousd an hour; ``type_count``: types with room, the chosen one too.

    ``where``: a zone that is the only one looked at.
    """
    types = f"the cheapest of {type_count} types" if type_count > 1 else "the only type"
    text = f"{instance_type} {capacity_type} at {format_price(price)} is {types} with room for its pods"
    text += f" in {where}" if where else ""
    others = describe_alternatives(type_count - 1, capacity_type, next_best)
    return f"{text}; {others}" if others else text


def explain_node(node: NewNode) -> str:
    """All that is said of a node in one sentence: why its type, and what its pods use of it."""
    used = describe_usage(node.usage)
    return f"{node.reason}; it {used}" if used else node.reason


def describe_alternatives(type_count: int, capacity_type: str, offerings: Sequence[AlternativeOffering]) -> str:
    """How many other types would do, the next of them, and the best under other capacity types; "" without any.

    ``capacity_type``: of the offering that was chosen; ``offerings``: the alternatives to it, cheapest first.
    """
    same = [offering for offering in offerings if offering.capacity_type == capacity_type]
    parts = [f"{counted(type_count, 'alternative')}"] if type_count > 0 else []
    if parts and same:
        parts.append(f"next {same[0].instance_type} {format_price(same[0].price_picousd_per_hour)}")
    cheapest_by_kind: dict[str, AlternativeOffering] = {}
    for offering in offerings:
        if offering.capacity_type != capacity_type:
            cheapest_by_kind.setdefault(offering.capacity_type, offering)
    for kind, offering in sorted(cheapest_by_kind.items()):
        parts.append(f"{kind} from {format_price(offering.price_picousd_per_hour)} ({offering.instance_type})")
    return ", ".join(parts)


def describe_usage(usages: Sequence[ResourceUsage]) -> str:
    """``uses 13 % of cpu (512m of 3920m after DaemonSets), 5 % of memory``; "" without any."""
    return "uses " + ", ".join((*map(_share, usages[:1]), *map(_percent, usages[1:]))) if usages else ""


def _share(entry: ResourceUsage) -> str:
    requested, available = quantity.texts(entry.resource, (entry.requested, entry.available))
    return f"{_percent(entry)} ({requested} of {available} after DaemonSets)"


def _percent(entry: ResourceUsage) -> str:
    return f"{round(100 * entry.share) or 'under 1'} % of {resource_name(entry.resource)}"


def resource_name(resource: str) -> str:
    """A resource as people call it."""
    driver = csi_driver(resource)
    return f"volumes attached through {driver}" if driver else resource


def relaxed_preferences(pod_counts: Iterable[PodCount]) -> tuple[str, ...]:
    """A sentence for each preference that pods gave up for the node, sorted, with the number of these pods."""
    counts: dict[str, int] = {}
    for pods in pod_counts:
        first = pods.pod_class.requirement_levels[0]
        for preference in _given_up(first, pods.pod_requirements) if pods.pod_requirements is not first else ():
            counts[preference] = counts.get(preference, 0) + pods.count
    return tuple(f"{preference} ({counted(counts[preference], 'pod')})" for preference in sorted(counts))


def _given_up(first: PodRequirements, last: PodRequirements) -> Iterator[str]:
    for requirement in first.requirements:
        if first.strict_requirements.by_key.get(requirement.key) != requirement:
            kept = last.requirements.by_key.get(requirement.key)
            if kept is None or kept.intersection(requirement) != kept:
                yield f"node preference {requirement}"
    for pod_affinity_term in first.pod_affinity:
        if pod_affinity_term not in last.pod_affinity:
            yield f"preferred pod affinity over {_domains(pod_affinity_term.topology_key)}"
    for pod_affinity_term in first.pod_anti_affinity:
        if pod_affinity_term not in last.pod_anti_affinity:
            yield f"preferred pod anti-affinity over {_domains(pod_affinity_term.topology_key)}"
    for constraint in first.topology_spread_constraints:
        if not constraint.do_not_schedule and constraint not in last.topology_spread_constraints:
            yield f"ScheduleAnyway spread over {_domains(constraint.topology_key)}"
    if len(last.tolerations) > len(first.tolerations):
        yield "keeping away from PreferNoSchedule taints"


def _domains(topology_key: str) -> str:
    names = {labels.HOSTNAME: "hosts", labels.ZONE: "zones", labels.CAPACITY_TYPE: "capacity types"}
    return names.get(topology_key, topology_key)


def format_amount(resource: str, size: int) -> str:
    """An amount of a resource; memory that is no round number in Mi."""
    return f"{size // 2**20}Mi" if resource == resources.MEMORY and size % 2**20 else quantity.text(resource, size)


def format_price(picousd: int) -> str:
    """``$0.3060/h``."""
    return f"${picousd / PICOUSD:.4f}/h"
