"""Room that is left on nodes in the making, for pods that come later: none of these nodes gets larger by it."""

from collections.abc import Sequence

from spotwright.scheduling.inputs.pod_classes import PodRequirements
from spotwright.scheduling.offerings.undetermined_labels import UNCONSTRAINED
from spotwright.scheduling.packing.host_constraints import HostState, build_host_constraints
from spotwright.scheduling.placement.open_nodes import OfferingOptions, OpenNode
from spotwright.scheduling.placement.pending_pods import AssignedPods, PendingClass
from spotwright.scheduling.topology.topology import Topology


def backfill(sites: Sequence[OpenNode], waiting: Sequence[PendingClass], topology: Topology) -> int:
    """Give pods to nodes that are made anyway, largest classes first; the work it took."""
    pending_classes = [
        pending_class
        for pending_class in waiting
        if pending_class.pod_keys and pending_class.pod_requirements is not None
    ]
    if not pending_classes or not sites:
        return 0
    there = [
        (cls, demand) for site in sites for (cls, _), (demand, _) in zip(site.pod_counts, site.placed_pods, strict=True)
    ]
    host_constraints = build_host_constraints(
        [*((pending_class.pod_class, _demand(pending_class)) for pending_class in pending_classes), *there], topology
    )
    place = len(pending_classes)
    for site in sites:
        household = HostState(host_constraints)
        for at, (_, count) in enumerate(site.pod_counts, place):
            household.add(at, count)
        place += len(site.pod_counts)
        _top_up(site, pending_classes, household, topology)
    return len(sites) * len(pending_classes)


def _top_up(site: OpenNode, pending_classes: Sequence[PendingClass], household: HostState, topology: Topology) -> None:
    market = site.weight_group.offering_index
    for j, pending_class in enumerate(pending_classes):
        free = [
            size - used for size, used in zip(market.pool_type_of[site.offering].free_capacity, site.usage, strict=True)
        ]
        most = min(
            (have // size for have, size in zip(free, pending_class.size, strict=True) if size),
            default=len(pending_class.pod_keys),
        )
        count = household.max_count(j, min(most, len(pending_class.pod_keys))) if most > 0 else 0
        if count > 0:
            state = _narrowed(site, pending_class, _demand(pending_class))
            if state is not None and _holds(site, pending_class, count, state):
                topology.record(site)
                site.add_pods(pending_class, _demand(pending_class), count, state)
                # A share's domains were counted when it got them.
                (topology.record_host if isinstance(pending_class, AssignedPods) else topology.record)(site)
                household.add(j, count)


def _narrowed(site: OpenNode, waiting: PendingClass, demand: PodRequirements) -> OfferingOptions | None:
    """What a node can still become with a class on it, as the same type under the same capacity type."""
    tier = site.weight_group
    fields = site.options.label_bits & tier.undetermined_labels.requirement_bits(demand.requirements)
    mask = (
        site.options.offerings
        & tier.compatible_offerings(demand)
        & tier.offerings_without_port_conflicts(waiting.pod_class.host_ports)
    )
    mask = tier.undetermined_labels.narrow(mask, fields) if fields != UNCONSTRAINED else mask
    return (
        OfferingOptions(mask, fields, site.options.topology_requirements)
        if mask & site.interchangeable_offerings()
        else None
    )


def _holds(site: OpenNode, waiting: PendingClass, count: int, state: OfferingOptions) -> bool:
    """Whether enough kinds of instances stay possible."""
    market = site.weight_group.offering_index
    if not market.min_values[site.template_index]:
        return True
    used = [one + count * size for one, size in zip(site.usage, waiting.size, strict=True)]
    return bool(market.keep_min_values(state.offerings & market.offerings_with_room(used)))


def _demand(waiting: PendingClass) -> PodRequirements:
    assert waiting.pod_requirements is not None
    return waiting.pod_requirements
