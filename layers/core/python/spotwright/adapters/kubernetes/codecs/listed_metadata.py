"""The metadata of objects of a list or a watch, from JSON into the model; equal labels and the like are one object."""

from collections.abc import Collection
from typing import Annotated, Final

import msgspec
from msgspec import Meta, Raw

from spotwright.adapters.kubernetes.codecs.objects import decode_time, select
from spotwright.adapters.kubernetes.codecs.pages import Memo
from spotwright.model.kubernetes.meta import ObjectMeta, OwnerReference

# The bytes of a field that is not there.
ABSENT: Final = Raw()


class Metadata(msgspec.Struct, frozen=True):
    """ObjectMeta in Kubernetes' form, without managedFields and what else is not used."""

    name: str | None = None
    namespace: str | None = None
    uid: str | None = None
    generation: Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)] | None = None
    resourceVersion: str | None = None
    creationTimestamp: str | None = None
    deletionTimestamp: str | None = None
    labels: Raw = ABSENT
    annotations: Raw = ABSENT
    finalizers: Raw = ABSENT
    ownerReferences: Raw = ABSENT


class _Owner(msgspec.Struct, frozen=True):
    kind: str = ""
    name: str = ""
    uid: str = ""
    apiVersion: str = ""


class MetadataDecoder:
    """Remembers labels, annotations, finalizers and owners that it has decoded."""

    def __init__(self, *, used_annotations: Collection[str] | None = None) -> None:
        """``used_annotations``: the keys that are kept, None = all."""
        texts = msgspec.json.Decoder(dict[str, str] | None)

        def decode_annotations(content: bytes) -> dict[str, str]:
            annotations = texts.decode(content) or {}
            return annotations if used_annotations is None else select(annotations, used_annotations)

        finalizers = msgspec.json.Decoder(tuple[str, ...] | None)
        self._texts = Memo[bytes, dict[str, str]](lambda content: texts.decode(content) or {})
        self._annotations = Memo(decode_annotations)
        self._finalizers = Memo[bytes, tuple[str, ...]](lambda content: finalizers.decode(content) or ())
        self._owners = Memo(_decode_owners)

    def decode(self, metadata: Metadata) -> ObjectMeta:
        """Raises one of DECODE_ERRORS."""
        labels, annotations, owners = metadata.labels, metadata.annotations, metadata.ownerReferences
        return ObjectMeta(
            metadata.name or "",
            metadata.namespace or "",
            metadata.uid or "",
            metadata.generation or 0,
            metadata.resourceVersion or "",
            decode_time(metadata.creationTimestamp),
            decode_time(metadata.deletionTimestamp),
            self._texts(bytes(labels)) if labels else {},
            self._annotations(bytes(annotations)) if annotations else {},
            self._finalizers(bytes(metadata.finalizers)) if metadata.finalizers else (),
            self._owners(bytes(owners)) if owners else (),
        )


_owners: Final = msgspec.json.Decoder(tuple[_Owner, ...] | None)


def _decode_owners(content: bytes) -> tuple[OwnerReference, ...]:
    return tuple(
        OwnerReference(owner.kind, owner.name, owner.uid, owner.apiVersion) for owner in _owners.decode(content) or ()
    )
