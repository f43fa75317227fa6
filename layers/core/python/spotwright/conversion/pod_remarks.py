"""Remarks about labels and annotations in pods and workloads that v1 renamed; the objects are not changed."""

from collections.abc import Iterator
from typing import Any, Final

from spotwright.conversion import Json
from spotwright.conversion.node_metadata import PROVISIONER_NAME
from spotwright.conversion.remarks import ObjectRemarks
from spotwright.model import labels

_KINDS: Final = (
    "Pod", "PodTemplate", "Deployment", "ReplicaSet", "StatefulSet", "ReplicationController", "DaemonSet", "Job",
    "CronJob",
)  # fmt: skip
_RENAMED: Final = {
    PROVISIONER_NAME: f"is {labels.NODEPOOL} in v1: no node carries the old label",
    "karpenter.sh/do-not-evict": f"is {labels.DO_NOT_DISRUPT} in v1: the old annotation holds nothing back",
    "karpenter.k8s.aws/instance-pods": "is no label in v1: no node carries it",
}
# No pod template is deeper.
_MAX_DEPTH: Final = 40


def note_renamed(content: Json, remarks: ObjectRemarks) -> None:
    """Notes about the fields of a pod or workload that use a renamed label or annotation."""
    if content["kind"] in _KINDS:
        for path, name in _renamed_places({"metadata": content["metadata"], "spec": content.get("spec")}, "", 0):
            remarks.note(path, f"{name} {_RENAMED[name]}")


def _renamed_places(value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    """(field path, renamed name) for names used as a key, or as a value such as ``key: …`` of an affinity."""
    if depth > _MAX_DEPTH:
        return
    if isinstance(value, dict):
        for key, item in value.items():
            if isinstance(key, str) and key in _RENAMED:
                yield path, key
            elif key not in (labels.LAST_APPLIED, "managedFields"):
                yield from _renamed_places(item, f"{path}.{key}" if path else str(key), depth + 1)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _renamed_places(item, f"{path}[{index}]", depth + 1)
    elif isinstance(value, str) and value in _RENAMED and path.endswith((".key", ".topologyKey")):
        yield path, value
