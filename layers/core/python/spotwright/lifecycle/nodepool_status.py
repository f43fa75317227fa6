"""The status of a NodePool: its resources, whether its template is valid, whether its class is ready.

Source: Karpenter v1.14 ``pkg/controllers/nodepool/{counter,validation,readiness}`` and ``pkg/apis/v1/*_validation.go``.
The condition ``FieldsRecognized`` is Spotwright's own: unknown fields do not stop a pool, but are reported.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from spotwright.disruption import rollouts
from spotwright.lifecycle.steps import ConditionChange, false_condition, true_condition
from spotwright.model import labels, resources
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import EC2NodeClass
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.kubernetes.node import Node
from spotwright.model.quoting import quote
from spotwright.model.requirements import NodeSelectorRequirement, Operator, RequirementError
from spotwright.model.snapshot import STATIC_CAPACITY
from spotwright.telemetry import events
from spotwright.telemetry.rows import Event

VALIDATION_FAILED: Final = "NodePoolValidationFailed"
UNRECOGNIZED_FIELDS: Final = "UnrecognizedFields"
_ZEROES: Final = {
    resources.CPU: 0,
    resources.MEMORY: 0,
    resources.PODS: 0,
    resources.EPHEMERAL_STORAGE: 0,
    resources.NODES: 0,
}
_NAME: Final = re.compile(r"^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")
_PREFIX: Final = re.compile(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$")
_CAPACITY_TYPES: Final = frozenset({labels.ON_DEMAND, labels.SPOT, labels.RESERVED})


def usage(pool: NodePool, claims: Iterable[NodeClaim], capacities: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    """Capacity of the pool's claims that are not being deleted, and their number as ``nodes``; zeroes are stated.

    ``capacities``: of each such claim, by name.
    """
    total = dict(_ZEROES)
    for claim in claims:
        if claim.nodepool == pool.name and claim.metadata.deletion_timestamp is None:
            total = resources.add(total, capacities[claim.name], {resources.NODES: 1})
    return total


def capacity(claim: NodeClaim, node: Node | None) -> dict[str, int]:
    """Of a NodeClaim and its Node, as plans count it: what an initialized Node does not report, it does not have,
    whatever its claim was launched for.
    """
    if node is None:
        return dict(claim.capacity)
    if node.is_initialized:
        return dict(node.capacity)
    return dict(claim.capacity) | {name: size for name, size in node.capacity.items() if size}


def nodepool_conditions(
    pool: NodePool,
    nodeclass: EC2NodeClass | None,
    budget_errors: tuple[str, ...] = (),
    *,
    feature_gates: Collection[str],
) -> tuple[ConditionChange, ...]:
    """The conditions ValidationSucceeded, NodeClassReady and FieldsRecognized.

    ``budget_errors``: errors of the pool's disruption budgets. ``feature_gates``: the feature gates that are on.
    """
    errors = (*_validation_errors(pool, feature_gates), *budget_errors)
    validation = (
        false_condition("ValidationSucceeded", VALIDATION_FAILED, "; ".join(errors))
        if errors
        else true_condition("ValidationSucceeded")
    )
    return (validation, _class_ready(pool, nodeclass), _fields_recognized(pool))


def _fields_recognized(pool: NodePool) -> ConditionChange:
    """What of the pool has no effect, or not all of its effect; the pool works nevertheless."""
    problems = (*pool.problems, *_annotation_errors(pool))
    if problems:
        return false_condition("FieldsRecognized", UNRECOGNIZED_FIELDS, "; ".join(problems))
    return true_condition("FieldsRecognized")


def _annotation_errors(pool: NodePool) -> Iterator[str]:
    value = pool.metadata.annotations.get(labels.DRIFT_ROLLOUT)
    if value not in (None, *rollouts.VALUES):
        allowed = " or ".join(rollouts.VALUES)
        yield f"metadata.annotations[{labels.DRIFT_ROLLOUT}]: {quote(value)} is not {allowed}; {rollouts.CANARY} counts"


def validation_events(changes: Iterable[ConditionChange]) -> tuple[Event, ...]:
    """The Warning events for what a user wrote wrong."""
    return tuple(
        events.CONDITION_FALSE(reason=change.reason, message=change.message)
        for change in changes
        if change.status == "False" and change.type in ("ValidationSucceeded", "FieldsRecognized")
    )


def _class_ready(pool: NodePool, nodeclass: EC2NodeClass | None) -> ConditionChange:
    if nodeclass is None:
        return false_condition("NodeClassReady", "NodeClassNotFound", "NodeClass not found on cluster")
    if nodeclass.metadata.deletion_timestamp is not None:
        return false_condition("NodeClassReady", "NodeClassTerminating", "NodeClass is Terminating")
    ready = find_condition(nodeclass.conditions, "Ready")
    if ready is None or ready.status == "Unknown":
        return false_condition("NodeClassReady", "NodeClassReadinessUnknown", "Node Class Readiness Unknown")
    if ready.status == "False":
        return false_condition("NodeClassReady", ready.reason, ready.message)
    return true_condition("NodeClassReady")


def _validation_errors(pool: NodePool, gates: Collection[str]) -> Iterator[str]:
    """Errors that the CRD's schema cannot find, each with its field."""
    if pool.read_error:
        yield pool.read_error
    if pool.replicas is not None and STATIC_CAPACITY not in gates:
        yield f"field spec.replicas (a static pool) needs the feature gate {STATIC_CAPACITY}, which is off"
    yield from template_errors(pool)
    for selector in pool.requirements:
        yield from _capacity_type_errors(selector)


def template_errors(pool: NodePool) -> Iterator[str]:
    """Labels, requirements and taints of which no node could be made, each with its field."""
    for key, value in sorted(pool.labels.items()):
        yield from _label_errors(f"spec.template.metadata.labels[{key}]", key, (value,))
    for selector in pool.requirements:
        yield from _requirement_errors(selector)
    yield from _taint_errors(pool)


def _label_errors(where: str, key: str, values: Iterable[str]) -> Iterator[str]:
    prefix, slash, name = key.rpartition("/")
    if not _NAME.match(name) or (slash and (not _PREFIX.match(prefix) or len(prefix) > 253)):
        allowed = "an optional DNS prefix and /, then at most 63 characters"
        yield f"{where}: {quote(key)} is not a qualified name ({allowed})"
    if key == labels.NODEPOOL or labels.is_restricted(key):
        yield f"{where}: {key} is restricted: only Spotwright sets it"
    for value in values:
        if value and not _NAME.match(value):
            yield f"{where}: {quote(value)} is not a label value (at most 63 of letters, digits, '-', '_', '.')"


def _requirement_errors(selector: NodeSelectorRequirement) -> Iterator[str]:
    where = f"spec.template.spec.requirements[{selector.key}]"
    try:
        selector.requirement()
    except RequirementError as error:
        yield f"{where}: {error}"
        return
    numeric = selector.operator in (Operator.GT, Operator.LT, Operator.GTE, Operator.LTE)
    yield from _label_errors(where, selector.key, () if numeric else selector.values)


def _capacity_type_errors(selector: NodeSelectorRequirement) -> Iterator[str]:
    where = f"spec.template.spec.requirements[{selector.key}]"
    if labels.normalize(selector.key) == labels.CAPACITY_TYPE and selector.operator == Operator.IN:
        recognized = _CAPACITY_TYPES.intersection(selector.values)
        least = max(1, selector.min_values or 0)
        if len(recognized) < least:
            given, allowed = ", ".join(selector.values), ", ".join(sorted(_CAPACITY_TYPES))
            yield f"{where}: [{given}] must have {least} or more of {allowed}"


def _taint_errors(pool: NodePool) -> Iterator[str]:
    effects_by_key = set()
    for taint in (*pool.taints, *pool.startup_taints):
        if (taint.key, taint.effect) in effects_by_key:
            yield f"spec.template.spec: taint {taint.key}:{taint.effect} is given twice (taints and startupTaints)"
        effects_by_key.add((taint.key, taint.effect))
