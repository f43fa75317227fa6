"""A plan as JSON for programs: docs/plan-json.md describes it, docs/plan.schema.json states it."""

from collections.abc import Iterator
from typing import Any, Final

import msgspec

from spotwright.cli.text.plan_report import PlanReport
from spotwright.cli.text.workloads import Workload, Workloads
from spotwright.model import quantity, resources
from spotwright.model.ec2.instance_type import PICOUSD
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.scheduling.plan import (
    AlternativeOffering,
    BufferProvisioning,
    Cause,
    NewNode,
    Plan,
    ResourceUsage,
    UnplacedPod,
)

type Json = dict[str, Any]

# Goes up when a field changes its meaning or is left out; new fields leave it as it is.
SCHEMA: Final = 1
_UNKNOWN_CAUSE: Final = Cause("Other")


def plan_to_json(report: PlanReport) -> str:
    """The plan as a JSON document; prices in USD per hour."""
    return msgspec.json.format(msgspec.json.encode(plan_document(report)), indent=2).decode()


def plan_document(report: PlanReport) -> Json:
    """The JSON document as a value."""
    plan = report.plan
    return {
        "schema": SCHEMA,
        "catalog": {"source": report.catalog.source, "digest": report.catalog.digest},
        "summary": _summary(plan),
        "newNodes": [_new_node(new_node) for new_node in plan.new_nodes],
        "existingNodes": [
            {"name": assignment.name, "pods": list(assignment.pods)} for assignment in plan.existing_nodes
        ],
        "unschedulable": [_unplaced_pod(unplaced_pod) for unplaced_pod in plan.unschedulable_pods],
        "ignored": [_unplaced_pod(unplaced_pod) for unplaced_pod in plan.ignored_pods],
        "workloads": list(_workloads(plan, report.workloads)),
        "buffers": [_buffer(provisioning) for provisioning in plan.buffers],
        "notes": [*plan.notes, *report.notes],
        "assumptions": list(report.assumptions),
        "pricePerHour": plan.price_picousd_per_hour / PICOUSD,
        "boundPerHour": plan.lower_bound_picousd_per_hour / PICOUSD,
        "isCheapest": plan.is_cheapest,
        "workUnits": plan.work_units,
    }


def _summary(plan: Plan) -> Json:
    return {
        "newNodes": len(plan.new_nodes),
        "podsOnNewNodes": sum(len(node.pods) for node in plan.new_nodes),
        "podsOnExistingNodes": sum(len(node.pods) for node in plan.existing_nodes),
        "unschedulable": len(plan.unschedulable_pods),
        "ignored": len(plan.ignored_pods),
    }


def _new_node(node: NewNode) -> Json:
    return {
        "nodePool": node.nodepool,
        "nodeClass": node.nodeclass,
        "instanceType": node.instance_types[0],
        "capacityType": node.capacity_type,
        "zone": node.zones[0] if len(node.zones) == 1 else None,
        "zones": list(node.zones),
        "pricePerHour": node.price_picousd_per_hour / PICOUSD,
        "pods": list(node.pods),
        "instanceTypes": list(node.instance_types),
        "requirements": [_selector(expression) for expression in node.requirements],
        "labels": node.labels,
        "taints": [_taint(taint) for taint in node.taints],
        "startupTaints": [_taint(taint) for taint in node.startup_taints],
        "requests": resources.text(node.requests),
        "usage": [_usage(entry) for entry in node.usage],
        "reason": node.reason,
        "bindingResource": node.binding_resource,
        "alternatives": [_alternative_offering(alternative) for alternative in node.alternatives],
        "preferencesGivenUp": list(node.relaxed_preferences),
    }


def _usage(entry: ResourceUsage) -> Json:
    return {
        "resource": entry.resource,
        "requested": quantity.text(entry.resource, entry.requested),
        "available": quantity.text(entry.resource, entry.available),
        "percent": round(100 * entry.share, 1),
    }


def _alternative_offering(alternative: AlternativeOffering) -> Json:
    return {
        "instanceType": alternative.instance_type,
        "capacityType": alternative.capacity_type,
        "zone": alternative.zone,
        "pricePerHour": alternative.price_picousd_per_hour / PICOUSD,
    }


def _selector(selector: NodeSelectorRequirement) -> Json:
    expression: Json = {"key": selector.key, "operator": str(selector.operator)}
    if selector.values:
        expression["values"] = list(selector.values)
    if selector.min_values:
        expression["minValues"] = selector.min_values
    return expression


def _taint(taint: Taint) -> Json:
    return {"key": taint.key} | ({"value": taint.value} if taint.value else {}) | {"effect": str(taint.effect)}


def _buffer(provisioning: BufferProvisioning) -> Json:
    return {
        "name": f"{provisioning.namespace}/{provisioning.name}",
        "pods": provisioning.pod_count,
        "reason": provisioning.reason,
        "message": provisioning.message,
    }


def _unplaced_pod(unplaced: UnplacedPod) -> Json:
    causes = unplaced.causes or (_UNKNOWN_CAUSE,) * len(unplaced.reasons)
    return {
        "pod": unplaced.pod,
        "reasons": list(unplaced.reasons),
        "causes": [
            {"code": cause.code, "nodePools": list(cause.nodepools), "details": cause.details, "message": message}
            for cause, message in zip(causes, unplaced.reasons, strict=True)
        ],
    }


def _workloads(plan: Plan, workloads: Workloads) -> Iterator[Json]:
    """By namespace, kind and name, with the keys of their pods. Every pod of the plan counts once."""
    pods_by_fate = {
        "podsOnNewNodes": [pod for node in plan.new_nodes for pod in node.pods],
        "podsOnExistingNodes": [pod for node in plan.existing_nodes for pod in node.pods],
        "unschedulable": [unplaced.pod for unplaced in plan.unschedulable_pods],
        "ignored": [unplaced.pod for unplaced in plan.ignored_pods],
    }
    counts = {fate: workloads.count(pods) for fate, pods in pods_by_fate.items()}
    pods_by_workload: dict[Workload, list[str]] = {}
    for pod in sorted(pod for pods in pods_by_fate.values() for pod in pods):
        pods_by_workload.setdefault(workloads.of(pod), []).append(pod)
    for workload, pods in sorted(pods_by_workload.items()):
        name = {"kind": workload.kind, "namespace": workload.namespace, "name": workload.name}
        yield name | {fate: by_workload.get(workload, 0) for fate, by_workload in counts.items()} | {"pods": pods}
