"""Manifests of Karpenter before v1, as v1 NodePools and EC2NodeClasses. Pure: objects in, objects and remarks out.

Source: Karpenter's migration guides "v1beta1 Migration" and "v1 Migration"; the CustomResourceDefinitions of
v0.31 (v1alpha5, v1alpha1) and v0.37 (v1beta1). This module alone is imported to see whether there is anything to do.
"""

from typing import Any, Final

type Json = dict[str, Any]

CORE_ALPHA: Final = "karpenter.sh/v1alpha5"
AWS_ALPHA: Final = "karpenter.k8s.aws/v1alpha1"
CORE_BETA: Final = "karpenter.sh/v1beta1"
AWS_BETA: Final = "karpenter.k8s.aws/v1beta1"
# Where Karpenter v1.0 put the kubelet configuration of a v1beta1 NodePool that it read as v1.
KUBELET_ANNOTATION: Final = "compatibility.karpenter.sh/v1beta1-kubelet-conversion"

# kind → the versions of it that are converted.
CONVERTED_KINDS: Final[dict[str, str]] = {
    "Provisioner": CORE_ALPHA,
    "AWSNodeTemplate": AWS_ALPHA,
    "NodePool": CORE_BETA,
    "EC2NodeClass": AWS_BETA,
}
# What Karpenter wrote itself, one for each instance.
CLAIM_KINDS: Final = (("Machine", CORE_ALPHA), ("NodeClaim", CORE_BETA))
_KINDS_BEFORE_V1: Final = ("Provisioner", "AWSNodeTemplate", "Machine")


def needs_conversion(content: Json) -> bool:
    """Whether this object, or what it refers to, cannot be read before it is converted."""
    kind, version = content["kind"], content.get("apiVersion")
    if kind in _KINDS_BEFORE_V1:
        return is_karpenter_group(version)
    return kind in CONVERTED_KINDS and (version == CONVERTED_KINDS[kind] or bool(kubelet_annotation(content)))


def is_karpenter_group(version: object) -> bool:
    """Whether an ``apiVersion`` is of one of Karpenter's groups; one that is left out is."""
    return version is None or str(version).startswith(("karpenter.sh/", "karpenter.k8s.aws/"))


def kubelet_annotation(content: Json) -> str:
    """What a v1 NodePool carries of a v1beta1 one's kubelet configuration; empty without."""
    annotations = content["metadata"].get("annotations") if content["kind"] == "NodePool" else None
    found = annotations.get(KUBELET_ANNOTATION) if isinstance(annotations, dict) else None
    return found if isinstance(found, str) else ""
