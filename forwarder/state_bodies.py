"""The cluster state out of the forwarder's objects: all of them, or those that changed since all were written."""

from collections.abc import Collection
from typing import Any, Final

from forwarder.capacity_buffers import CAPACITY_BUFFER
from forwarder.kinds import ClusterObject, Namespace
from forwarder.object_cache import ObjectCache
from spotwright.model.cluster_state import KIND_FIELDS, NAMESPACE, ClusterObjects, ClusterStateChanges
from spotwright.model.karpenter.capacity_buffer import CapacityBuffer
from spotwright.model.kubernetes.pod import Pod

#: Kinds of a cluster state.
STATE_KINDS: Final = frozenset({*KIND_FIELDS, NAMESPACE})


def all_objects(cache: ObjectCache) -> ClusterObjects:
    """All objects of a cluster state; pods that have finished are none of them."""
    fields: dict[str, Any] = {
        field: tuple(filter(_belongs, cache.of_kind(kind)))
        for kind, field in KIND_FIELDS.items()
        if kind != CAPACITY_BUFFER
    }
    buffers = tuple(found for uid in cache.buffers.uids() if (found := cache.buffers.get(uid)))
    namespaces = _labels_by_name(cache.of_kind(NAMESPACE))
    return ClusterObjects(**fields, capacity_buffers=buffers, namespaces=namespaces)


def changes_since(
    cache: ObjectCache, changed: Collection[tuple[str, str]], *, cluster: str, full: str
) -> ClusterStateChanges:
    """``changed``: kind and uid; what such an object is now, or that it is gone. ``full``: digest of the full body."""
    current: dict[str, list[ClusterObject | CapacityBuffer]] = {}
    gone: dict[str, list[str]] = {}
    for kind, uid in changed:
        if kind not in STATE_KINDS:
            continue
        found = cache.buffers.get(uid) if kind == CAPACITY_BUFFER else cache.get(kind, uid)
        if found is not None and _belongs(found):
            current.setdefault(kind, []).append(found)
        else:
            gone.setdefault(kind, []).append(uid)
    namespaces = _labels_by_name(current.pop(NAMESPACE, ()))
    fields: dict[str, Any] = {KIND_FIELDS[kind]: tuple(objects) for kind, objects in current.items()}
    return ClusterStateChanges(
        cluster=cluster,
        full=full,
        changed=ClusterObjects(**fields, namespaces=namespaces),
        gone={kind: tuple(uids) for kind, uids in gone.items()},
    )


def _belongs(obj: ClusterObject | CapacityBuffer) -> bool:
    return not (isinstance(obj, Pod) and obj.is_terminal)


def _labels_by_name(objects: Collection[ClusterObject | CapacityBuffer]) -> dict[str, dict[str, str]]:
    return {found.metadata.name: found.metadata.labels for found in objects if isinstance(found, Namespace)}
