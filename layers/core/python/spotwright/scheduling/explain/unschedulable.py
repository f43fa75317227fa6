"""Why a pod has no place: a sentence for the NodePool that comes closest, the others summed up."""

from collections.abc import Mapping

from spotwright.model import labels
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import Settings, Snapshot
from spotwright.scheduling.capacity.pending_pods import PendingClass
from spotwright.scheduling.explain.nodepool_reasons import explain_nodepool
from spotwright.scheduling.explain.reasons import Nearness, PoolOfGroup, PoolReason, summarize_reasons
from spotwright.scheduling.inputs.provisionable import matching_follower_selector
from spotwright.scheduling.inputs.volume_topology import VolumeTopology
from spotwright.scheduling.placement.node_options import PodNeeds
from spotwright.scheduling.placement.placement import Placement
from spotwright.scheduling.plan import Cause, UnplacedPod
from spotwright.scheduling.topology.domain_rules import KnownDomainRule


def explain_unsupported(pod: Pod, snapshot: Snapshot) -> UnplacedPod | None:
    """A pod that cannot be read, or uses what the planner does not handle: it is never placed wrongly."""
    if pod.read_error:
        return UnplacedPod(pod.key, (f"it cannot be read: {pod.read_error}",), (Cause("Unreadable"),))
    if pod.unsupported_fields:
        return UnplacedPod(
            pod.key,
            tuple(f"{field} is not handled yet" for field in pod.unsupported_fields),
            tuple(Cause("FieldNotHandled", details={"field": field}) for field in pod.unsupported_fields),
        )
    if not snapshot.namespaces and any(term.namespace_selector for term in (*pod.pod_affinity, *pod.pod_anti_affinity)):
        reason = "its namespaceSelector needs the labels of namespaces, which were not read"
        return UnplacedPod(pod.key, (reason,), (Cause("NamespacesNotRead"),))
    return None


def explain_follower(pod: Pod, settings: Settings) -> UnplacedPod:
    """A follower in a cluster that has no other work."""
    selector = matching_follower_selector(pod, settings)
    why = f"it matches FOLLOWER_SELECTORS ({selector})" if selector else f"it has the annotation {labels.FOLLOW}=true"
    reason = f"{why}: no node is bought for it alone; it takes a place on any node made for other pods"
    return UnplacedPod(pod.key, (reason,), (Cause("Follower", details={"selector": selector}),))


def explain_unplaced(
    placement: Placement, volume_topology: VolumeTopology, closed_nodepools: Mapping[str, str]
) -> list[UnplacedPod]:
    """The pods without a place, with their reasons. ``closed_nodepools``: name → why it makes no node."""
    unplaced = []
    for pending_class in placement.pending:
        if pending_class.pod_keys:
            reasons = _explain_class(pending_class, placement, volume_topology, closed_nodepools)
            sentences, causes = tuple(text for text, _ in reasons), tuple(cause for _, cause in reasons)
            unplaced += [UnplacedPod(key, sentences, causes) for key in pending_class.pod_keys]
    return unplaced


def _explain_class(
    pending_class: PendingClass,
    placement: Placement,
    volume_topology: VolumeTopology,
    closed_nodepools: Mapping[str, str],
) -> list[tuple[str, Cause]]:
    pod_class = pending_class.pod_class
    if not pod_class.requirement_levels:
        if pod_class.pod.node_affinity and not any(pod_class.pod.node_affinity):
            reason = "its node affinity matches no node: a term without matchExpressions matches nothing"
        else:
            reason = "its nodeSelector and node affinity contradict each other: no node could meet them"
        return [(reason, Cause("PodContradictsItself"))]
    least = pod_class.requirement_levels[-1]
    rules = placement.topology.domain_rules(pod_class, least)
    rules = [rule for rule in rules if not isinstance(rule, KnownDomainRule)]
    needs = PodNeeds(pending_class, least, rules, volume_topology.node_requirements(pod_class.pod))
    by_nodepool = [
        (
            template.nodepool.name,
            explain_nodepool(needs, PoolOfGroup(group, number, placement.count_new_nodes(group, number))),
        )
        for group in placement.weight_groups
        for number, template in enumerate(group.offering_index.templates)
    ]
    by_nodepool += [
        (name, PoolReason("NodePoolClosed", why, Nearness.CLOSED)) for name, why in sorted(closed_nodepools.items())
    ]
    reasons = summarize_reasons(by_nodepool) or [("there is no NodePool", Cause("NoNodePool"))]
    if nodes := len(placement.existing_nodes):
        reason = f"none of the {nodes} nodes that exist or are in flight has room, labels and taints for it"
        reasons.append((reason, Cause("NoRoomOnExistingNodes")))
    return reasons
