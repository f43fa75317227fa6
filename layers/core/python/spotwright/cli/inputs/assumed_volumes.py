"""Volumes of pods whose claims or StorageClasses are not among the manifests: they are assumed, which is said."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

import msgspec

from spotwright.model import labels
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.volumes import EBS_CSI_DRIVER, PersistentVolumeClaim, StorageClass
from spotwright.model.snapshot import Snapshot

# A StorageClass that no manifest can have: names have no spaces.
_ASSUMED: Final = StorageClass(ObjectMeta("an assumed class"), EBS_CSI_DRIVER, waits_for_first_consumer=True)
_MOST_NAMED: Final = 3


class _Assumed(NamedTuple):
    """A claim that can be planned, and why it had to be assumed; "" = it is as the manifests say."""

    claim: PersistentVolumeClaim
    why: str = ""


def assume_volumes(snapshot: Snapshot) -> tuple[Snapshot, tuple[str, ...]]:
    """The snapshot in which every claim of a pod can be planned, and sentences about what was assumed for it."""
    storage = snapshot.storage
    claims = {claim.metadata.key: claim for claim in storage.persistent_volume_claims}
    classes = {storage_class.metadata.name: storage_class for storage_class in storage.storage_classes}
    volumes = {volume.metadata.name for volume in storage.persistent_volumes}
    claims_by_reason: dict[str, list[str]] = {}
    for namespace, name in dict.fromkeys(_named_claims(snapshot.pods)):
        claim = claims.get(f"{namespace}/{name}")
        assumed = (
            _Assumed(_unbound(ObjectMeta(name, namespace)), "no such claim is in these files; assumed any zone")
            if claim is None
            else _assume(claim, classes, volumes)
        )
        claims[f"{namespace}/{name}"] = assumed.claim
        if assumed.why:
            claims_by_reason.setdefault(assumed.why, []).append(name)
    waiting = tuple(msgspec.structs.replace(of, waits_for_first_consumer=True) for of in classes.values())
    complete = msgspec.structs.replace(
        storage, persistent_volume_claims=tuple(claims.values()), storage_classes=(*waiting, _ASSUMED)
    )
    sentences = tuple(f"{_names(names)}: {why}" for why, names in claims_by_reason.items())
    return msgspec.structs.replace(snapshot, storage=complete), sentences


def _assume(claim: PersistentVolumeClaim, classes: dict[str, StorageClass], volumes: set[str]) -> _Assumed:
    name = claim.storage_class_name
    if claim.read_error:
        return _Assumed(claim)
    if claim.volume_name:
        if claim.volume_name in volumes:
            return _Assumed(msgspec.structs.replace(claim, bind_completed=True))
        why = f"PersistentVolume {claim.volume_name} is not in these files; assumed any zone"
        return _Assumed(_unbound(claim.metadata), why)
    if name is None:
        default = next((of for of in classes.values() if _is_default(of)), None)
        if default is not None:
            return _Assumed(msgspec.structs.replace(claim, storage_class_name=default.metadata.name))
        why = "no StorageClass is named and none in these files is the default; assumed any zone"
        return _Assumed(_unbound(claim.metadata), why)
    if not name:
        why = "only a PersistentVolume that is there already is taken; assumed any zone"
        return _Assumed(_unbound(claim.metadata), why)
    storage_class = classes.get(name)
    if storage_class is None:
        why = f"StorageClass {name} is not in these files; assumed any zone"
        return _Assumed(_unbound(claim.metadata), why)
    if storage_class.waits_for_first_consumer or storage_class.read_error:
        return _Assumed(claim)
    zones = "any zone that it allows" if storage_class.allowed_topologies else "any zone"
    return _Assumed(claim, f"StorageClass {name} makes its volume before the pod has a node; assumed {zones}")


def _is_default(storage_class: StorageClass) -> bool:
    return storage_class.metadata.annotations.get(labels.DEFAULT_STORAGE_CLASS) == "true"


def _unbound(metadata: ObjectMeta) -> PersistentVolumeClaim:
    return PersistentVolumeClaim(metadata, storage_class_name=_ASSUMED.metadata.name)


def _named_claims(pods: Iterable[Pod]) -> Iterator[tuple[str, str]]:
    """Namespace and name of each claim of the pods."""
    for pod in pods:
        for name in pod.volume_claim_names:
            yield pod.metadata.namespace, name


def _names(names: list[str]) -> str:
    if len(names) == 1:
        return f"PVC {names[0]}"
    shown = ", ".join(names[:_MOST_NAMED])
    return f"PVCs {shown} and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else f"PVCs {shown}"
