"""Why a pod has no place, with a sentence per NodePool."""

from collections.abc import Mapping

from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.capacity.pending_pods import PendingClass
from spotwright.scheduling.explain.nodepool_reasons import PoolOfGroup, explain_nodepool
from spotwright.scheduling.inputs.volume_topology import VolumeTopology
from spotwright.scheduling.placement.node_options import PodNeeds
from spotwright.scheduling.placement.placement import Placement
from spotwright.scheduling.plan import UnplacedPod
from spotwright.scheduling.topology.domain_rules import KnownDomainRule


def explain_unsupported(pod: Pod, snapshot: Snapshot) -> UnplacedPod | None:
    """A pod that cannot be read, or uses what the planner does not handle: it is never placed wrongly."""
    if pod.read_error:
        return UnplacedPod(pod.key, (f"it cannot be read: {pod.read_error}",))
    if pod.unsupported_fields:
        return UnplacedPod(pod.key, tuple(f"{field} is not handled yet" for field in pod.unsupported_fields))
    if not snapshot.namespaces and any(term.namespace_selector for term in (*pod.pod_affinity, *pod.pod_anti_affinity)):
        return UnplacedPod(pod.key, ("its namespaceSelector needs the labels of namespaces, which were not read",))
    return None


def explain_follower(pod: Pod) -> UnplacedPod:
    """A follower in a cluster that has no other work."""
    return UnplacedPod(
        pod.key, ("it follows: it never causes the first node, and takes a place on any node made for other pods",)
    )


def explain_unplaced(
    placement: Placement, volume_topology: VolumeTopology, closed_nodepools: Mapping[str, str]
) -> list[UnplacedPod]:
    """The pods without a place, with a sentence per NodePool. ``closed_nodepools``: name → why it makes no node."""
    unplaced = []
    for pending_class in placement.pending:
        if pending_class.pod_keys:
            reasons = _explain_class(pending_class, placement, volume_topology, closed_nodepools)
            unplaced += [UnplacedPod(key, reasons) for key in pending_class.pod_keys]
    return unplaced


def _explain_class(
    pending_class: PendingClass,
    placement: Placement,
    volume_topology: VolumeTopology,
    closed_nodepools: Mapping[str, str],
) -> tuple[str, ...]:
    pod_class = pending_class.pod_class
    if not pod_class.requirement_levels:
        if pod_class.pod.node_affinity and not any(pod_class.pod.node_affinity):
            return ("its node affinity matches no node: a term without matchExpressions matches nothing",)
        return ("its nodeSelector and node affinity contradict each other: no node could meet them",)
    least = pod_class.requirement_levels[-1]
    rules = placement.topology.domain_rules(pod_class, least)
    rules = [rule for rule in rules if not isinstance(rule, KnownDomainRule)]
    needs = PodNeeds(pending_class, least, rules, volume_topology.node_requirements(pod_class.pod))
    reasons = [
        f"NodePool {template.nodepool.name}: {explain_nodepool(needs, PoolOfGroup(group, number))}"
        for group in placement.weight_groups
        for number, template in enumerate(group.offering_index.templates)
    ]
    reasons += [f"NodePool {name}: {why}" for name, why in sorted(closed_nodepools.items())]
    if not reasons:
        reasons = ["there is no NodePool"]
    if nodes := len(placement.existing_nodes):
        reasons.append(f"none of the {nodes} nodes that exist or are in flight has room, labels and taints for it")
    return tuple(reasons)
