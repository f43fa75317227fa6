"""What is said of a new node: why this type, the next best types, and preferences of its pods that it does not meet."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from spotwright.model import labels, quantity, resources
from spotwright.model.ec2.instance_type import PICOUSD
from spotwright.model.kubernetes.volumes import csi_driver
from spotwright.scheduling.capacity.planned_nodes import PlannedNode
from spotwright.scheduling.inputs.pod_classes import PodCount
from spotwright.scheduling.inputs.pod_requirements import PodRequirements
from spotwright.scheduling.offerings.bit_sets import iterate_bits
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.plan import AlternativeOffering

_MAX_ALTERNATIVES: Final = 4


def binding_resource(planned_node: PlannedNode, offerings: int) -> str:
    """The resource of which least is left on the cheapest type, by share."""
    index = planned_node.weight_group.offering_index
    capacity = index.pool_type_of[(offerings & -offerings).bit_length() - 1].free_capacity
    shares = [used / size if size else 0.0 for used, size in zip(planned_node.usage, capacity, strict=True)]
    return index.dimensions[shares.index(max(shares))]


def alternatives(index: OfferingIndex, offerings: int, cheapest: int) -> tuple[AlternativeOffering, ...]:
    """The next best types, and the best under each other capacity type."""
    chosen, names = list[int](), {_type_name(index, cheapest)}
    for offering in iterate_bits(offerings):
        if len(chosen) == _MAX_ALTERNATIVES:
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
    return AlternativeOffering(_type_name(index, offering), entry.capacity_type, entry.zone, index.prices[offering])


def _type_name(index: OfferingIndex, offering: int) -> str:
    return index.pool_type_of[offering].instance_type.name


def explain_choice(
    planned_node: PlannedNode,
    cheapest: int,
    type_count: int,
    binding: str,
    next_best: Sequence[AlternativeOffering],
) -> str:
    """Why the cheapest offering is what the node is planned for. ``binding``: the resource that decided."""
    index = planned_node.weight_group.offering_index
    pods, place = sum(pods.count for pods in planned_node.pod_counts), index.dimensions.index(binding)
    used, capacity = planned_node.usage[place], index.pool_type_of[cheapest].free_capacity[place]
    text = (
        f"{_type_name(index, cheapest)} {index.offerings[cheapest].capacity_type}"
        f" at {format_price(index.prices[cheapest])}"
        f" is the cheapest of {_count(type_count, 'type')} with room for {_count(pods, 'pod')};"
        f" {_filled(binding, used, capacity)}"
    )
    for alternative in next_best[:1]:
        price = format_price(alternative.price_picousd_per_hour)
        text += f"; next is {alternative.instance_type} {alternative.capacity_type} at {price}"
    return text


def relaxed_preferences(pod_counts: Iterable[PodCount]) -> tuple[str, ...]:
    """A sentence for each preference that pods gave up for the node, sorted, with the number of these pods."""
    counts: dict[str, int] = {}
    for pods in pod_counts:
        first = pods.pod_class.requirement_levels[0]
        for preference in _given_up(first, pods.pod_requirements) if pods.pod_requirements is not first else ():
            counts[preference] = counts.get(preference, 0) + pods.count
    return tuple(f"{preference} ({_count(counts[preference], 'pod')})" for preference in sorted(counts))


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


def _filled(binding: str, used: int, capacity: int) -> str:
    driver = csi_driver(binding)
    if driver:
        return f"its volumes fill it: {used} of {capacity} that it can attach through {driver}"
    return (
        f"{binding} fills it: {quantity.text(binding, used)} of {format_amount(binding, capacity)} that daemons leave"
    )


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def format_amount(resource: str, size: int) -> str:
    """An amount of a resource; memory that is no round number in Mi."""
    return f"{size // 2**20}Mi" if resource == resources.MEMORY and size % 2**20 else quantity.text(resource, size)


def format_price(picousd: int) -> str:
    """``$0.3060/h``."""
    return f"${picousd / PICOUSD:.4f}/h"
