"""JSON patches of a Node that was read before: what is not named stays as it is, ``timeAdded`` of its taints and
``controller`` of its ownerReferences included.

Source: RFC 6902, and https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions: a patch that
writes another resourceVersion than the object's is a Conflict.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spotwright.adapters.kubernetes.codecs.objects import encode_taint
from spotwright.adapters.kubernetes.transport import JsonObject
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.taints import Taint


def preconditions(node: Node) -> Iterator[JsonObject]:
    """The node is the one that was read, at its resourceVersion."""
    values = {"uid": node.metadata.uid, "resourceVersion": node.metadata.resource_version}
    return (_add(f"/metadata/{key}", value) for key, value in values.items() if value)


def taints(node: Node, after: Sequence[Taint]) -> Iterator[JsonObject]:
    """From the taints that the node has to ``after``; those that stay keep their order, new ones follow them."""
    return _replace("/spec/taints", node.taints, {taint: encode_taint(taint) for taint in after})


def metadata(node: Node, change: Mapping[str, Any]) -> Iterator[JsonObject]:
    """Labels and annotations are merged, where None removes one; finalizers are replaced, ownerReferences by uid."""
    present: dict[str, Mapping[str, str]] = {"labels": node.metadata.labels, "annotations": node.metadata.annotations}
    for field, value in change.items():
        if field in present:
            yield from _merge(f"/metadata/{field}", present[field], value)
        elif field == "ownerReferences":
            uids = [owner.uid for owner in node.metadata.owner_references]
            yield from _replace(f"/metadata/{field}", uids, {owner["uid"]: owner for owner in value})
        else:
            yield _add(f"/metadata/{field}", value)


def _replace[Key](path: str, before: Sequence[Key], after: Mapping[Key, JsonObject]) -> Iterator[JsonObject]:
    """From a list of objects with these keys to ``after``; objects that stay keep also what is not modelled of them."""
    for index in reversed(range(len(before))):
        if before[index] not in after:
            yield {"op": "remove", "path": f"{path}/{index}"}
    new = [value for key, value in after.items() if key not in before]
    if before:
        yield from (_add(f"{path}/-", value) for value in new)
    elif new:
        yield _add(path, new)


def _merge(path: str, before: Mapping[str, str], change: Mapping[str, str | None]) -> Iterator[JsonObject]:
    kept = {key: value for key, value in change.items() if value is not None}
    if not before:
        yield _add(path, kept)
        return
    yield from (_add(f"{path}/{_escape(key)}", value) for key, value in kept.items() if before.get(key) != value)
    gone = (key for key, value in change.items() if value is None and key in before)
    yield from ({"op": "remove", "path": f"{path}/{_escape(key)}"} for key in gone)


def _add(path: str, value: Any) -> JsonObject:
    """Sets a member of an object, whether it exists or not."""
    return {"op": "add", "path": path, "value": value}


def _escape(key: str) -> str:
    """A key as a part of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
