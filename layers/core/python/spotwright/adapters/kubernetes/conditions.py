"""Writing status conditions beside other writers: read, merge, write, and again after a conflict."""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Final

from spotwright.adapters.kubernetes.codecs.objects import encode_condition
from spotwright.adapters.kubernetes.transport import MERGE_PATCH, JsonObject, Transport
from spotwright.errors import Conflict, NotFound
from spotwright.model.kubernetes.meta import Condition, ObjectMeta

CONDITION_ATTEMPTS: Final = 4


def write_conditions(
    api: Transport,
    path: str,
    metadata: ObjectMeta,
    conditions: Sequence[Condition],
    *,
    removed: Collection[str],
    seen: Mapping[str, str],
    now: datetime,
) -> None:
    """Write ``conditions`` and remove those of the types ``removed``. Raises NotFound for another uid, Conflict.

    ``seen``: statuses by type, "" = there was none; Conflict at once when one is another by now.
    """
    for attempt in range(1, CONDITION_ATTEMPTS + 1):
        current = api.call("GET", path)
        before = _conditions(current, path, metadata, seen)
        merged = merge_conditions(before, conditions, now=now)
        after = [condition for condition in merged if condition["type"] not in removed]
        if after == before:
            return
        try:
            _write(api, path, current, after)
            return
        except Conflict:
            if attempt == CONDITION_ATTEMPTS:
                raise


def _conditions(current: JsonObject, path: str, metadata: ObjectMeta, seen: Mapping[str, str]) -> list[JsonObject]:
    if metadata.uid and current["metadata"]["uid"] != metadata.uid:
        raise NotFound(f"{path} with uid {metadata.uid} does not exist", code="NotFound")
    before: list[JsonObject] = (current.get("status") or {}).get("conditions") or []
    statuses = {condition["type"]: condition["status"] for condition in before}
    if changed := sorted(type for type, status in seen.items() if statuses.get(type, "") != status):
        raise Conflict(f"{path} has another {', '.join(changed)} by now", code="Conflict")
    return before


def _write(api: Transport, path: str, current: JsonObject, conditions: Sequence[JsonObject]) -> None:
    preconditions = {key: current["metadata"][key] for key in ("uid", "resourceVersion")}
    body = {"metadata": preconditions, "status": {"conditions": list(conditions)}}
    api.call("PATCH", f"{path}/status", body=body, content_type=MERGE_PATCH)


def merge_conditions(before: Sequence[JsonObject], changes: Sequence[Condition], *, now: datetime) -> list[JsonObject]:
    """``before`` with the changed conditions; a transition time changes only with the status."""
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
    return after
