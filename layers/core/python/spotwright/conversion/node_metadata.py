"""What nodes carry, by its name in v1: labels, annotations and requirements of a pool's template."""

from typing import Any, Final

from spotwright.conversion import Json
from spotwright.conversion.remarks import ObjectRemarks, refuse
from spotwright.model import labels

PROVISIONER_NAME: Final = "karpenter.sh/provisioner-name"
_DO_NOT_CONSOLIDATE: Final = "karpenter.sh/do-not-consolidate"
# Karpenter's own; whoever writes the object writes it anew.
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
    """``metadata`` as somebody would write it: without what the API server and Karpenter wrote into it."""
    kept: Json = {}
    for name, value in content["metadata"].items():
        if name in _SET_BY_SERVER:
            remarks.lost(f"metadata.{name}", "is set by the API server")
        elif name == "annotations" and isinstance(value, dict):
            kept |= _some(name, {key: one for key, one in value.items() if not _tracked(key, remarks)})
        elif name == "finalizers" and isinstance(value, list):
            left = [one for one in value if one not in _FINALIZERS]
            if left != value:
                remarks.lost("metadata.finalizers", "Karpenter's are set anew")
            kept |= _some(name, left)
        elif value is not None:
            kept[name] = value
    if "status" in content and content["status"] is not None:
        remarks.lost("status", "is what Karpenter found out, not what somebody wants")
    return kept


def _tracked(key: Any, remarks: ObjectRemarks) -> bool:
    if key in _KEPT_BY_KARPENTER:
        remarks.lost(f"metadata.annotations[{key}]", "is written anew by kubectl and Karpenter")
        return True
    return False


def template_metadata(given_labels: Json, annotations: Json, path: str, remarks: ObjectRemarks) -> Json:
    """Labels and annotations of every node; ``path`` is the field that holds both."""
    kept = {}
    for key, value in given_labels.items():
        if why := _restricted(key):
            remarks.lost(f"{path}.labels[{key}]", why)
        else:
            kept[key] = value
    noted = dict(annotations)
    if _DO_NOT_CONSOLIDATE in noted:
        remarks.note(f"{path}.annotations[{_DO_NOT_CONSOLIDATE}]", f"is called {labels.DO_NOT_DISRUPT} in v1")
        noted.setdefault(labels.DO_NOT_DISRUPT, noted.pop(_DO_NOT_CONSOLIDATE))
    return _some("labels", kept) | _some("annotations", noted)


def requirements(given: list[Json], path: str, remarks: ObjectRemarks) -> list[Json]:
    """Those that v1 takes; raises ConversionError where an operator and its values do not go together."""
    kept = []
    for at, one in enumerate(given):
        where = f"{path}[{at}]"
        if why := _restricted(one["key"]):
            remarks.lost(where, f"{why}: the pool may now make nodes that {_spelled(one)} excluded")
        else:
            kept.append(_sound(one, where))
    return kept


def _sound(one: Json, where: str) -> Json:
    values, operator = one.get("values", []), one["operator"]
    if operator == "In" and not values:
        refuse(f"{where}.values", values, "is empty: operator In needs at least one value")
    if operator in ("Gt", "Lt") and not (len(values) == 1 and values[0].isascii() and values[0].isdigit()):
        refuse(f"{where}.values", values, f"is not one whole number of at least 0, as operator {operator} needs")
    if operator == "In" and len(values) < one.get("minValues", 0):
        refuse(f"{where}.minValues", one["minValues"], f"is more than the {len(values)} values that are allowed")
    return one


def _spelled(one: Json) -> str:
    return " ".join([one["key"], one["operator"], *([f"[{', '.join(one['values'])}]"] if one.get("values") else [])])


def _restricted(key: str) -> str:
    """Why v1 refuses a label key; empty when it does not."""
    if key in (PROVISIONER_NAME, labels.NODEPOOL):
        return f"nodes carry {labels.NODEPOOL} by themselves"
    if key == "karpenter.k8s.aws/instance-pods":
        return "v1 has no such label (a kubelet's maxPods may say what is meant)"
    return f"{key} is restricted in v1" if labels.is_restricted(key) else ""


def _some(name: str, value: Any) -> Json:
    return {name: value} if value else {}
