"""What kube-scheduler and a CSI provisioner do with the volumes of a pod, as far as nodes notice it."""

from collections.abc import Iterator

from spotwright.model import labels
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.volumes import NodeSelectorTerms, PersistentVolume, PersistentVolumeClaim, StorageClass
from spotwright.model.requirements import NodeSelectorRequirement, Operator
from spotwright.simulation.cluster import FakeCluster


class VolumeProvisioner:
    """Says where a pod's volumes can be, and makes one where the pod of a waiting claim was put."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def admits(self, node: Node, pod: Pod) -> bool:
        return all(_within(node, node_selector_terms) for node_selector_terms in self._homes(pod))

    def bind(self, node: Node, pod: Pod) -> None:
        """Claims that waited get a volume in the zone of the node that their pod was given."""
        for claim in self._claims(pod):
            if not claim.volume_name:
                name = f"pv-{claim.metadata.name}"
                zone = NodeSelectorRequirement(labels.ZONE, Operator.IN, (node.metadata.labels[labels.ZONE],))
                home = self._class_of(claim)
                driver = home.provisioner if home else ""
                self._cluster.put("persistentvolumes", PersistentVolume(ObjectMeta(name), ((zone,),), driver))
                self._cluster.update(
                    "persistentvolumeclaims", claim.metadata.key, volume_name=name, bind_completed=True, phase="Bound"
                )

    def _homes(self, pod: Pod) -> Iterator[NodeSelectorTerms]:
        volumes = {one.metadata.name: one for one in self._cluster.all("persistentvolumes")}
        for claim in self._claims(pod):
            home = self._class_of(claim)
            if claim.volume_name:
                yield volumes[claim.volume_name].node_affinity
            elif home is not None:
                yield home.allowed_topologies

    def _claims(self, pod: Pod) -> tuple[PersistentVolumeClaim, ...]:
        wanted = {f"{pod.metadata.namespace}/{name}" for name in pod.volume_claim_names}
        return tuple(one for one in self._cluster.all("persistentvolumeclaims") if one.metadata.key in wanted)

    def _class_of(self, claim: PersistentVolumeClaim) -> StorageClass | None:
        known = {one.metadata.name: one for one in self._cluster.all("storageclasses")}
        return known.get(claim.storage_class_name or "")


def _within(node: Node, alternatives: NodeSelectorTerms) -> bool:
    known = node.metadata.labels
    return not alternatives or any(
        all(known.get(expression.key) in expression.values for expression in term) for term in alternatives
    )


def unbound_claim(name: str, storage_class: str) -> PersistentVolumeClaim:
    """A claim in the namespace ``default`` that binds with its first pod."""
    return PersistentVolumeClaim(
        ObjectMeta(name, namespace="default"), storage_class_name=storage_class, phase="Pending"
    )
