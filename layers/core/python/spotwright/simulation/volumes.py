"""What kube-scheduler and a CSI provisioner do with the volumes of a pod, as far as nodes notice it."""

from collections.abc import Iterator

from spotwright.model import labels
from spotwright.model.node import Node
from spotwright.model.objects import Metadata
from spotwright.model.pod import Pod
from spotwright.model.requirements import Operator, Selector
from spotwright.model.volumes import Alternatives, StorageClass, Volume, VolumeClaim
from spotwright.simulation.cluster import FakeCluster


class Provisioner:
    """Says where a pod's volumes can be, and makes one where the pod of a waiting claim was put."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def admits(self, node: Node, pod: Pod) -> bool:
        return all(_within(node, one) for one in self._homes(pod))

    def bind(self, node: Node, pod: Pod) -> None:
        """Claims that waited get a volume in the zone of the node that their pod was given."""
        for claim in self._claims(pod):
            if not claim.volume:
                name = f"pv-{claim.metadata.name}"
                zone = Selector(labels.ZONE, Operator.IN, (node.metadata.labels[labels.ZONE],))
                home = self._class_of(claim)
                driver = home.provisioner if home else ""
                self._cluster.put("persistentvolumes", Volume(Metadata(name), ((zone,),), driver))
                self._cluster.change(
                    "persistentvolumeclaims", claim.metadata.key, volume=name, bound=True, phase="Bound"
                )

    def _homes(self, pod: Pod) -> Iterator[Alternatives]:
        volumes = {one.metadata.name: one for one in self._cluster.all("persistentvolumes")}
        for claim in self._claims(pod):
            home = self._class_of(claim)
            if claim.volume:
                yield volumes[claim.volume].reachable
            elif home is not None:
                yield home.topologies

    def _claims(self, pod: Pod) -> tuple[VolumeClaim, ...]:
        wanted = {f"{pod.metadata.namespace}/{name}" for name in pod.volume_claims}
        return tuple(one for one in self._cluster.all("persistentvolumeclaims") if one.metadata.key in wanted)

    def _class_of(self, claim: VolumeClaim) -> StorageClass | None:
        known = {one.metadata.name: one for one in self._cluster.all("storageclasses")}
        return known.get(claim.storage_class or "")


def _within(node: Node, alternatives: Alternatives) -> bool:
    known = node.metadata.labels
    return not alternatives or any(all(known.get(one.key) in one.values for one in term) for term in alternatives)


def waiting_claim(name: str, storage_class: str) -> VolumeClaim:
    """A claim in the namespace ``default`` that binds with its first pod."""
    return VolumeClaim(Metadata(name, namespace="default"), storage_class=storage_class, phase="Pending")
