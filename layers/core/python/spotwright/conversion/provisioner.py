"""Provisioner of karpenter.sh/v1alpha5 as a NodePool: what it said, and what its defaults said for it."""

from typing import Final

from spotwright.conversion import AWS_ALPHA, Json, node_metadata
from spotwright.conversion.remarks import ObjectRemarks, refuse, refuse_missing
from spotwright.model import labels

CLASS_REFERENCE: Final = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass"}
_CATEGORY: Final = labels.INSTANCE_PREFIX + "category"
_GENERATION: Final = labels.INSTANCE_PREFIX + "generation"
# What a webhook wrote into every Provisioner that said nothing of it.
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

    ``own_class``: the name of the class that is made of the Provisioner's own provider, if it has one. ``spec``: as
    the schema has it. Raises ConversionError.
    """
    given = dict(spec)
    about = node_metadata.template_metadata(given.pop("labels", {}), given.pop("annotations", {}), "spec", remarks)
    kubelet = _kubelet(given.pop("kubeletConfiguration", {}), remarks)
    template: Json = {"requirements": _requirements(given.pop("requirements", []), remarks)}
    template |= {name: given.pop(name) for name in ("taints", "startupTaints") if given.get(name)}
    template["nodeClassRef"] = CLASS_REFERENCE | {"name": own_class or _referred(given)}
    template["expireAfter"] = duration(given.pop("ttlSecondsUntilExpired", None))
    made: Json = {"template": ({"metadata": about} if about else {}) | {"spec": template}}
    made["disruption"] = _disruption(given)
    if limits := given.pop("limits", {}).get("resources"):
        made["limits"] = limits
    if "weight" in given:
        made["weight"] = given.pop("weight")
    return made, kubelet


def duration(seconds: int | None) -> str:
    """In the largest unit that says it exactly; ``Never`` for None."""
    if seconds is None:
        return "Never"
    unit, size = next((unit, size) for unit, size in (("h", 3600), ("m", 60), ("s", 1)) if seconds % size == 0)
    return f"{seconds // size}{unit}" if seconds else "0s"


def _disruption(given: Json) -> Json:
    """Without either field nothing was ever consolidated."""
    enabled = given.pop("consolidation", {}).get("enabled", False)
    after = given.pop("ttlSecondsAfterEmpty", None)
    if enabled and after is not None:
        refuse("spec.ttlSecondsAfterEmpty", after, "cannot be combined with consolidation.enabled")
    if enabled:
        return {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "0s"}
    return {"consolidationPolicy": "WhenEmpty", "consolidateAfter": duration(after)}


def _kubelet(given: Json, remarks: ObjectRemarks) -> Json:
    kubelet = dict(given)
    if runtime := kubelet.pop("containerRuntime", ""):
        why = "containerd is the only one there is" if runtime != "containerd" else "it is what every image runs now"
        remarks.lost("spec.kubeletConfiguration.containerRuntime", f"{runtime} cannot be chosen in v1: {why}")
    return kubelet_settings(kubelet)


def kubelet_settings(given: Json) -> Json:
    """With reserved amounts as texts, which v1 asks for."""
    reserved = {
        name: {key: str(value) for key, value in given[name].items()}
        for name in ("kubeReserved", "systemReserved")
        if name in given
    }
    return {name: value for name, value in (given | reserved).items() if value not in ({}, [])}


def _requirements(given: list[Json], remarks: ObjectRemarks) -> list[Json]:
    stated = {labels.normalize(one["key"]) for one in given}
    implied = [default for default in _DEFAULTS if default["key"] not in stated]
    if not stated & _TYPE_KEYS:
        implied += _DEFAULT_TYPES
    if implied:
        written = ", ".join(f"{one['key']} {one['operator']} [{', '.join(one['values'])}]" for one in implied)
        remarks.note("spec.requirements", f"written out what v1alpha5 implied: {written}")
    return node_metadata.requirements(given, "spec.requirements", remarks) + [dict(one) for one in implied]


def _referred(given: Json) -> str:
    """The name of the AWSNodeTemplate, which its class keeps."""
    reference = given.get("providerRef")
    if reference is None:
        refuse_missing("spec.providerRef", "a Provisioner needs a provider or a providerRef")
    if reference.get("kind", "AWSNodeTemplate") != "AWSNodeTemplate":
        refuse("spec.providerRef.kind", reference["kind"], "is not AWSNodeTemplate")
    if reference.get("apiVersion", AWS_ALPHA) != AWS_ALPHA:
        refuse("spec.providerRef.apiVersion", reference["apiVersion"], f"is not {AWS_ALPHA}")
    name: str = reference["name"]
    return name
