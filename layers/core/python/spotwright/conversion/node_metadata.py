"""Labels, annotations and requirements of a pool's template, under their names in v1; and metadata of objects."""

from typing import Any, Final

from spotwright.conversion import Json
from spotwright.conversion.remarks import ObjectRemarks, refuse
from spotwright.model import labels

PROVISIONER_NAME: Final = "karpenter.sh/provisioner-name"
_DO_NOT_CONSOLIDATE: Final = "karpenter.sh/do-not-consolidate"
# Annotations that Karpenter or kubectl write themselves.
_KEPT_BY_KARPENTER: Final = (
    "karpenter.sh/provisioner-hash",
    "karpenter.k8s.aws/nodetemplate-hash",
    labels.NODEPOOL_HASH,
    labels.NODEPOOL_HASH_VERSION,
    labels.EC2NODECLASS_HASH,
    labels.EC2NODECLASS_HASH_VERSION,
    labels.LAST_APPLIED,
)
_FINALIZERS: Final = (labels.FINALIZER, labels.EC2NODECLASS_FINALIZER)
_SET_BY_SERVER: Final = (
    "creationTimestamp", "deletionGracePeriodSeconds", "deletionTimestamp", "generation", "managedFields",
    "resourceVersion", "selfLink", "uid",
)  # fmt: skip


def object_metadata(content: Json, remarks: ObjectRemarks) -> Json:
    """``metadata`` as in a user's manifest, without what the API server, kubectl and Karpenter wrote."""
    kept: Json = {}
    for name, value in content["metadata"].items():
        if name in _SET_BY_SERVER:
            remarks.lost(f"metadata.{name}", "is set by the API server")
        elif name == "annotations" and isinstance(value, dict):
            kept |= _if_any(
                name, {key: entry for key, entry in value.items() if not _is_written_by_tools(key, remarks)}
            )
        elif name == "finalizers" and isinstance(value, list):
            finalizers = [entry for entry in value if entry not in _FINALIZERS]
            if finalizers != value:
                remarks.lost("metadata.finalizers", "Karpenter's are set anew")
            kept |= _if_any(name, finalizers)
        elif value is not None:
            kept[name] = value
    if "status" in content and content["status"] is not None:
        remarks.lost("status", "is what Karpenter found out, not what somebody wants")
    return kept


def _is_written_by_tools(key: Any, remarks: ObjectRemarks) -> bool:
    if key in _KEPT_BY_KARPENTER:
        remarks.lost(f"metadata.annotations[{key}]", "is written anew by kubectl and Karpenter")
        return True
    return False


def template_metadata(given_labels: Json, annotations: Json, path: str, remarks: ObjectRemarks) -> Json:
    """Labels and annotations of a pool's nodes; ``path``: the field that holds both."""
    kept = {}
    for key, value in given_labels.items():
        if reason := _restriction(key):
            remarks.lost(f"{path}.labels[{key}]", reason)
        else:
            kept[key] = value
    node_annotations = dict(annotations)
    if _DO_NOT_CONSOLIDATE in node_annotations:
        remarks.note(f"{path}.annotations[{_DO_NOT_CONSOLIDATE}]", f"is called {labels.DO_NOT_DISRUPT} in v1")
        node_annotations.setdefault(labels.DO_NOT_DISRUPT, node_annotations.pop(_DO_NOT_CONSOLIDATE))
    return _if_any("labels", kept) | _if_any("annotations", node_annotations)


def requirements(old_requirements: list[Json], path: str, remarks: ObjectRemarks) -> list[Json]:
    """The requirements that v1 allows; raises ConversionError for values that do not fit the operator."""
    kept = []
    for index, requirement in enumerate(old_requirements):
        where = f"{path}[{index}]"
        if why := _restriction(requirement["key"]):
            remarks.lost(where, f"{why}: the pool may now make nodes that {_describe(requirement)} excluded")
        else:
            kept.append(_check_requirement(requirement, where))
    return kept


def _check_requirement(requirement: Json, where: str) -> Json:
    values, operator = requirement.get("values", []), requirement["operator"]
    if operator == "In" and not values:
        refuse(f"{where}.values", values, "is empty: operator In needs at least one value")
    if operator in ("Gt", "Lt") and not (len(values) == 1 and values[0].isascii() and values[0].isdigit()):
        refuse(f"{where}.values", values, f"is not one whole number of at least 0, as operator {operator} needs")
    if operator == "In" and len(values) < requirement.get("minValues", 0):
        refuse(
            f"{where}.minValues", requirement["minValues"], f"is more than the {len(values)} values that are allowed"
        )
    return requirement


def _describe(requirement: Json) -> str:
    return " ".join(
        [
            requirement["key"],
            requirement["operator"],
            *([f"[{', '.join(requirement['values'])}]"] if requirement.get("values") else []),
        ]
    )


def _restriction(key: str) -> str:
    """Why v1 refuses a label key; "" = it does not."""
    if key in (PROVISIONER_NAME, labels.NODEPOOL):
        return f"nodes carry {labels.NODEPOOL} by themselves"
    if key == "karpenter.k8s.aws/instance-pods":
        return "v1 has no such label (a kubelet's maxPods may say what is meant)"
    return f"{key} is restricted in v1" if labels.is_restricted(key) else ""


def _if_any(name: str, value: Any) -> Json:
    return {name: value} if value else {}
