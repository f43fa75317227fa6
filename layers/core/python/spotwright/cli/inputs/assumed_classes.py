"""PriorityClasses and RuntimeClasses that pods name and that are not among the manifests: assumed, which is said."""

from collections.abc import Iterable, Iterator
from typing import Any, Final

from spotwright.cli.inputs.conversion import object_name
from spotwright.cli.inputs.documents import Document
from spotwright.cli.inputs.workloads import WORKLOAD_KINDS

type Json = dict[str, Any]

# Kind → the pod's field with the class, and the field that admission adds: a pod with both has been admitted.
_FIELDS: Final = {"PriorityClass": ("priorityClassName", "priority"), "RuntimeClass": ("runtimeClassName", "overhead")}
_EFFECTS: Final = {"PriorityClass": "priority 0", "RuntimeClass": "no overhead, nodeSelector and tolerations"}
# Kubernetes makes the PriorityClasses with this prefix itself, and nobody else may.
_SYSTEM: Final = "system-"
_OWNERS: Final = (*WORKLOAD_KINDS, "DaemonSet")
_MOST_NAMED: Final = 3


def assumed_classes(documents: Iterable[Document]) -> tuple[str, ...]:
    """A sentence for each class that is missing; without it the API server refuses the pods that name it."""
    contents = [document.content for document in documents]
    known = {(content["kind"], str(content["metadata"].get("name"))) for content in contents}
    users: dict[tuple[str, str], list[str]] = {}
    for content in contents:
        for key in _named_classes(_pod_spec(content)):
            if key not in known:
                users.setdefault(key, []).append(object_name(content))
    return tuple(
        f"{_names(names)}: {kind} {name} is not in these files; assumed {_EFFECTS[kind]}"
        " (a cluster without it refuses the pods)"
        for (kind, name), names in users.items()
    )


def _named_classes(pod_spec: Json) -> Iterator[tuple[str, str]]:
    for kind, (field, admitted) in _FIELDS.items():
        name = pod_spec.get(field)
        is_system = kind == "PriorityClass" and str(name).startswith(_SYSTEM)
        if name and isinstance(name, str) and not is_system and pod_spec.get(admitted) is None:
            yield kind, name


def _pod_spec(content: Json) -> Json:
    """The pod's own spec, or that of the pods which a workload makes; empty for anything else."""
    if content["kind"] == "Pod":
        return _map(content.get("spec"))
    owner = _map(content.get("spec"))
    if content["kind"] == "CronJob":
        owner = _map(_map(owner.get("jobTemplate")).get("spec"))
    return _map(_map(owner.get("template")).get("spec")) if content["kind"] in _OWNERS else {}


def _names(names: list[str]) -> str:
    shown = ", ".join(names[:_MOST_NAMED])
    return f"{shown} and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else shown


def _map(value: Any) -> Json:
    return value if isinstance(value, dict) else {}
