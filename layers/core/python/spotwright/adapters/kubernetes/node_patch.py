"""JSON patches of a Node that was read before: what is not named stays as it is, ``timeAdded`` of its taints and
``controller`` of its ownerReferences included.

A patch says what it expects of the taints, owners and finalizers that it changes, and nothing of the rest: a kubelet
and three controllers write a Node many times while it joins. Source: RFC 6902, whose ``test`` with null holds for what
does not exist, in the API server's implementation (https://github.com/evanphx/json-patch).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from spotwright.adapters.kubernetes.codecs.objects import encode_taint
from spotwright.adapters.kubernetes.transport import JsonObject
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.taints import Taint


def precondition(node: Node) -> JsonObject:
    """The node is the one that was read: the API server refuses to write another one's uid."""
    return _add("/metadata/uid", node.metadata.uid)


def taints(node: Node, after: Sequence[Taint]) -> Iterator[JsonObject]:
    """From the taints that the node has to ``after``; those that stay keep their order, new ones follow them."""
    known = [{"key": taint.key, "value": taint.value or None, "effect": taint.effect} for taint in node.taints]
    yield from _replace("/spec/taints", node.taints, {taint: encode_taint(taint) for taint in after}, known)


def metadata(node: Node, change: Mapping[str, Any]) -> Iterator[JsonObject]:
    """Labels and annotations are merged, where None removes one; finalizers are replaced, ownerReferences by uid."""
    present: dict[str, Mapping[str, str]] = {"labels": node.metadata.labels, "annotations": node.metadata.annotations}
    for field, value in change.items():
        if field in present:
            yield from _merge(f"/metadata/{field}", present[field], value)
        elif field == "ownerReferences":
            uids = [owner.uid for owner in node.metadata.owner_references]
            known = [{"uid": uid} for uid in uids]
            yield from _replace(f"/metadata/{field}", uids, {owner["uid"]: owner for owner in value}, known)
        else:
            yield _test(f"/metadata/{field}", list(node.metadata.finalizers) or None)
            yield _add(f"/metadata/{field}", value)


def _replace[Key](
    path: str, before: Sequence[Key], after: Mapping[Key, JsonObject], known: Sequence[JsonObject]
) -> Iterator[JsonObject]:
    """From a list of objects with these keys to ``after``; objects that stay keep also what is not modelled of them.

    ``known``: of each object what it must still have where it is; further ones may have come after them.
    """
    gone = [index for index in range(len(before)) if before[index] not in after]
    new = [value for key, value in after.items() if key not in before]
    if not gone and not new:
        return
    if not before:
        yield _test(path, None)
    for index, fields in enumerate(known):
        yield from (_test(f"{path}/{index}/{field}", value) for field, value in fields.items())
    yield from ({"op": "remove", "path": f"{path}/{index}"} for index in reversed(gone))
    if before:
        yield from (_add(f"{path}/-", value) for value in new)
    else:
        yield _add(path, new)


def _merge(path: str, before: Mapping[str, str], change: Mapping[str, str | None]) -> Iterator[JsonObject]:
    kept = {key: value for key, value in change.items() if value is not None}
    if not before:
        yield from (_test(path, None), _add(path, kept)) if kept else ()
        return
    yield from (_add(f"{path}/{_escape(key)}", value) for key, value in kept.items() if before.get(key) != value)
    gone = (key for key, value in change.items() if value is None and key in before)
    yield from ({"op": "remove", "path": f"{path}/{_escape(key)}"} for key in gone)


def _add(path: str, value: Any) -> JsonObject:
    """Sets a member of an object, whether it exists or not."""
    return {"op": "add", "path": path, "value": value}


def _test(path: str, value: Any) -> JsonObject:
    """The patch is refused where the value is another; None = where there is one."""
    return {"op": "test", "path": path, "value": value}


def _escape(key: str) -> str:
    """A key as a part of a JSON pointer (RFC 6901)."""
    return key.replace("~", "~0").replace("/", "~1")
