"""Moves kubelet configurations from NodePools, where v1beta1 and v1alpha5 have them, to EC2NodeClasses, as in v1."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from spotwright.conversion import KUBELET_ANNOTATION, Json, kubelet_annotation
from spotwright.conversion.remarks import ObjectRemarks, refuse

_CLASS_KIND: Final = "EC2NodeClass"


class ResultObject:
    """An object of the result. ``kubelet``: the kubelet configuration of a NodePool, None = it has none.

    ``is_converted``: whether the conversion made it; other objects stay as they are.
    """

    def __init__(
        self, content: Json, remarks: ObjectRemarks, *, kubelet: Json | None = None, is_converted: bool = True
    ) -> None:
        self.content = content
        self.remarks: Final = remarks
        self.kubelet: Final = kubelet
        self.is_converted = is_converted

    @property
    def key(self) -> tuple[str, str]:
        """Kind and name."""
        return self.content["kind"], str(self.content["metadata"].get("name"))


def place_kubelets(objects: list[ResultObject]) -> list[ResultObject]:
    """The objects with every kubelet configuration in a class; pools that differ get classes of their own."""
    pools: dict[str, list[ResultObject]] = {}
    for result_object in objects:
        if result_object.content["kind"] == "NodePool" and (name := class_name(result_object.content)):
            pools.setdefault(name, []).append(result_object)
    taken_keys, placed = {obj.key for obj in objects}, list[ResultObject]()
    for result_object in objects:
        placed.append(result_object)
        if result_object.content["kind"] == _CLASS_KIND and isinstance(result_object.content.get("spec"), dict):
            placed += _split_class(result_object, pools.pop(result_object.key[1], []), taken_keys)
    for name, users in pools.items():
        for pool in users:
            _note_missing_class(pool, name)
    return placed


def _split_class(
    nodeclass: ResultObject, pools: list[ResultObject], taken_keys: set[tuple[str, str]]
) -> list[ResultObject]:
    """Copies of a class for pools with other kubelet settings; the class keeps its own, or the first pool's."""
    if all(pool.kubelet is None for pool in pools):
        return []
    own = _kubelet_of_class(nodeclass)
    variants: list[tuple[Json, list[ResultObject]]] = []
    for pool in pools:
        needed = own if pool.kubelet is None else pool.kubelet
        users = next((users for settings, users in variants if settings == needed), None)
        if users is None:
            variants.append((needed, [pool]))
        else:
            users.append(pool)
    variants.sort(key=lambda variant: variant[0] != own)
    original, copies = ResultObject(nodeclass.content, nodeclass.remarks), list[ResultObject]()
    for settings, users in variants:
        target = nodeclass if settings is variants[0][0] else _copy_class(original, users[0], taken_keys)
        if target is not nodeclass:
            copies.append(target)
        if settings != own:
            _set_kubelet(target, settings)
        _refer_to(users, target, nodeclass)
    return copies


def _refer_to(pools: list[ResultObject], target: ResultObject, nodeclass: ResultObject) -> None:
    """Lets pools refer to the class that has their kubelet configuration now, with a remark."""
    for pool in pools:
        if pool.kubelet is not None:
            _remove_annotation(pool)
            pool.remarks.note("", f"its kubelet configuration is spec.kubelet of {_CLASS_KIND} {target.key[1]} now")
        if target is not nodeclass:
            pool.content = _replace_at(
                pool.content, ("spec", "template", "spec", "nodeClassRef", "name"), target.key[1]
            )
            pool.remarks.note(
                "",
                f"refers to {_CLASS_KIND} {target.key[1]}, a copy of {nodeclass.key[1]}: other NodePools use that class"
                " with other kubelet settings, which v1 keeps in the class",
            )


def _copy_class(nodeclass: ResultObject, pool: ResultObject, taken_keys: set[tuple[str, str]]) -> ResultObject:
    """The class under another name, ``<class>-<pool>`` if no other class has it."""
    wanted_name = f"{nodeclass.key[1]}-{pool.key[1]}"
    name = free_name(wanted_name, (name for kind, name in taken_keys if kind == _CLASS_KIND))
    taken_keys.add((_CLASS_KIND, name))
    metadata = nodeclass.content["metadata"]
    kept = {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
    return ResultObject(nodeclass.content | {"metadata": {"name": name} | kept}, nodeclass.remarks)


def _set_kubelet(nodeclass: ResultObject, settings: Json) -> None:
    spec = {key: value for key, value in nodeclass.content["spec"].items() if key != "kubelet"}
    nodeclass.content = nodeclass.content | {"spec": spec | ({"kubelet": settings} if settings else {})}
    if not nodeclass.is_converted:
        nodeclass.remarks.note("spec.kubelet", "is what the NodePools that use it asked for")


def _note_missing_class(pool: ResultObject, name: str) -> None:
    """Remarks about a pool whose class is not among the objects."""
    if pool.is_converted:
        pool.remarks.note("", f"refers to {_CLASS_KIND} {name}, which is not among these files")
    if pool.kubelet is not None:
        settings = msgspec.json.encode(pool.kubelet, order="sorted").decode()
        pool.remarks.to_do(
            "", f"its kubelet configuration belongs into {_CLASS_KIND} {name}, as spec.kubelet: {settings}"
        )


def annotated_kubelet(content: Json) -> Json | None:
    """The kubelet configuration in the annotation that Karpenter v1.0 wrote; raises ConversionError."""
    text = kubelet_annotation(content)
    if not text:
        return None
    try:
        kubelet = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        kubelet = None
    if not isinstance(kubelet, dict):
        refuse(f"metadata.annotations[{KUBELET_ANNOTATION}]", text, "is not a kubelet configuration as JSON")
    return kubelet


def class_name(pool: Json) -> str:
    """The EC2NodeClass that a v1 NodePool refers to; "" = it cannot be read, or is of another kind."""
    reference = _dict(_dict(_dict(_dict(pool.get("spec")).get("template")).get("spec")).get("nodeClassRef"))
    name = reference.get("name")
    return name if isinstance(name, str) and reference.get("kind", _CLASS_KIND) == _CLASS_KIND else ""


def free_name(wanted: str, taken_names: Iterable[str]) -> str:
    """``wanted``, with the lowest number that makes it unique if it is taken."""
    names, name, number = set(taken_names), wanted, 2
    while name in names:
        name, number = f"{wanted}-{number}", number + 1
    return name


def _remove_annotation(pool: ResultObject) -> None:
    metadata = pool.content["metadata"]
    if kubelet_annotation(pool.content):
        annotations = {key: value for key, value in metadata["annotations"].items() if key != KUBELET_ANNOTATION}
        rest = {key: value for key, value in metadata.items() if key != "annotations"}
        pool.content = pool.content | {"metadata": rest | ({"annotations": annotations} if annotations else {})}


def _kubelet_of_class(nodeclass: ResultObject) -> Json:
    return _dict(_dict(nodeclass.content.get("spec")).get("kubelet"))


def _replace_at(content: Json, path: tuple[str, ...], to: str) -> Json:
    first, *rest = path
    return content | {first: _replace_at(content[first], tuple(rest), to) if rest else to}


def _dict(value: Any) -> Json:
    return value if isinstance(value, dict) else {}
