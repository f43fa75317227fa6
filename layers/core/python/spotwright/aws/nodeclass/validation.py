"""Why an EC2NodeClass itself is invalid, whatever EC2 answers: tags, kubelet configuration, disks, user data."""

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
    {
        *(labels.CLUSTER_NAME_TAG, labels.NODEPOOL, labels.NODECLAIM, labels.EC2NODECLASS),
        *(labels.LAUNCH_TAG, labels.ORPHAN_TAG),
    }
)
_RESTRICTED_TAG_PREFIX: Final = "kubernetes.io/cluster"
_DEFAULTS: Final = Overheads()
_MAX_ERRORS: Final = 3


def validate(
    nodeclass: EC2NodeClass,
    facts: ClusterFacts,
    overheads: Overheads = _DEFAULTS,
    instance_types: Sequence[InstanceTypeInfo] | Unanswered = (),
) -> Refusal | Unanswered | None:
    """The first reason for which the class is invalid; None = valid. ``instance_types``: all types of the region."""
    tags = [key for key in sorted(nodeclass.tags) if _is_restricted(key)]
    if tags:
        return Refusal("TagValidationFailed", f"spec.tags: {', '.join(tags)} are set by Spotwright, not by a class")
    refusal = (
        _kubelet_refusal(nodeclass, overheads) or _device_refusal(nodeclass) or _user_data_refusal(nodeclass, facts)
    )
    return refusal or _expression_refusal(nodeclass, overheads, instance_types)


def _kubelet_refusal(nodeclass: EC2NodeClass, overheads: Overheads) -> Refusal | None:
    expressions, kubelet = validation.expression_fields(nodeclass.kubelet), nodeclass.kubelet
    if expressions and not overheads.nodeclass_cel:
        why = "; ".join(expressions)
        return Refusal("KubeletExpressionsDisabled", f"{why}: give an amount, expressions are not enabled")
    if expressions:
        kubelet, faults = configuration.substitute_expressions(nodeclass.kubelet)
        if faults:
            return Refusal("KubeletExpressionInvalid", "; ".join(faults))
    errors = validation.kubelet_errors(kubelet)
    if errors:
        return Refusal("InvalidKubeletConfiguration", "; ".join(errors))
    family = families.ami_family(nodeclass)
    if isinstance(family, Refusal) or family.allows_any_kubelet_field:
        return None
    unsupported = fields.unsupported_fields(nodeclass.kubelet, family.name, pods_per_core=family.pods_per_core_enabled)
    return Refusal("UnsupportedKubeletConfiguration", "; ".join(unsupported)) if unsupported else None


def has_expressions(nodeclass: EC2NodeClass) -> bool:
    return bool(validation.expression_fields(nodeclass.kubelet))


def _expression_refusal(
    nodeclass: EC2NodeClass, overheads: Overheads, types: Sequence[InstanceTypeInfo] | Unanswered
) -> Refusal | Unanswered | None:
    """Every expression must have a value for every type, since EC2 chooses the type of a launch."""
    family = families.ami_family(nodeclass)
    if isinstance(family, Refusal) or not has_expressions(nodeclass):
        return None
    if isinstance(types, Unanswered):
        return types
    errors = [error for info in types for error in capacity.expression_errors(info, nodeclass, family, overheads)]
    if not errors:
        return None
    more = f"; and {len(errors) - _MAX_ERRORS} more" if len(errors) > _MAX_ERRORS else ""
    return Refusal("KubeletExpressionEvaluationFailed", "; ".join(errors[:_MAX_ERRORS]) + more)


def _is_restricted(key: str) -> bool:
    return key in RESTRICTED_TAGS or key.startswith(_RESTRICTED_TAG_PREFIX)


def _device_refusal(nodeclass: EC2NodeClass) -> Refusal | None:
    for index, device in enumerate(nodeclass.block_device_mappings):
        try:
            quantity.parse(device.volume_size or "1Gi")
        except quantity.QuantityError as error:
            field = f"spec.blockDeviceMappings[{index}].ebs.volumeSize"
            return Refusal("InvalidBlockDeviceMapping", f"{field}: {error}")
    return None


def _user_data_refusal(nodeclass: EC2NodeClass, facts: ClusterFacts) -> Refusal | None:
    """Why user data without labels and taints cannot be rendered; launches check theirs again."""
    family = families.ami_family(nodeclass)
    if isinstance(family, Refusal):
        return family
    text = user_data.render(family.name, nodeclass, facts, BootstrapOptions({}, (), 110))
    return text if isinstance(text, Refusal) else None
