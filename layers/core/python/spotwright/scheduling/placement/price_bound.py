"""What the pods of the planned nodes of one weight cost at least, whatever nodes they are given."""

from collections.abc import Sequence
from typing import Final

from spotwright.scheduling.capacity.planned_nodes import PlannedNode
from spotwright.scheduling.capacity.weight_groups import WeightGroup
from spotwright.scheduling.inputs.pod_classes import PodClass
from spotwright.scheduling.inputs.pod_requirements import PodRequirements
from spotwright.scheduling.offerings.pool_types import Vector
from spotwright.scheduling.packing.host_constraints import build_host_constraints, shared_host_caps
from spotwright.scheduling.packing.lower_bound import HOST_UNITS, PodGroup, compute_lower_bound
from spotwright.scheduling.topology.topology import Topology

# How many rules within one host the bound takes into account.
_MAX_HOST_RULES: Final = 4


def lower_bound_picousd_per_hour(group: WeightGroup, planned_nodes: Sequence[PlannedNode], topology: Topology) -> int:
    """No nodes of these NodePools hold the pods of the planned nodes, in their domains, for less."""
    classes: dict[tuple[int, int], tuple[PodClass, PodRequirements]] = {}
    counts: dict[tuple[int, int], int] = {}
    for planned_node in planned_nodes:
        for pods in planned_node.pod_counts:
            key = pods.pod_class.index, id(pods.pod_requirements)
            classes[key] = pods.pod_class, pods.pod_requirements
            counts[key] = counts.get(key, 0) + pods.count * len(planned_node.pods_by_node)
    host_shares = _host_shares(list(classes.values()), list(counts.values()), topology)
    pod_groups: dict[tuple[Vector, int, tuple[int, ...]], int] = {}
    for j, (key, (pod_class, pod_requirements)) in enumerate(classes.items()):
        size = tuple([pod_class.requests.get(name, 0) for name in group.offering_index.dimensions])
        shares = tuple([share.get(j, 0) for share in host_shares])
        pod_group = size, group.compatible_offerings(pod_requirements), shares
        pod_groups[pod_group] = pod_groups.get(pod_group, 0) + counts[key]
    return compute_lower_bound(
        group.offering_index, [PodGroup(count, *pod_group) for pod_group, count in sorted(pod_groups.items())]
    )


def _host_shares(
    classes: Sequence[tuple[PodClass, PodRequirements]], counts: Sequence[int], topology: Topology
) -> list[dict[int, int]]:
    """What part of a host one pod takes up, by the class's place, for each of the rules that need most hosts."""
    with_rules = [
        j
        for j, (pod_class, pod_requirements) in enumerate(classes)
        if pod_requirements.topology_spread_constraints or pod_requirements.pod_anti_affinity or pod_class.host_ports
    ]
    caps = shared_host_caps(build_host_constraints([classes[j] for j in with_rules], topology))
    hosts_needed = sorted(
        ((sum(counts[with_rules[k]] for k in together) / cap, cap, together) for cap, together in caps), reverse=True
    )
    return [{with_rules[k]: HOST_UNITS // cap for k in together} for _, cap, together in hosts_needed[:_MAX_HOST_RULES]]
