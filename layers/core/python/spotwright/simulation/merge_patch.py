"""What the API server does with a merge patch, and with the JSON patch of a Node, on the model instead of JSON."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from spotwright.errors import InvalidRequest
from spotwright.model import resources
from spotwright.model.karpenter.capacity_buffer import CapacityBuffer, CapacityBufferStatus
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, OwnerReference
from spotwright.model.kubernetes.taints import Taint

# Status fields on the wire → fields of the model, and how their value is read.
_STATUS: Final[Mapping[str, str]] = {
    "providerID": "provider_id",
    "nodeName": "node_name",
    "imageID": "image_id",
    "capacity": "capacity",
    "allocatable": "allocatable",
    "lastPodEventTime": "last_pod_event_time",
    "resources": "resources",
    "nodes": "node_count",
}
# Only people read it.
_NOT_KEPT: Final = frozenset({"nodeClassObservedGeneration"})
_AMOUNTS: Final = frozenset({"capacity", "allocatable", "resources"})


def merge_metadata(metadata: ObjectMeta, change: Mapping[str, Any]) -> ObjectMeta:
    """Maps are merged (None takes a key out), lists replaced. Raises InvalidRequest where an object that is being
    deleted would get a further finalizer.
    """
    fields: dict[str, Any] = {}
    for name in ("labels", "annotations"):
        if name in change:
            after = getattr(metadata, name) | dict(change[name])
            fields[name] = {key: value for key, value in after.items() if value is not None}
    if "finalizers" in change:
        fields["finalizers"] = tuple(change["finalizers"] or ())
        if metadata.deletion_timestamp is not None and not set(fields["finalizers"]) <= set(metadata.finalizers):
            raise InvalidRequest(f"{metadata.name} is being deleted and gets no further finalizers", code="Invalid")
    if "ownerReferences" in change:
        fields["owner_references"] = tuple(
            OwnerReference(owner["kind"], owner["name"], owner["uid"], owner["apiVersion"])
            for owner in change["ownerReferences"]
        )
    return msgspec.structs.replace(metadata, **fields)


def patch_node_metadata(before: ObjectMeta, change: Mapping[str, Any], current: ObjectMeta) -> ObjectMeta:
    """``current`` with a change of what was read ``before``, as a JSON patch says it. Raises InvalidRequest where what
    is to change is not as it was read.
    """
    about: dict[str, Any] = {}
    for name, value in change.items():
        if name == "finalizers":
            if before.finalizers != current.finalizers:
                raise InvalidRequest("it has other finalizers", code="Invalid")
            about[name] = value
        elif name == "ownerReferences":
            about[name] = _patch_owners(before, value, current)
        else:
            about[name] = _patch_map(getattr(before, name), value, getattr(current, name))
    return merge_metadata(current, about)


def _patch_map(
    before: Mapping[str, str], change: Mapping[str, str | None], current: Mapping[str, str]
) -> dict[str, str | None]:
    """What of ``change`` is written. The first key makes the map, which must not be there; all others are added to the
    map, which must be; and a key that is gone cannot be removed.
    """
    written = {key: value for key, value in change.items() if value != before.get(key)}
    has_new = any(value is not None for value in written.values())
    if has_new and bool(before) != bool(current):
        raise InvalidRequest("it has its first key by now, or has lost its last one", code="Invalid")
    if any(value is None and key not in current for key, value in written.items()):
        raise InvalidRequest("it has lost a key that is to be removed", code="Invalid")
    return written


def patch_taints(before: Sequence[Taint], after: Sequence[Taint], current: Sequence[Taint]) -> tuple[Taint, ...]:
    """``current`` with the changes from ``before`` to ``after``. Raises InvalidRequest where it does not begin with
    ``before``, and for two taints of one key and effect.
    """
    patched = _patch_list(before, after, current)
    if len({(taint.key, taint.effect) for taint in patched}) < len(patched):
        raise InvalidRequest("taints must be unique by key and effect", code="Invalid")
    return patched


def _patch_list[T](before: Sequence[T], after: Sequence[T], current: Sequence[T]) -> tuple[T, ...]:
    gone = {index for index, value in enumerate(before) if value not in after}
    new = [value for value in after if value not in before]
    if not gone and not new:
        return tuple(current)
    if list(current[: len(before)]) != list(before) or (current and not before):
        raise InvalidRequest("it is not as it was read", code="Invalid")
    return (*(value for index, value in enumerate(current) if index not in gone), *new)


def _patch_owners(
    before: ObjectMeta, after: Sequence[Mapping[str, Any]], current: ObjectMeta
) -> list[Mapping[str, Any]]:
    """The same of ownerReferences, which are told by uid."""
    known = {
        owner.uid: {"kind": owner.kind, "name": owner.name, "uid": owner.uid, "apiVersion": owner.api_version}
        for owner in current.owner_references
    }
    uids = _patch_list(
        [owner.uid for owner in before.owner_references],
        [owner["uid"] for owner in after],
        [owner.uid for owner in current.owner_references],
    )
    return [known.get(uid) or next(owner for owner in after if owner["uid"] == uid) for uid in uids]


def merge_status[T: Any](obj: T, status: Mapping[str, Any]) -> T:
    """Raises KeyError for a field that the model does not have, so that no test passes without it."""
    if isinstance(obj, CapacityBuffer):
        template = (status["podTemplateRef"] or {}).get("name", "")
        generation = status["podTemplateGeneration"] or 0
        capacity_buffer_status = CapacityBufferStatus(
            status["replicas"], template, generation, status["provisioningStrategy"]
        )
        return msgspec.structs.replace(obj, status=capacity_buffer_status)
    fields: dict[str, Any] = {}
    for name in status.keys() - _NOT_KEPT:
        before = getattr(obj, _STATUS[name])
        fields[_STATUS[name]] = _merge_amounts(before, status[name]) if name in _AMOUNTS else _read(name, status[name])
    return msgspec.structs.replace(obj, **fields)


def _merge_amounts(before: Mapping[str, int], change: Mapping[str, str | None]) -> dict[str, int]:
    given = resources.parse({name: amount for name, amount in change.items() if amount is not None})
    return {name: amount for name, amount in before.items() if change.get(name, "") is not None} | given


def _read(name: str, value: Any) -> Any:
    if name == "lastPodEventTime":
        return datetime.fromisoformat(value)
    return value


def merge_conditions(
    before: tuple[Condition, ...], changes: Sequence[Condition], *, now: datetime
) -> tuple[Condition, ...]:
    """``before`` with the changed conditions; a transition time changes only with the status."""
    after = list(before)
    for change in changes:
        index = next((number for number, condition in enumerate(after) if condition.type == change.type), None)
        since = change.last_transition_time or now
        if index is None:
            after.append(msgspec.structs.replace(change, last_transition_time=since))
            continue
        kept = after[index].last_transition_time if after[index].status == change.status else since
        after[index] = msgspec.structs.replace(change, last_transition_time=kept)
    return tuple(after)
