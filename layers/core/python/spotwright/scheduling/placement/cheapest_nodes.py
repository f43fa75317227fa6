"""Whether it is proven that no cheaper nodes exist for the pods of a placement."""

from spotwright.scheduling.placement.placement import Placement
from spotwright.scheduling.placement.planning_context import PlanningContext


def are_cheapest(placement: Placement, context: PlanningContext) -> bool:
    """True when every way to share the pods among nodes was compared, and nothing else decided where they are.

    What else decides: rules between pods, preferences, volumes, nodes that exist, limits that bind, NodePools of
    several weights, the cap on the size of a node, and offerings that count dearer than they are. A node counts with
    what it costs besides its instance.
    """
    nodes = placement.planned_nodes
    return (
        bool(nodes)
        and all(node.is_of_cheapest for node in nodes)
        and len(placement.weight_groups) == 1
        and not placement.weight_groups[0].offering_index.penalized
        and context.settings.largest_node_share >= 100
        and not placement.uses_existing_nodes
        and not placement.has_topology_rules
        and not any(
            len(pending_class.pod_class.requirement_levels) > 1 or pending_class.pod_class.pod.volume_claim_names
            for pending_class in placement.pending
        )
    )
