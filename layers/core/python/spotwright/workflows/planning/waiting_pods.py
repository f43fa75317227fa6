"""Whether the pods that wait for nodes are alike, so that any node may take any of them."""

from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.eviction import is_reschedulable
from spotwright.model.kubernetes.node import Node
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.inputs.pod_classes import are_equal, selected_label_keys


def are_waiting_pods_alike(snapshot: Snapshot) -> bool:
    """Whether all pods without a node are equal for scheduling, and those whose nodes are on their way, in or out.

    ``snapshot``: with nominated pods on the nodes that they were planned for. Then nothing is lost where kube-scheduler
    binds them to these in another order. Pods of DaemonSets take no room but what nodes keep for them.
    """
    claims = [
        claim for claim in snapshot.nodeclaims if _is_leaving(claim) or not claim.is_condition_true("Initialized")
    ]
    provider_ids = {claim.provider_id for claim in claims} - {""}
    unsettled = {claim.name for claim in claims} | {node.nodeclaim.name for node in snapshot.in_flight}
    unsettled |= {node.name for node in snapshot.nodes if node.provider_id in provider_ids or _is_leaving(node)}
    waiting = (
        pod for pod in snapshot.pods if is_reschedulable(pod) and (not pod.node_name or pod.node_name in unsettled)
    )
    return are_equal(waiting, selected_label_keys(snapshot.pods))


def _is_leaving(found: NodeClaim | Node) -> bool:
    return found.metadata.deletion_timestamp is not None
