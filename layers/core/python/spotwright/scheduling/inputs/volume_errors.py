"""Why no node could give a pod its volumes."""

from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.volumes import PersistentVolumeClaim
from spotwright.scheduling.inputs.storage_index import StorageIndex, readable_terms


def volume_error(pod: Pod, storage: StorageIndex) -> str:
    """What is wrong with the first faulty claim of a pod; "" if nothing is."""
    return next(filter(None, (_claim_error(pod, name, storage) for name in pod.volume_claim_names)), "")


def _claim_error(pod: Pod, name: str, storage: StorageIndex) -> str:
    claim = storage.claim(pod, name)
    if claim is None:
        not_read = "" if storage.claims else ", or claims were not read"
        return f"PersistentVolumeClaim {name} does not exist{not_read}"
    if claim.read_error:
        return f"PersistentVolumeClaim {name} cannot be read: {claim.read_error}"
    if claim.metadata.deletion_timestamp is not None:
        return f"PersistentVolumeClaim {name} is being deleted"
    if claim.phase == "Lost":
        return f"PersistentVolumeClaim {name} is Lost"
    return _bound_claim_error(claim, storage) if claim.volume_name else _unbound_claim_error(claim, storage)


def _bound_claim_error(claim: PersistentVolumeClaim, storage: StorageIndex) -> str:
    name, volume = claim.volume_name, storage.volume(claim)
    if volume is None or volume.metadata.deletion_timestamp is not None:
        return f"PersistentVolume {name} is missing or being deleted"
    if volume.read_error:
        return f"PersistentVolume {name} cannot be read: {volume.read_error}"
    if volume.node_affinity and not readable_terms(volume.node_affinity):
        return f"PersistentVolume {name} can be reached from no node: its node affinity contradicts itself"
    if not claim.bind_completed:
        return f"PersistentVolumeClaim {claim.metadata.name} is not bound to its volume yet"
    return ""


def _unbound_claim_error(claim: PersistentVolumeClaim, storage: StorageIndex) -> str:
    name, class_name, storage_class = claim.metadata.name, claim.storage_class_name, storage.storage_class(claim)
    if storage_class is None:
        has = f"StorageClass {class_name} does not exist" if class_name else "no StorageClass"
        return f"PersistentVolumeClaim {name} is not bound and has {has}"
    if storage_class.read_error:
        return f"StorageClass {class_name} cannot be read: {storage_class.read_error}"
    if storage_class.allowed_topologies and not readable_terms(storage_class.allowed_topologies):
        return f"StorageClass {class_name} allows no node: its allowedTopologies contradict themselves"
    if not storage_class.waits_for_first_consumer:
        return f"PersistentVolumeClaim {name} waits for StorageClass {class_name}"
    return ""
