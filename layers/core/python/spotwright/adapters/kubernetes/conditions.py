"""Writing status conditions beside other writers: read, merge, write, and again after a conflict."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from spotwright.adapters.kubernetes.codecs.objects import encode_condition
from spotwright.adapters.kubernetes.transport import MERGE_PATCH, JsonObject, Transport
from spotwright.errors import Conflict, NotFound
from spotwright.lifecycle.conditions import READY
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.telemetry.events import place_in_life

CONDITION_ATTEMPTS: Final = 4


def write_conditions(
    api: Transport,
    path: str,
    metadata: ObjectMeta,
    conditions: Sequence[Condition],
    *,
    removed: Collection[str] = (),
    seen: Mapping[str, str],
    now: datetime,
    status: Mapping[str, Any] = MappingProxyType({}),
    known: Sequence[Condition] | None = None,
) -> JsonObject | None:
    """Write ``conditions`` and remove those of the types ``removed``; the object afterwards, None = there was nothing
    to write. Raises NotFound for another uid, Conflict.

    ``seen``: statuses by type, "" = there was none; Conflict at once when one is another by now. ``status``: further
    fields. ``known``: all conditions at the resourceVersion of ``metadata``; the object is read when it has another.
    """
    current = _known(metadata, known, now) if known is not None and metadata.resource_version else None
    for attempt in range(1, CONDITION_ATTEMPTS + 1):
        current = current or api.call("GET", path)
        before = _conditions(current, path, metadata, seen)
        merged = merge_conditions(before, conditions, now=now)
        after = [condition for condition in merged if condition["type"] not in removed]
        if after == before and not status:
            return None
        try:
            return _write(api, path, current, {**status, "conditions": after})
        except Conflict:
            if attempt == CONDITION_ATTEMPTS:
                raise
            current = None
    return None


def _known(metadata: ObjectMeta, conditions: Sequence[Condition], now: datetime) -> JsonObject:
    """What is needed of an object that was read before."""
    identity = {"uid": metadata.uid, "resourceVersion": metadata.resource_version}
    encoded = [encode_condition(condition, since=now) | {"reason": condition.reason} for condition in conditions]
    return {"metadata": identity, "status": {"conditions": encoded}}


def _conditions(current: JsonObject, path: str, metadata: ObjectMeta, seen: Mapping[str, str]) -> list[JsonObject]:
    if metadata.uid and current["metadata"]["uid"] != metadata.uid:
        raise NotFound(f"{path} with uid {metadata.uid} does not exist", code="NotFound")
    before: list[JsonObject] = (current.get("status") or {}).get("conditions") or []
    statuses = {condition["type"]: condition["status"] for condition in before}
    if changed := sorted(type for type, status in seen.items() if statuses.get(type, "") != status):
        raise Conflict(f"{path} has another {', '.join(changed)} by now", code="Conflict")
    return before


def _write(api: Transport, path: str, current: JsonObject, status: JsonObject) -> JsonObject:
    preconditions = {key: current["metadata"][key] for key in ("uid", "resourceVersion")}
    body = {"metadata": preconditions, "status": status}
    return api.call("PATCH", f"{path}/status", body=body, content_type=MERGE_PATCH)


def merge_conditions(before: Sequence[JsonObject], changes: Sequence[Condition], *, now: datetime) -> list[JsonObject]:
    """``before`` with the changed conditions; a transition time changes only with the status.

    What changed is put in order for the reader, as Karpenter does: earlier transitions first, Ready at the end.
    """
    after = [dict(condition) for condition in before]
    for change in changes:
        new = encode_condition(change, since=now)
        old = next((condition for condition in after if condition["type"] == change.type), None)
        if old is None:
            after.append(new)
            continue
        if old["status"] == new["status"]:
            new["lastTransitionTime"] = old["lastTransitionTime"]
        old.clear()
        old.update(new)
    return after if after == list(before) else sorted(after, key=_order)


def _order(condition: JsonObject) -> tuple[bool, str, int]:
    since = str(condition.get("lastTransitionTime") or "")
    return condition["type"] == READY, since, place_in_life(condition["type"])
