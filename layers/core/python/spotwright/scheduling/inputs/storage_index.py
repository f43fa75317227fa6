"""The storage of a snapshot, by name."""

from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.volumes import (
    NodeSelectorTerms,
    PersistentVolume,
    PersistentVolumeClaim,
    Storage,
    StorageClass,
)
from spotwright.model.requirements import RequirementError, Requirements, conjunction


class StorageIndex:
    """``claims``: by namespace and name, ``namespace/name``."""

    def __init__(self, storage: Storage) -> None:
        self.claims = {claim.metadata.key: claim for claim in storage.persistent_volume_claims}
        self._volumes = {volume.metadata.name: volume for volume in storage.persistent_volumes}
        self._storage_classes = {
            storage_class.metadata.name: storage_class for storage_class in storage.storage_classes
        }

    def claim(self, pod: Pod, name: str) -> PersistentVolumeClaim | None:
        return self.claims.get(f"{pod.metadata.namespace}/{name}")

    def volume(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        """The volume that a bound claim names."""
        return self._volumes.get(claim.volume_name)

    def storage_class(self, claim: PersistentVolumeClaim) -> StorageClass | None:
        return self._storage_classes.get(claim.storage_class_name or "")


def readable_terms(terms: NodeSelectorTerms) -> list[Requirements]:
    """The terms that can be read and do not contradict themselves."""
    readable = []
    for term in terms:
        try:
            requirements = conjunction(expression.requirement() for expression in term)
        except RequirementError:
            continue
        if requirements is not None:
            readable.append(requirements)
    return readable
