"""Planned nodes as a plan states them."""

from collections.abc import Iterator, Sequence

import msgspec

from spotwright.model import labels
from spotwright.scheduling.capacity.limit_shares import share_limits
from spotwright.scheduling.capacity.planned_nodes import PlannedNode
from spotwright.scheduling.capacity.weight_groups import WeightGroup
from spotwright.scheduling.explain.node_choice import (
    alternatives,
    explain_choice,
    relaxed_preferences,
    usage,
)
from spotwright.scheduling.nodeclaims.launchable import (
    cheapest_types,
    without_unintended_offerings,
)
from spotwright.scheduling.nodeclaims.requirements import (
    label_values,
    lower_min_values,
    nodeclaim_requests,
    nodeclaim_requirements,
    user_labels,
)
from spotwright.scheduling.plan import NewNode


def build_new_nodes(group: WeightGroup, planned_nodes: Sequence[PlannedNode]) -> Iterator[NewNode]:
    """The nodes of the NodePools of one weight, with their limits kept whatever is launched."""
    shares = share_limits(group, planned_nodes) or {}
    for planned_node in planned_nodes:
        yield from _equal_nodes(planned_node, shares[id(planned_node)])


def _equal_nodes(planned_node: PlannedNode, offerings: int) -> Iterator[NewNode]:
    index = planned_node.weight_group.offering_index
    template = index.templates[planned_node.template_index]
    intended = without_unintended_offerings(planned_node, offerings)
    pool_types, kept = cheapest_types(planned_node, intended)
    names = tuple(dict.fromkeys(pool_type.instance_type.name for pool_type in pool_types))
    requirements = lower_min_values(index, kept, nodeclaim_requirements(planned_node, pool_types, kept))
    cheapest = (kept & -kept).bit_length() - 1
    next_best, used = alternatives(index, kept, cheapest), usage(planned_node, cheapest)
    node = NewNode(
        nodepool=template.nodepool.name,
        nodeclass=template.nodepool.node_class_ref.name,
        pods=(),
        instance_types=names,
        requirements=requirements.node_selector_requirements(),
        labels=template.labels | user_labels(planned_node, requirements),
        taints=template.nodepool.taints,
        startup_taints=template.nodepool.startup_taints,
        requests=nodeclaim_requests(planned_node, pool_types),
        price_picousd_per_hour=index.offerings[cheapest].price_picousd_per_hour,
        capacity_type=index.offerings[cheapest].capacity_type,
        zones=label_values(index, labels.ZONE, kept),
        reason=explain_choice(planned_node, kept, len(names), next_best),
        binding_resource=used[0].resource if used else "",
        alternatives=next_best,
        relaxed_preferences=relaxed_preferences(planned_node.pod_counts),
        price_overlay_applied=any(pool_type.instance_type.price_overlay_applied for pool_type in pool_types),
        capacity_overlay_applied=any(pool_type.instance_type.capacity_overlay_applied for pool_type in pool_types),
        usage=used,
    )
    for keys in planned_node.pods_by_node:
        yield msgspec.structs.replace(node, pods=tuple(sorted(keys)))
