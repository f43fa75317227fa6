"""What pods ask of nodes by names that v1 has no more: they are not changed, but it is said."""

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
# Deeper than any pod template is.
_DEEPEST: Final = 40


def note_renamed(content: Json, remarks: ObjectRemarks) -> None:
    """Notes about the places of a pod, or of a workload's template, that name what was renamed."""
    if content["kind"] in _KINDS:
        for path, name in _places({"metadata": content["metadata"], "spec": content.get("spec")}, "", 0):
            remarks.note(path, f"{name} {_RENAMED[name]}")


def _places(value: Any, path: str, depth: int) -> Iterator[tuple[str, str]]:
    """Renamed names that stand as a key, or as a value (``key: …`` of an affinity), and where."""
    if depth > _DEEPEST:
        return
    if isinstance(value, dict):
        for key, one in value.items():
            if isinstance(key, str) and key in _RENAMED:
                yield path, key
            elif key not in (labels.LAST_APPLIED, "managedFields"):
                yield from _places(one, f"{path}.{key}" if path else str(key), depth + 1)
    elif isinstance(value, list):
        for at, one in enumerate(value):
            yield from _places(one, f"{path}[{at}]", depth + 1)
    elif isinstance(value, str) and value in _RENAMED and path.endswith((".key", ".topologyKey")):
        yield path, value
