"""What stops a class whatever EC2 answers: its tags, its kubelet configuration, its disks, its user data."""

from collections.abc import Sequence
from typing import Final

from spotwright.aws.bootstrap import user_data
from spotwright.aws.bootstrap.options import BootstrapOptions
from spotwright.aws.images import families
from spotwright.aws.instance_types import capacity
from spotwright.aws.instance_types.capacity import Overheads
from spotwright.aws.instance_types.info import InstanceTypeInfo
from spotwright.aws.kubelet import configuration, fields, validation
from spotwright.aws.refusal import Refusal, Unanswered
from spotwright.model import labels, quantity
from spotwright.model.ec2.fleet import ClusterFacts
from spotwright.model.karpenter.nodeclass import EC2NodeClass

RESTRICTED_TAGS: Final = frozenset(
    {labels.CLUSTER_NAME_TAG, labels.NODEPOOL, labels.NODECLAIM, labels.EC2NODECLASS, labels.LAUNCH_TAG}
)
_RESTRICTED_TAG_PREFIX: Final = "kubernetes.io/cluster"
_DEFAULTS: Final = Overheads()
_NAMED_FAULTS: Final = 3


def validate(
    nodeclass: EC2NodeClass,
    facts: ClusterFacts,
    overheads: Overheads = _DEFAULTS,
    instance_types: Sequence[InstanceTypeInfo] | Unanswered = (),
) -> Refusal | Unanswered | None:
    """The first thing about the class itself that stops it; None = fine. ``instance_types``: those of the region."""
    tags = [key for key in sorted(nodeclass.tags) if _is_restricted(key)]
    if tags:
        return Refusal("TagValidationFailed", f"spec.tags: {', '.join(tags)} are set by Spotwright, not by a class")
    plain = _kubelet(nodeclass, overheads) or _devices(nodeclass) or _boots(nodeclass, facts)
    return plain or _sizes(nodeclass, overheads, instance_types)


def _kubelet(nodeclass: EC2NodeClass, overheads: Overheads) -> Refusal | None:
    formulas, plain = validation.expression_fields(nodeclass.kubelet), nodeclass.kubelet
    if formulas and not overheads.nodeclass_cel:
        why = "; ".join(formulas)
        return Refusal("KubeletExpressionsDisabled", f"{why}: give an amount, expressions are not enabled")
    if formulas:
        plain, faults = configuration.substitute_expressions(nodeclass.kubelet)
        if faults:
            return Refusal("KubeletExpressionInvalid", "; ".join(faults))
    wrong = validation.kubelet_errors(plain)
    if wrong:
        return Refusal("InvalidKubeletConfiguration", "; ".join(wrong))
    family = families.ami_family(nodeclass)
    if isinstance(family, Refusal) or family.allows_any_kubelet_field:
        return None
    left = fields.unsupported_fields(nodeclass.kubelet, family.name, pods_per_core=family.pods_per_core_enabled)
    return Refusal("UnsupportedKubeletConfiguration", "; ".join(left)) if left else None


def has_expressions(nodeclass: EC2NodeClass) -> bool:
    return bool(validation.expression_fields(nodeclass.kubelet))


def _sizes(
    nodeclass: EC2NodeClass, overheads: Overheads, types: Sequence[InstanceTypeInfo] | Unanswered
) -> Refusal | Unanswered | None:
    """Every expression must have a value for every type: nobody knows which one a launch will get."""
    family = families.ami_family(nodeclass)
    if isinstance(family, Refusal) or not has_expressions(nodeclass):
        return None
    if isinstance(types, Unanswered):
        return types
    faults = [fault for info in types for fault in capacity.expression_errors(info, nodeclass, family, overheads)]
    if not faults:
        return None
    more = f"; and {len(faults) - _NAMED_FAULTS} more" if len(faults) > _NAMED_FAULTS else ""
    return Refusal("KubeletExpressionEvaluationFailed", "; ".join(faults[:_NAMED_FAULTS]) + more)


def _is_restricted(key: str) -> bool:
    return key in RESTRICTED_TAGS or key.startswith(_RESTRICTED_TAG_PREFIX)


def _devices(nodeclass: EC2NodeClass) -> Refusal | None:
    for index, device in enumerate(nodeclass.block_device_mappings):
        try:
            quantity.parse(device.volume_size or "1Gi")
        except quantity.QuantityError as error:
            field = f"spec.blockDeviceMappings[{index}].ebs.volumeSize"
            return Refusal("InvalidBlockDeviceMapping", f"{field}: {error}")
    return None


def _boots(nodeclass: EC2NodeClass, facts: ClusterFacts) -> Refusal | None:
    """Whether user data can be made for the smallest boot of this class; launches check theirs again."""
    family = families.ami_family(nodeclass)
    if isinstance(family, Refusal):
        return family
    text = user_data.render(family.name, nodeclass, facts, BootstrapOptions({}, (), 110))
    return text if isinstance(text, Refusal) else None
