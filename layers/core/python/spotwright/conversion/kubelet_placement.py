"""Where kubelet configurations go: in v1 the class has the one that v1beta1 and v1alpha5 kept in each pool."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from spotwright.conversion import KUBELET_ANNOTATION, Json, kubelet_annotation
from spotwright.conversion.remarks import ObjectRemarks, refuse

_CLASS_KIND: Final = "EC2NodeClass"


class ResultObject:
    """An object of the result while it is made. ``kubelet``: what its pool asks for, None when it asks for nothing.

    ``is_converted``: whether conversion wrote it; others stay as they are.
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
    """The pieces with every kubelet configuration in a class; pools that differ get a class each."""
    pools: dict[str, list[ResultObject]] = {}
    for result_object in objects:
        if result_object.content["kind"] == "NodePool" and (name := class_name(result_object.content)):
            pools.setdefault(name, []).append(result_object)
    taken, settled = {one.key for one in objects}, list[ResultObject]()
    for result_object in objects:
        settled.append(result_object)
        if result_object.content["kind"] == _CLASS_KIND and isinstance(result_object.content.get("spec"), dict):
            settled += _classes(result_object, pools.pop(result_object.key[1], []), taken)
    for name, users in pools.items():
        for pool in users:
            _homeless(pool, name)
    return settled


def _classes(nodeclass: ResultObject, pools: list[ResultObject], taken: set[tuple[str, str]]) -> list[ResultObject]:
    """Copies of a class for the pools whose kubelet differs; the class itself keeps its own, or the first one's."""
    if all(pool.kubelet is None for pool in pools):
        return []
    own = _own(nodeclass)
    variants: list[tuple[Json, list[ResultObject]]] = []
    for pool in pools:
        wanted = own if pool.kubelet is None else pool.kubelet
        users = next((users for settings, users in variants if settings == wanted), None)
        if users is None:
            variants.append((wanted, [pool]))
        else:
            users.append(pool)
    variants.sort(key=lambda variant: variant[0] != own)
    plain, copies = ResultObject(nodeclass.content, nodeclass.remarks), list[ResultObject]()
    for settings, users in variants:
        home = nodeclass if settings is variants[0][0] else _copy(plain, users[0], taken)
        if home is not nodeclass:
            copies.append(home)
        if settings != own:
            _set(home, settings)
        _move(users, home, nodeclass)
    return copies


def _move(pools: list[ResultObject], home: ResultObject, nodeclass: ResultObject) -> None:
    """Let the pools refer to where their configuration is now, and say so."""
    for pool in pools:
        if pool.kubelet is not None:
            _without_annotation(pool)
            pool.remarks.note("", f"its kubelet configuration is spec.kubelet of {_CLASS_KIND} {home.key[1]} now")
        if home is not nodeclass:
            pool.content = _changed(pool.content, ("spec", "template", "spec", "nodeClassRef", "name"), home.key[1])
            pool.remarks.note(
                "",
                f"refers to {_CLASS_KIND} {home.key[1]}, a copy of {nodeclass.key[1]}: other NodePools use that class"
                " with other kubelet settings, which v1 keeps in the class",
            )


def _copy(nodeclass: ResultObject, pool: ResultObject, taken: set[tuple[str, str]]) -> ResultObject:
    """The class under another name, ``<class>-<pool>`` where that is free."""
    wanted = f"{nodeclass.key[1]}-{pool.key[1]}"
    name = free_name(wanted, (name for kind, name in taken if kind == _CLASS_KIND))
    taken.add((_CLASS_KIND, name))
    metadata = nodeclass.content["metadata"]
    kept = {key: metadata[key] for key in ("labels", "annotations") if key in metadata}
    return ResultObject(nodeclass.content | {"metadata": {"name": name} | kept}, nodeclass.remarks)


def _set(nodeclass: ResultObject, settings: Json) -> None:
    spec = {key: value for key, value in nodeclass.content["spec"].items() if key != "kubelet"}
    nodeclass.content = nodeclass.content | {"spec": spec | ({"kubelet": settings} if settings else {})}
    if not nodeclass.is_converted:
        nodeclass.remarks.note("spec.kubelet", "is what the NodePools that use it asked for")


def _homeless(pool: ResultObject, name: str) -> None:
    """The class is not among the objects."""
    if pool.is_converted:
        pool.remarks.note("", f"refers to {_CLASS_KIND} {name}, which is not among these files")
    if pool.kubelet is not None:
        settings = msgspec.json.encode(pool.kubelet, order="sorted").decode()
        pool.remarks.to_do(
            "", f"its kubelet configuration belongs into {_CLASS_KIND} {name}, as spec.kubelet: {settings}"
        )


def annotated_kubelet(content: Json) -> Json | None:
    """The kubelet configuration that Karpenter v1.0 kept beside a v1 NodePool; raises ConversionError."""
    text = kubelet_annotation(content)
    if not text:
        return None
    try:
        found = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeError):
        found = None
    if not isinstance(found, dict):
        refuse(f"metadata.annotations[{KUBELET_ANNOTATION}]", text, "is not a kubelet configuration as JSON")
    return found


def class_name(pool: Json) -> str:
    """The class that a v1 NodePool refers to; empty when that cannot be read, or is of another kind."""
    reference = _dict(_dict(_dict(_dict(pool.get("spec")).get("template")).get("spec")).get("nodeClassRef"))
    name = reference.get("name")
    return name if isinstance(name, str) and reference.get("kind", _CLASS_KIND) == _CLASS_KIND else ""


def free_name(wanted: str, taken: Iterable[str]) -> str:
    """``wanted``, or with the first number that makes it nobody's."""
    names, name, number = set(taken), wanted, 2
    while name in names:
        name, number = f"{wanted}-{number}", number + 1
    return name


def _without_annotation(pool: ResultObject) -> None:
    metadata = pool.content["metadata"]
    if kubelet_annotation(pool.content):
        left = {key: one for key, one in metadata["annotations"].items() if key != KUBELET_ANNOTATION}
        rest = {key: value for key, value in metadata.items() if key != "annotations"}
        pool.content = pool.content | {"metadata": rest | ({"annotations": left} if left else {})}


def _own(nodeclass: ResultObject) -> Json:
    return _dict(_dict(nodeclass.content.get("spec")).get("kubelet"))


def _changed(content: Json, path: tuple[str, ...], to: str) -> Json:
    first, *rest = path
    return content | {first: _changed(content[first], tuple(rest), to) if rest else to}


def _dict(value: Any) -> Json:
    return value if isinstance(value, dict) else {}
