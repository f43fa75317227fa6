"""Keeps equal parts of objects once: the pods of a workload differ in little more than their names."""

import sys
from typing import Any, Final

import msgspec

from forwarder.kinds import ClusterObject
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import Pod

# Parts that were not asked for while so many others were are forgotten.
GENERATION_SIZE: Final = 4000
# Nothing larger is remembered: an object may have 10,000 labels.
LARGEST_PART_BYTES: Final = 8192

_OWN_POD_FIELDS: Final = frozenset(
    ("metadata", "node_name", "nominated_node_name", "phase", "unschedulable", "start_time", "is_ready", "read_error")
)
_POD: Final = tuple(name for name in Pod.__struct_fields__ if name not in _OWN_POD_FIELDS)
_NODE: Final = ("taints", "allocatable", "capacity")
_NODECLAIM: Final = ("node_class_ref", "requests", "taints", "startup_taints", "capacity", "allocatable")


class PartPool:
    """Parts by their encoding, in two generations. Threads may share it: at worst a part is kept twice."""

    def __init__(self) -> None:
        self._young: dict[tuple[str, bytes], Any] = {}
        self._old: dict[tuple[str, bytes], Any] = {}

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def share[Part](self, field: str, part: Part) -> Part:
        """``part``, or an equal one of the same field that was asked for before."""
        key = (field, msgspec.msgpack.encode(part))
        if len(key[1]) > LARGEST_PART_BYTES:
            return part
        found = self._young.get(key)
        if found is None:
            if len(self._young) >= GENERATION_SIZE:
                self._old, self._young = self._young, {}
            found = self._young.setdefault(key, self._old.get(key, part))
        shared: Part = found
        return shared


_POOL: Final = PartPool()


def share_equal_parts[Object: ClusterObject](obj: Object, pool: PartPool = _POOL) -> Object:
    """The same object, made of parts that earlier objects have, too."""
    metadata = _share_metadata(obj.metadata, pool)
    match obj:
        case Pod():
            together = pool.share("pod", tuple(getattr(obj, name) for name in _POD))
            fields: dict[str, Any] = dict(zip(_POD, together, strict=True))
            fields |= {"node_name": sys.intern(obj.node_name), "phase": sys.intern(obj.phase)}
            metadata = _share_texts(metadata, pool)
        case Node():
            fields = {name: pool.share(name, getattr(obj, name)) for name in _NODE}
            fields["conditions"] = tuple(map(_share_condition, obj.conditions))
        case NodeClaim():
            fields = {name: pool.share(name, getattr(obj, name)) for name in _NODECLAIM}
            fields["requirements"] = tuple(pool.share("requirement", each) for each in obj.requirements)
            fields |= {
                "node_name": sys.intern(obj.node_name),
                "conditions": tuple(map(_share_condition, obj.conditions)),
            }
        case _:
            fields = {}
    return msgspec.structs.replace(obj, metadata=metadata, **fields)


def _share_metadata(metadata: ObjectMeta, pool: PartPool) -> ObjectMeta:
    return msgspec.structs.replace(
        metadata,
        namespace=sys.intern(metadata.namespace),
        labels=_share_words(metadata.labels),
        annotations=_share_words(metadata.annotations),
        finalizers=pool.share("finalizers", metadata.finalizers),
        owner_references=pool.share("owners", metadata.owner_references),
    )


def _share_texts(metadata: ObjectMeta, pool: PartPool) -> ObjectMeta:
    """Of pods, labels and annotations are equal as a whole; of Nodes they never are."""
    labels, annotations = pool.share("labels", metadata.labels), pool.share("annotations", metadata.annotations)
    return msgspec.structs.replace(metadata, labels=labels, annotations=annotations)


def _share_words(texts: dict[str, str]) -> dict[str, str]:
    return {sys.intern(key): sys.intern(text) for key, text in texts.items()}


def _share_condition(condition: Condition) -> Condition:
    texts = {name: sys.intern(getattr(condition, name)) for name in ("type", "status", "reason", "message")}
    return msgspec.structs.replace(condition, **texts)
