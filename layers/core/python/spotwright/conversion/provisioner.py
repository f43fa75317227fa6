"""A Provisioner of karpenter.sh/v1alpha5 as a NodePool, with its defaults written out."""

from typing import Final

from spotwright.conversion import AWS_ALPHA, Json, node_metadata
from spotwright.conversion.remarks import ObjectRemarks, refuse, refuse_missing
from spotwright.model import labels

CLASS_REFERENCE: Final = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass"}
_CATEGORY: Final = labels.INSTANCE_PREFIX + "category"
_GENERATION: Final = labels.INSTANCE_PREFIX + "generation"
# Requirements that Karpenter's webhook added to every Provisioner without them.
_DEFAULTS: Final = (
    {"key": labels.OS, "operator": "In", "values": ["linux"]},
    {"key": labels.ARCH, "operator": "In", "values": ["amd64"]},
    {"key": labels.CAPACITY_TYPE, "operator": "In", "values": [labels.ON_DEMAND]},
)
_DEFAULT_TYPES: Final = (
    {"key": _CATEGORY, "operator": "In", "values": ["c", "m", "r"]},
    {"key": _GENERATION, "operator": "Gt", "values": ["2"]},
)
_TYPE_KEYS: Final = frozenset({labels.INSTANCE_TYPE, labels.INSTANCE_PREFIX + "family", _CATEGORY, _GENERATION})


def nodepool_spec(spec: Json, remarks: ObjectRemarks, own_class: str) -> tuple[Json, Json]:
    """``spec`` of a v1 NodePool, and the kubelet configuration, which v1 keeps in the class.

    ``own_class``: the name of the class converted from the Provisioner's own provider, "" = it has none. ``spec``:
    validated by its schema. Raises ConversionError.
    """
    remaining = dict(spec)
    template_metadata = node_metadata.template_metadata(
        remaining.pop("labels", {}), remaining.pop("annotations", {}), "spec", remarks
    )
    kubelet = _kubelet(remaining.pop("kubeletConfiguration", {}), remarks)
    template: Json = {"requirements": _requirements(remaining.pop("requirements", []), remarks)}
    template |= {name: remaining.pop(name) for name in ("taints", "startupTaints") if remaining.get(name)}
    template["nodeClassRef"] = CLASS_REFERENCE | {"name": own_class or _nodeclass_name(remaining)}
    template["expireAfter"] = duration(remaining.pop("ttlSecondsUntilExpired", None))
    pool: Json = {"template": ({"metadata": template_metadata} if template_metadata else {}) | {"spec": template}}
    pool["disruption"] = _disruption(remaining)
    if limits := remaining.pop("limits", {}).get("resources"):
        pool["limits"] = limits
    if "weight" in remaining:
        pool["weight"] = remaining.pop("weight")
    return pool, kubelet


def duration(seconds: int | None) -> str:
    """A duration in the largest unit that is exact; ``Never`` for None."""
    if seconds is None:
        return "Never"
    unit, size = next((unit, size) for unit, size in (("h", 3600), ("m", 60), ("s", 1)) if seconds % size == 0)
    return f"{seconds // size}{unit}" if seconds else "0s"


def _disruption(remaining: Json) -> Json:
    """Without both fields v1alpha5 consolidated nothing."""
    enabled = remaining.pop("consolidation", {}).get("enabled", False)
    after = remaining.pop("ttlSecondsAfterEmpty", None)
    if enabled and after is not None:
        refuse("spec.ttlSecondsAfterEmpty", after, "cannot be combined with consolidation.enabled")
    if enabled:
        return {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s"}
    return {"consolidationPolicy": "WhenEmpty", "consolidateAfter": duration(after)}


def _kubelet(old_kubelet: Json, remarks: ObjectRemarks) -> Json:
    kubelet = dict(old_kubelet)
    if runtime := kubelet.pop("containerRuntime", ""):
        why = "containerd is the only one there is" if runtime != "containerd" else "it is what every image runs now"
        remarks.lost("spec.kubeletConfiguration.containerRuntime", f"{runtime} cannot be chosen in v1: {why}")
    return kubelet_settings(kubelet)


def kubelet_settings(kubelet: Json) -> Json:
    """The settings with reserved amounts as texts, as v1 requires."""
    reserved = {
        name: {key: str(value) for key, value in kubelet[name].items()}
        for name in ("kubeReserved", "systemReserved")
        if name in kubelet
    }
    return {name: value for name, value in (kubelet | reserved).items() if value not in ({}, [])}


def _requirements(old_requirements: list[Json], remarks: ObjectRemarks) -> list[Json]:
    stated = {labels.normalize(requirement["key"]) for requirement in old_requirements}
    implied = [default for default in _DEFAULTS if default["key"] not in stated]
    if not stated & _TYPE_KEYS:
        implied += _DEFAULT_TYPES
    if implied:
        written = ", ".join(
            f"{requirement['key']} {requirement['operator']} [{', '.join(requirement['values'])}]"
            for requirement in implied
        )
        remarks.note("spec.requirements", f"written out what v1alpha5 implied: {written}")
    return node_metadata.requirements(old_requirements, "spec.requirements", remarks) + [
        dict(requirement) for requirement in implied
    ]


def _nodeclass_name(remaining: Json) -> str:
    """The name of the AWSNodeTemplate, which is also the name of the class converted from it."""
    reference = remaining.get("providerRef")
    if reference is None:
        refuse_missing("spec.providerRef", "a Provisioner needs a provider or a providerRef")
    if reference.get("kind", "AWSNodeTemplate") != "AWSNodeTemplate":
        refuse("spec.providerRef.kind", reference["kind"], "is not AWSNodeTemplate")
    if reference.get("apiVersion", AWS_ALPHA) != AWS_ALPHA:
        refuse("spec.providerRef.apiVersion", reference["apiVersion"], f"is not {AWS_ALPHA}")
    name: str = reference["name"]
    return name
