"""CapacityBuffers with the pod template and the replicas that they refer to, kept up to date as either changes."""

from typing import Any, Final

import msgspec

from forwarder.kinds import SCALABLE_KINDS, Manifest, scalable_name
from spotwright.adapters.kubernetes.codecs.capacity_buffer import decode_capacity_buffer
from spotwright.model.karpenter.capacity_buffer import CapacityBuffer, CapacityBufferStatus
from spotwright.model.kubernetes.meta import ObjectMeta

CAPACITY_BUFFER: Final = "CapacityBuffer"


class CapacityBuffers:
    """Buffers by uid, and what they may refer to by kind and name. ``scalable``: a kind of one namespace."""

    def __init__(self) -> None:
        self._manifests: dict[str, Manifest] = {}
        self._resolved: dict[str, CapacityBuffer] = {}
        self._scalables: dict[tuple[str, str], Manifest] = {}
        self._references: dict[str, tuple[str, str]] = {}

    def get(self, uid: str) -> CapacityBuffer | None:
        return self._resolved.get(uid)

    def uids(self) -> frozenset[str]:
        return frozenset(self._resolved)

    def scalable_kinds(self) -> frozenset[tuple[str, str]]:
        """Kind and namespace of what the buffers refer to."""
        return frozenset(
            (kind.partition(" ")[0], self._manifests[uid].metadata.namespace)
            for uid, (kind, _) in self._references.items()
        )

    def set_buffer(self, uid: str, manifest: Manifest | None) -> frozenset[str]:
        """A buffer as it is now; returns the uids of buffers that ask for something else than before."""
        if manifest is None:
            self._references.pop(uid, None)
            self._manifests.pop(uid, None)
            return frozenset({uid} if self._resolved.pop(uid, None) else ())
        self._manifests[uid] = manifest
        reference = _reference(manifest)
        if reference is None:
            self._references.pop(uid, None)
        else:
            self._references[uid] = reference
        return self._resolve(frozenset({uid}))

    def set_scalable(self, kind: str, metadata: ObjectMeta, manifest: Manifest | None) -> frozenset[str]:
        """An object as it is now that buffers may refer to; returns as ``set_buffer``."""
        key = (kind, metadata.name)
        if manifest is None:
            self._scalables.pop(key, None)
        else:
            self._scalables[key] = manifest
        return self._resolve(frozenset(uid for uid, reference in self._references.items() if reference == key))

    def forget_scalables(self, kind: str) -> None:
        """No buffer refers to the kind any more."""
        self._scalables = {key: manifest for key, manifest in self._scalables.items() if key[0] != kind}

    def _resolve(self, uids: frozenset[str]) -> frozenset[str]:
        changed = set()
        for uid in uids:
            before = self._resolved.get(uid)
            after = decode_capacity_buffer(_fields(self._manifests[uid]), self._look_up)
            self._resolved[uid] = after
            if before is None or _request(before) != _request(after):
                changed.add(uid)
        return frozenset(changed)

    def _look_up(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
        found = self._scalables.get((scalable_name(kind, namespace), name))
        return _fields(found) if found else None


def _request(buffer: CapacityBuffer) -> CapacityBuffer:
    """The buffer without what the functions write to it."""
    metadata = msgspec.structs.replace(buffer.metadata, resource_version="")
    return msgspec.structs.replace(buffer, metadata=metadata, status=CapacityBufferStatus(), conditions=())


def _reference(manifest: Manifest) -> tuple[str, str] | None:
    """The kind, of the buffer's namespace, and the name of what a buffer refers to; None = nothing that is watched."""
    spec = _fields(manifest).get("spec")
    if not isinstance(spec, dict):
        return None
    template, scalable = spec.get("podTemplateRef"), spec.get("scalableRef")
    reference = template or scalable
    if not isinstance(reference, dict):
        return None
    kind, name = "PodTemplate" if template else reference.get("kind"), reference.get("name")
    if kind not in SCALABLE_KINDS or not isinstance(name, str):
        return None
    return scalable_name(str(kind), manifest.metadata.namespace), name


def _fields(manifest: Manifest) -> dict[str, Any]:
    return msgspec.json.decode(manifest.content, type=dict[str, Any])
