"""NodePools that may make nodes now, and why each other NodePool may not."""

from collections.abc import Iterable
from typing import Final

from spotwright.model import labels
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.requirements import Requirement, RequirementError, Requirements, conjunction, from_labels
from spotwright.model.snapshot import STATIC_CAPACITY, Snapshot
from spotwright.scheduling.inputs.nodeclaim_templates import NodeClaimTemplate, template_labels

_NODECLASS_GROUP: Final = "karpenter.k8s.aws"
_NODECLASS_KIND: Final = "EC2NodeClass"
# The reason of a class that does not exist: "not Ready" would lead to a condition that nobody finds.
_NOT_FOUND: Final = "NodeClassNotFound"


def build_templates(
    snapshot: Snapshot, catalog: Catalog, *, min_values_share: int = 0
) -> tuple[list[NodeClaimTemplate], dict[str, str]]:
    """NodePools that may make nodes for pods, heaviest first, then by name; and why each other NodePool may not.

    ``min_values_share``: with BestEffort, minValues holds as far as the NodePool's types have values, divided by this;
    0 = not at all. With Strict it holds as it is.
    """
    templates, closed = [], {}
    for pool in sorted(snapshot.nodepools, key=lambda nodepool: (-nodepool.weight, nodepool.name)):
        template = build_template(pool, snapshot, catalog)
        if isinstance(template, str):
            closed[pool.name] = template
        elif pool.replicas is not None:
            closed[pool.name] = _explain_static(pool, snapshot)
        else:
            templates.append(_with_reachable_min_values(template, min_values_share) if min_values_share else template)
    return templates, closed


def _with_reachable_min_values(template: NodeClaimTemplate, share: int) -> NodeClaimTemplate:
    """The template with minValues as far as its types have values, divided by ``share`` and rounded up."""
    values = {requirement.key: set[str]() for requirement in template.requirements if requirement.min_values}
    for instance_type in template.compatible_instance_types():
        for key, found in values.items():
            stated, allowed = instance_type.requirements.get(key), template.requirements.get(key)
            found.update(value for value in stated.values if not stated.complement and allowed.has(value))
    reachable = {key: min(template.requirements.get(key).min_values or 0, len(found)) for key, found in values.items()}
    return template.with_min_values({key: -(-least // share) for key, least in reachable.items() if least})


def build_template(pool: NodePool, snapshot: Snapshot, catalog: Catalog) -> NodeClaimTemplate | str:
    """What a NodePool may make now, static or not; or why it may make nothing."""
    try:
        requirements = _requirements(pool)
    except RequirementError as error:
        return f"its requirements are invalid: {error}"
    if why := _explain_not_ready(pool, snapshot.nodeclasses):
        return why
    if requirements is None:
        return _explain_contradiction(pool)
    instance_types = catalog.instance_types(pool.node_class_ref.name, pool.name)
    if not instance_types:
        return "its EC2NodeClass has no instance types"
    is_strict = snapshot.settings.min_values_policy != "BestEffort"
    min_values = {requirement.key: requirement.min_values for requirement in requirements if requirement.min_values}
    return NodeClaimTemplate(pool, requirements, instance_types, min_values if is_strict else {})


def _requirements(pool: NodePool) -> Requirements | None:
    return conjunction(
        (*from_labels(template_labels(pool)), *(expression.requirement() for expression in pool.requirements))
    )


_REQUIREMENTS: Final = "spec.template.spec.requirements"
_LABELS: Final = "spec.template.metadata.labels"


def field_path(pool: NodePool, key: str) -> str:
    """The field of a NodePool that says which values of a label its nodes may have: its last one on that label."""
    numbers = [number for number, item in enumerate(pool.requirements) if labels.normalize(item.key) == key]
    return f"{_REQUIREMENTS}[{numbers[-1]}]" if numbers else _LABELS


def as_written(pool: NodePool, requirement: Requirement) -> str:
    """What a NodePool's requirements say of a label, in its own words; ``requirement``: what they allow together."""
    items = [str(item) for item in pool.requirements if labels.normalize(item.key) == requirement.key]
    return " and ".join(items) or str(requirement)


def _explain_contradiction(pool: NodePool) -> str:
    """The first two of its labels and requirements that have no value in common."""
    stated = [(_LABELS, requirement) for requirement in from_labels(template_labels(pool))]
    stated += [(f"{_REQUIREMENTS}[{number}]", item.requirement()) for number, item in enumerate(pool.requirements)]
    for number, (path, requirement) in enumerate(stated):
        for earlier_path, earlier in stated[:number]:
            if earlier.key == requirement.key and conjunction((earlier, requirement)) is None:
                if earlier_path == _LABELS:
                    label = f"label {earlier.key}={earlier.sole_value}"
                    return f"{label} ({_LABELS}), but {path} allows only {requirement.describe_values()}"
                return f"{earlier_path} ({earlier}) and {path} ({requirement}) have no value in common"
    return "its requirements and labels have no value in common"


def _explain_static(pool: NodePool, snapshot: Snapshot) -> str:
    """Why a static NodePool makes no nodes for pods."""
    keeps = (
        "it keeps that many nodes whatever pods wait"
        if STATIC_CAPACITY in snapshot.settings.feature_gates
        else f"the feature gate {STATIC_CAPACITY}, which would let it keep that many nodes, is off"
    )
    return (
        f"it is static (spec.replicas: {pool.replicas}): {keeps}, and pods are never a reason for more; leave"
        " spec.replicas out for a pool that grows with its pods"
    )


def _explain_not_ready(pool: NodePool, nodeclasses: Iterable[EC2NodeClass]) -> str:
    """Why a NodePool, or its EC2NodeClass, is not ready; "" when both are."""
    if pool.metadata.deletion_timestamp is not None:
        return "it is being deleted"
    if pool.read_error:
        return pool.read_error
    reference = pool.node_class_ref
    if (reference.group or _NODECLASS_GROUP, reference.kind or _NODECLASS_KIND) != (_NODECLASS_GROUP, _NODECLASS_KIND):
        return (
            f"its nodeClassRef is {reference.kind} of {reference.group}: only {_NODECLASS_KIND} of {_NODECLASS_GROUP}"
            " is provisioned here"
        )
    ready = find_condition(pool.conditions, "Ready")
    if ready is not None and ready.status != "True":
        return f"it is not Ready{': ' + ready.message if ready.message else ''}"
    nodeclass = next((nodeclass for nodeclass in nodeclasses if nodeclass.name == reference.name), None)
    return _explain_nodeclass_not_ready(nodeclass) if nodeclass is not None else ""


def _explain_nodeclass_not_ready(nodeclass: EC2NodeClass) -> str:
    if nodeclass.metadata.deletion_timestamp is not None:
        return f"EC2NodeClass {nodeclass.name} is being deleted"
    ready = find_condition(nodeclass.conditions, "Ready")
    if ready is not None and ready.status != "True":
        state = "" if ready.reason == _NOT_FOUND else " is not Ready"
        return f"EC2NodeClass {nodeclass.name}{state}{': ' + ready.message if ready.message else ''}"
    return ""
