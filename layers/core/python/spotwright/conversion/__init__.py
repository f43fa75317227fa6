"""Manifests of Karpenter before v1, as v1 NodePools and EC2NodeClasses. Pure: objects in, objects and remarks out.

Source: Karpenter's migration guides "v1beta1 Migration" and "v1 Migration"; the CustomResourceDefinitions of
v0.31 (v1alpha5, v1alpha1) and v0.37 (v1beta1). Callers import this module alone to see whether to convert at all.
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
# Objects that Karpenter itself creates for instances.
CLAIM_KINDS: Final = (("Machine", CORE_ALPHA), ("NodeClaim", CORE_BETA))
_KINDS_BEFORE_V1: Final = ("Provisioner", "AWSNodeTemplate", "Machine")


def needs_conversion(content: Json) -> bool:
    """Whether this object, or what it refers to, must be converted before it can be read."""
    kind, version = content["kind"], content.get("apiVersion")
    if kind in _KINDS_BEFORE_V1:
        return is_karpenter_group(version)
    return kind in CONVERTED_KINDS and (version == CONVERTED_KINDS[kind] or bool(kubelet_annotation(content)))


def is_karpenter_group(version: object) -> bool:
    """Whether an ``apiVersion`` is of a group of Karpenter's; a missing one counts as such."""
    return version is None or str(version).startswith(("karpenter.sh/", "karpenter.k8s.aws/"))


def kubelet_annotation(content: Json) -> str:
    """The kubelet configuration of a former v1beta1 NodePool in an annotation of a v1 NodePool; "" = none."""
    annotations = content["metadata"].get("annotations") if content["kind"] == "NodePool" else None
    text = annotations.get(KUBELET_ANNOTATION) if isinstance(annotations, dict) else None
    return text if isinstance(text, str) else ""
