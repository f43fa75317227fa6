"""What a plan says of the cluster as a whole: NodePools without nodes, overlays that do nothing, unreadable objects."""

from collections.abc import Iterable, Iterator, Mapping

from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.offerings.overlays import OverlayStatus


def list_read_errors(snapshot: Snapshot) -> dict[str, str]:
    """Nodes (``nodes/name``) and NodeClaims (``nodeclaims/name``) that cannot be read, and why: they take no pods."""
    nodeclaims = {f"nodeclaims/{nodeclaim.name}": nodeclaim.read_error for nodeclaim in snapshot.nodeclaims}
    nodes = {f"nodes/{node.name}": node.read_error for node in snapshot.nodes}
    return {key: error for key, error in sorted((nodeclaims | nodes).items()) if error}


def write_notes(
    snapshot: Snapshot,
    nodepools_without_nodes: Mapping[str, str],
    overlay_statuses: Iterable[OverlayStatus],
    read_errors: Mapping[str, str],
) -> Iterator[str]:
    """``nodepools_without_nodes``: name → why; ``read_errors``: of nodes and NodeClaims."""
    yield from _of_nodepools(snapshot, nodepools_without_nodes)
    for nodeclass in sorted(snapshot.nodeclasses, key=lambda nodeclass: nodeclass.name):
        yield from (f"EC2NodeClass {nodeclass.name}: {problem}" for problem in nodeclass.problems)
    for status in overlay_statuses:
        if status.reason:
            yield f"NodeOverlay {status.name} is not applied ({status.reason}): {status.message}"
    kinds = {"nodes": "Node", "nodeclaims": "NodeClaim"}
    for key, error in read_errors.items():
        kind, _, name = key.partition("/")
        yield f"{kinds[kind]} {name} takes no pods, for it cannot be read: {error}"
    yield from sorted(_of_unreadable_objects(snapshot))


def _of_nodepools(snapshot: Snapshot, without_nodes: Mapping[str, str]) -> Iterator[str]:
    for pool in sorted(snapshot.nodepools, key=lambda nodepool: nodepool.name):
        yield from (f"NodePool {pool.name}: {problem}" for problem in pool.problems)
        if pool.name in without_nodes:
            nodes = "no nodes" if pool.replicas is None else "no nodes for pods"
            yield f"NodePool {pool.name} makes {nodes}: {without_nodes[pool.name]}"


def _of_unreadable_objects(snapshot: Snapshot) -> Iterator[str]:
    """Volumes are not among them: the pods that need a volume say that it cannot be read."""
    for budget in snapshot.pod_disruption_budgets:
        if budget.read_error:
            yield (
                f"PodDisruptionBudget {budget.metadata.key} cannot be read, so nothing in its namespace is evicted:"
                f" {budget.read_error}"
            )
    for daemonset in snapshot.daemonsets:
        if daemonset.template.read_error:
            yield (
                f"DaemonSet {daemonset.metadata.key} cannot be read, so nodes are sized without it:"
                f" {daemonset.template.read_error}"
            )
    for csi_node in snapshot.storage.csi_nodes:
        if csi_node.read_error:
            yield (
                f"CSINode {csi_node.metadata.name} cannot be read, so its volumes are not counted:"
                f" {csi_node.read_error}"
            )
