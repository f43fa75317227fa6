"""Writing status conditions beside other writers: read, merge, write, and again after a conflict."""

from collections.abc import Collection, Sequence
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
    now: datetime,
) -> None:
    """Write ``conditions`` and remove those of the types ``removed``. Raises NotFound for another uid, Conflict."""
    for attempt in range(1, CONDITION_ATTEMPTS + 1):
        try:
            _merge_and_write(api, path, metadata, conditions, removed, now)
            return
        except Conflict:
            if attempt == CONDITION_ATTEMPTS:
                raise


def _merge_and_write(
    api: Transport,
    path: str,
    metadata: ObjectMeta,
    conditions: Sequence[Condition],
    removed: Collection[str],
    now: datetime,
) -> None:
    current = api.call("GET", path)
    if metadata.uid and current["metadata"]["uid"] != metadata.uid:
        raise NotFound(f"{path} with uid {metadata.uid} does not exist", code="NotFound")
    before = (current.get("status") or {}).get("conditions") or []
    merged = merge_conditions(before, conditions, now=now)
    after = [condition for condition in merged if condition["type"] not in removed]
    if after != before:
        preconditions = {key: current["metadata"][key] for key in ("uid", "resourceVersion")}
        body = {"metadata": preconditions, "status": {"conditions": after}}
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
