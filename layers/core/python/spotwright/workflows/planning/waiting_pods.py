"""Whether the pods that wait for nodes are alike, so that any node may take any of them."""

from spotwright.model.kubernetes.eviction import is_reschedulable
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.inputs.pod_classes import are_equal, selected_label_keys


def are_waiting_pods_alike(snapshot: Snapshot) -> bool:
    """Whether all pods without a node are equal for scheduling, and those whose nodes are on their way.

    ``snapshot``: with nominated pods on the nodes that they were planned for. Then nothing is lost where kube-scheduler
    binds them to these in another order. Pods of DaemonSets take no room but what nodes keep for them.
    """
    coming = {node.nodeclaim.name for node in snapshot.in_flight}
    coming |= {claim.name for claim in snapshot.nodeclaims if not claim.is_condition_true("Initialized")}
    provider_ids = {claim.provider_id for claim in snapshot.nodeclaims if claim.name in coming} - {""}
    coming |= {node.name for node in snapshot.nodes if node.provider_id in provider_ids}
    waiting = (pod for pod in snapshot.pods if is_reschedulable(pod) and (not pod.node_name or pod.node_name in coming))
    return are_equal(waiting, selected_label_keys(snapshot.pods))
