"""Whether it is proven that no cheaper nodes exist for the pods of a placement."""

from spotwright.model import labels
from spotwright.model.requirements import Requirements
from spotwright.scheduling.offerings.offering_index import OfferingIndex
from spotwright.scheduling.offerings.undetermined_labels import UndeterminedLabels
from spotwright.scheduling.placement.placement import Placement
from spotwright.scheduling.placement.planning_context import PlanningContext


def are_cheapest(placement: Placement, context: PlanningContext) -> bool:
    """True when every way to share the pods among nodes was compared, and nothing else decided where they are.

    What else decides: rules between pods, preferences, volumes, nodes that exist, limits that bind, NodePools of
    several weights, the cap on the size of a node, offerings that count dearer than they are, and DaemonSets that are
    counted on nodes on which they may not run. A node counts with what it costs besides its instance.
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
        and not _is_overcounted(
            [term for daemonset_pod in context.daemonset_pods for term in daemonset_pod.node_terms],
            placement.weight_groups[0].offering_index,
        )
    )


def _is_overcounted(node_terms: list[Requirements], offering_index: OfferingIndex) -> bool:
    """Whether a DaemonSet with these terms may count on a node on which it does not run.

    It counts on every node of a type and a NodePool, whichever zone, capacity type or other label the node gets.
    """
    keys = {requirement.key for term in node_terms for requirement in term}
    of_offerings = {labels.ZONE, labels.CAPACITY_TYPE}.union(
        key for offering in offering_index.offerings for key in offering.requirements.by_key
    )
    return not keys.isdisjoint(of_offerings) or bool(UndeterminedLabels(offering_index, node_terms))
