"""What kube-scheduler and a CSI provisioner do with the volumes of a pod."""

from collections.abc import Iterator

from spotwright.model import labels
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.volumes import NodeSelectorTerms, PersistentVolume, PersistentVolumeClaim, StorageClass
from spotwright.model.requirements import NodeSelectorRequirement, Operator
from spotwright.simulation.cluster import FakeCluster


class VolumeProvisioner:
    """Says where a pod's volumes can be attached, and provisions a volume for a claim that waits for its pod."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def admits(self, node: Node, pod: Pod) -> bool:
        return all(_is_within(node, node_selector_terms) for node_selector_terms in self._volume_topologies(pod))

    def bind(self, node: Node, pod: Pod) -> None:
        """Claims without a volume get one in the zone of the node."""
        for claim in self._claims(pod):
            if not claim.volume_name:
                name = f"pv-{claim.metadata.name}"
                zone = NodeSelectorRequirement(labels.ZONE, Operator.IN, (node.metadata.labels[labels.ZONE],))
                storage_class = self._class_of(claim)
                driver = storage_class.provisioner if storage_class else ""
                self._cluster.put("persistentvolumes", PersistentVolume(ObjectMeta(name), ((zone,),), driver))
                self._cluster.update(
                    "persistentvolumeclaims", claim.metadata.key, volume_name=name, bind_completed=True, phase="Bound"
                )

    def _volume_topologies(self, pod: Pod) -> Iterator[NodeSelectorTerms]:
        volumes = {volume.metadata.name: volume for volume in self._cluster.all("persistentvolumes")}
        for claim in self._claims(pod):
            storage_class = self._class_of(claim)
            if claim.volume_name:
                yield volumes[claim.volume_name].node_affinity
            elif storage_class is not None:
                yield storage_class.allowed_topologies

    def _claims(self, pod: Pod) -> tuple[PersistentVolumeClaim, ...]:
        keys = {f"{pod.metadata.namespace}/{name}" for name in pod.volume_claim_names}
        return tuple(claim for claim in self._cluster.all("persistentvolumeclaims") if claim.metadata.key in keys)

    def _class_of(self, claim: PersistentVolumeClaim) -> StorageClass | None:
        by_name = {storage_class.metadata.name: storage_class for storage_class in self._cluster.all("storageclasses")}
        return by_name.get(claim.storage_class_name or "")


def _is_within(node: Node, alternatives: NodeSelectorTerms) -> bool:
    node_labels = node.metadata.labels
    return not alternatives or any(
        all(node_labels.get(expression.key) in expression.values for expression in term) for term in alternatives
    )


def unbound_claim(name: str, storage_class: str) -> PersistentVolumeClaim:
    """A claim in the namespace ``default`` that binds with its first pod."""
    return PersistentVolumeClaim(
        ObjectMeta(name, namespace="default"), storage_class_name=storage_class, phase="Pending"
    )
