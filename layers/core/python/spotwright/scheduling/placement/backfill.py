"""Pods on what is left of planned nodes. None of these nodes gets larger by it."""

from collections.abc import Sequence

from spotwright.scheduling.capacity.pending_pods import AssignedPods, PendingClass
from spotwright.scheduling.capacity.planned_nodes import OfferingOptions, PlannedNode
from spotwright.scheduling.offerings.undetermined_labels import UNCONSTRAINED
from spotwright.scheduling.packing.host_constraints import HostState, build_host_constraints
from spotwright.scheduling.topology.topology import Topology


def backfill(planned_nodes: Sequence[PlannedNode], pending_classes: Sequence[PendingClass], topology: Topology) -> int:
    """Put pods on single planned nodes, largest classes first; the units of work it took."""
    placeable = [pending_class for pending_class in pending_classes if pending_class.can_be_placed]
    if not placeable or not planned_nodes:
        return 0
    classes = [(pending_class.pod_class, pending_class.pod_requirements) for pending_class in placeable]
    classes += [
        (pods.pod_class, pods.pod_requirements) for planned_node in planned_nodes for pods in planned_node.pod_counts
    ]
    host_constraints, place = build_host_constraints(classes, topology), len(placeable)
    for planned_node in planned_nodes:
        host_state = HostState(host_constraints)
        for j, pods in enumerate(planned_node.pod_counts, place):
            host_state.add(j, pods.count)
        place += len(planned_node.pod_counts)
        for j, pending_class in enumerate(placeable):
            count = host_state.max_count(j, _count_that_fits(planned_node, pending_class))
            if count > 0 and _add_pods(planned_node, pending_class, count, topology):
                host_state.add(j, count)
    return len(planned_nodes) * len(placeable)


def _count_that_fits(planned_node: PlannedNode, pending_class: PendingClass) -> int:
    """How many pods of a class the type of a node still has room for."""
    capacity = planned_node.weight_group.offering_index.pool_type_of[planned_node.offering].free_capacity
    amounts = zip(capacity, planned_node.usage, pending_class.size, strict=True)
    return min([len(pending_class.pod_keys), *((most - used) // size for most, used, size in amounts if size)])


def _add_pods(planned_node: PlannedNode, pending_class: PendingClass, count: int, topology: Topology) -> bool:
    """Put pods on a node if it can still become something with them."""
    options = _narrowed_options(planned_node, pending_class)
    if not options.offerings & planned_node.interchangeable_offerings():
        return False
    if not _keeps_min_values(planned_node, pending_class, count, options.offerings):
        return False
    topology.record(planned_node)
    planned_node.add_pods(pending_class, pending_class.pod_requirements, count, options)
    # The domains of assigned pods were counted when the pods got them.
    (topology.record_host if isinstance(pending_class, AssignedPods) else topology.record)(planned_node)
    return True


def _narrowed_options(planned_node: PlannedNode, pending_class: PendingClass) -> OfferingOptions:
    """What a node can still become with pods of a class on it."""
    group, options, pod_requirements = planned_node.weight_group, planned_node.options, pending_class.pod_requirements
    label_bits = options.label_bits & group.undetermined_labels.requirement_bits(pod_requirements.requirements)
    offerings = options.offerings & group.compatible_offerings(pod_requirements)
    offerings &= group.offerings_without_port_conflicts(pending_class.pod_class.host_ports)
    if label_bits != UNCONSTRAINED:
        offerings = group.undetermined_labels.narrow(offerings, label_bits)
    return OfferingOptions(offerings, label_bits, options.topology_requirements)


def _keeps_min_values(planned_node: PlannedNode, pending_class: PendingClass, count: int, offerings: int) -> bool:
    """Whether enough kinds of instances stay possible."""
    index = planned_node.weight_group.offering_index
    if not index.min_values[planned_node.template_index]:
        return True
    usage = [used + count * size for used, size in zip(planned_node.usage, pending_class.size, strict=True)]
    return bool(index.keep_min_values(offerings & index.by_capacity.with_room(usage)))
