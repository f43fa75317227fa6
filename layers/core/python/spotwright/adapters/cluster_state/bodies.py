"""The bodies of a cluster state: all objects, or what differs from a body with all objects.

A body is a line with its schema, then msgpack, compressed. It is stored under the sha256 of its bytes.
"""

import hashlib
import zlib
from typing import Final

import msgspec

from spotwright.adapters.cluster_state.memory_bound import bounded_memory
from spotwright.adapters.cluster_state.object_checks import check_resource_versions, check_times
from spotwright.adapters.cluster_state.pod_columns import PodColumns, from_columns, to_columns
from spotwright.adapters.kubernetes.codecs.decode_errors import DECODE_ERRORS, describe_error
from spotwright.model.cluster_state import (
    SCHEMA,
    ClusterObjects,
    ClusterState,
    ClusterStateChanges,
    ClusterStateError,
    ClusterStateHead,
    apply_changes,
    in_order,
)

# What a body may unpack to, twice the largest cluster: a body that lies must not fill the memory.
MAXIMUM_BYTES: Final = 64 * 1024 * 1024
# What its objects may take, three times the largest cluster: an empty object is a byte of a body, and 64 of memory.
MAXIMUM_MEMORY: Final = 256 * 1024 * 1024

_MAGIC: Final = b"cluster-state "
_COMPRESSION_LEVEL: Final = 1


class _Body(msgspec.Struct, frozen=True, kw_only=True):
    """``objects``: all but the pods. ``full`` and ``gone``: as in ClusterStateChanges; empty where all objects are."""

    cluster: str
    pods: PodColumns
    objects: ClusterObjects
    full: str = ""
    gone: dict[str, tuple[str, ...]] = {}


_encoder: Final = msgspec.msgpack.Encoder(order="deterministic")
_decoder: Final = msgspec.msgpack.Decoder(_Body)


def state_key(cluster: str, body: bytes) -> str:
    """Where a body is stored."""
    return f"clusters/{cluster}/state/{hashlib.sha256(body).hexdigest()}"


def key_digest(key: str) -> str:
    """The sha256 of the body that is stored under a key."""
    return key.rpartition("/")[2]


def encode_full(state: ClusterState) -> bytes:
    """A body with all objects; equal states give equal bytes, whatever the order of their objects."""
    return _pack(_body(state.cluster, in_order(state.objects)))


def encode_changes(changes: ClusterStateChanges) -> bytes:
    """A body with what differs from the body whose sha256 is ``changes.full``."""
    body = _body(changes.cluster, in_order(changes.changed))
    return _pack(msgspec.structs.replace(body, full=changes.full, gone=dict(sorted(changes.gone.items()))))


def decode(head: ClusterStateHead, full: bytes, changes: bytes = b"") -> ClusterState:
    """The state that a head describes, of the bodies that it names; ``changes``: b"" where it names none.

    Raises ClusterStateError.
    """
    try:
        with bounded_memory(MAXIMUM_MEMORY):
            return _decode(head, full, changes)
    except MemoryError:
        raise ClusterStateError(
            f"{head.full} needs more than {MAXIMUM_MEMORY} bytes of memory", code="TooLarge"
        ) from None


def _decode(head: ClusterStateHead, full: bytes, changes: bytes) -> ClusterState:
    body = _read(head.cluster, head.full, full)
    if body.full:
        raise ClusterStateError(f"{head.full} has changes of the body {body.full}, not all objects", code="OtherBody")
    objects = _objects(head.full, body)
    if head.changes:
        objects = apply_changes(objects, _changes(head, changes))
    check_resource_versions(head, objects)
    check_times(head, objects)
    return ClusterState(
        cluster=head.cluster,
        epoch=head.epoch,
        sequence=head.sequence,
        taken=head.taken,
        kinds=head.kinds,
        objects=objects,
    )


def _body(cluster: str, objects: ClusterObjects) -> _Body:
    return _Body(cluster=cluster, pods=to_columns(objects.pods), objects=msgspec.structs.replace(objects, pods=()))


def _pack(body: _Body) -> bytes:
    return b"%s%d\n" % (_MAGIC, SCHEMA) + zlib.compress(_encoder.encode(body), _COMPRESSION_LEVEL)


def _changes(head: ClusterStateHead, content: bytes) -> ClusterStateChanges:
    body = _read(head.cluster, head.changes, content)
    if body.full != key_digest(head.full):
        raise ClusterStateError(
            f"{head.changes} has changes of the body {body.full or '(none)'}, not of {head.full}", code="OtherBody"
        )
    changed = _objects(head.changes, body)
    return ClusterStateChanges(cluster=body.cluster, full=body.full, changed=changed, gone=body.gone)


def _read(cluster: str, key: str, content: bytes) -> _Body:
    """The body stored under ``key``. Raises ClusterStateError."""
    packed = _without_schema(key, content)
    if state_key(cluster, content) != key:
        _raise_other_digest(key, packed)
    unpacked = _decompress(key, packed)
    try:
        body = _decoder.decode(unpacked)
    except DECODE_ERRORS as error:
        raise ClusterStateError(f"{key} cannot be read: {describe_error(error)}", code="Malformed") from None
    if body.cluster != cluster:
        raise ClusterStateError(f"{key} is of the cluster {body.cluster}, not of {cluster}", code="OtherCluster")
    return body


def _without_schema(key: str, content: bytes) -> bytes:
    """The compressed part of a body of our schema."""
    line, newline, packed = content.partition(b"\n")
    number = line.removeprefix(_MAGIC)
    if not newline or number == line or not number.isdigit():
        what = "is empty" if not content else "does not begin with the line cluster-state and its schema"
        raise ClusterStateError(f"{key} {what}", code="Malformed" if content else "CutShort")
    if number != b"%d" % SCHEMA:
        raise ClusterStateError(
            f"{key} has schema {number[:20].decode()}; this version reads schema {SCHEMA}", code="OtherSchema"
        )
    return packed


def _raise_other_digest(key: str, packed: bytes) -> None:
    """Raises why the content is not what its key says: it is cut short, or another body."""
    _decompress(key, packed)
    raise ClusterStateError(f"{key} holds another body: its sha256 differs from the key's", code="OtherBody")


def _decompress(key: str, packed: bytes) -> bytes:
    decompressor = zlib.decompressobj()
    try:
        content = decompressor.decompress(packed, MAXIMUM_BYTES)
    except zlib.error:
        raise ClusterStateError(f"{key} cannot be decompressed", code="Malformed") from None
    if decompressor.unconsumed_tail:
        raise ClusterStateError(f"{key} unpacks to more than {MAXIMUM_BYTES} bytes", code="TooLarge")
    if not decompressor.eof:
        raise ClusterStateError(f"{key} is cut short: it ends after {len(packed)} bytes", code="CutShort")
    return content


def _objects(key: str, body: _Body) -> ClusterObjects:
    try:
        return msgspec.structs.replace(body.objects, pods=from_columns(body.pods))
    except ValueError as error:
        raise ClusterStateError(f"{key} cannot be read: {error}", code="Malformed") from None
