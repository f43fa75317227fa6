"""A plan as text, and as JSON for programs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import msgspec

from spotwright.model import resources
from spotwright.model.ec2.instance_type import PICOUSD
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.scheduling.explain.node_choice import format_price
from spotwright.scheduling.plan import AlternativeOffering, BufferProvisioning, NewNode, Plan, UnplacedPod

type Json = dict[str, Any]

_HOURS_A_MONTH: Final = 730
_MAX_NAMES: Final = 5


def plan_to_json(plan: Plan) -> str:
    """The plan as a JSON document; prices in USD per hour."""
    document = {
        "newNodes": [_new_node(new_node) for new_node in plan.new_nodes],
        "existingNodes": [
            {"name": assignment.name, "pods": list(assignment.pods)} for assignment in plan.existing_nodes
        ],
        "unschedulable": [_unplaced_pod(unplaced_pod) for unplaced_pod in plan.unschedulable_pods],
        "ignored": [_unplaced_pod(unplaced_pod) for unplaced_pod in plan.ignored_pods],
        "buffers": [_buffer(provisioning) for provisioning in plan.buffers],
        "notes": list(plan.notes),
        "pricePerHour": plan.price_picousd_per_hour / PICOUSD,
        "boundPerHour": plan.lower_bound_picousd_per_hour / PICOUSD,
        "workUnits": plan.work_units,
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode()


def _new_node(node: NewNode) -> Json:
    return {
        "nodePool": node.nodepool,
        "pods": list(node.pods),
        "instanceTypes": list(node.instance_types),
        "requirements": [_selector(expression) for expression in node.requirements],
        "labels": node.labels,
        "taints": [_taint(taint) for taint in node.taints],
        "startupTaints": [_taint(taint) for taint in node.startup_taints],
        "requests": resources.text(node.requests),
        "pricePerHour": node.price_picousd_per_hour / PICOUSD,
        "capacityType": node.capacity_type,
        "zones": list(node.zones),
        "reason": node.reason,
        "bindingResource": node.binding_resource,
        "alternatives": [_alternative_offering(alternative) for alternative in node.alternatives],
        "preferencesGivenUp": list(node.relaxed_preferences),
    }


def _alternative_offering(alternative: AlternativeOffering) -> Json:
    return {
        "instanceType": alternative.instance_type,
        "capacityType": alternative.capacity_type,
        "zone": alternative.zone,
        "pricePerHour": alternative.price_picousd_per_hour / PICOUSD,
    }


def _selector(selector: NodeSelectorRequirement) -> Json:
    expression: Json = {"key": selector.key, "operator": selector.operator}
    if selector.values:
        expression["values"] = list(selector.values)
    if selector.min_values:
        expression["minValues"] = selector.min_values
    return expression


def _taint(taint: Taint) -> Json:
    return {"key": taint.key} | ({"value": taint.value} if taint.value else {}) | {"effect": taint.effect}


def _buffer(provisioning: BufferProvisioning) -> Json:
    return {
        "name": f"{provisioning.namespace}/{provisioning.name}",
        "pods": provisioning.pod_count,
        "reason": provisioning.reason,
        "message": provisioning.message,
    }


def _unplaced_pod(unplaced: UnplacedPod) -> Json:
    return {"pod": unplaced.pod, "reasons": list(unplaced.reasons)}


def plan_to_text(plan: Plan, heading: str) -> Iterator[str]:
    """The plan as text, line by line."""
    yield heading
    yield ""
    yield _total(plan)
    for equal_nodes in _group_equal_nodes(plan.new_nodes):
        yield ""
        yield from _nodes(equal_nodes)
    yield from _bound(plan)
    if plan.existing_nodes:
        yield ""
        yield "Nodes there are:"
        for node in plan.existing_nodes:
            yield f"  {node.name} takes {_few(node.pods)}"
    yield from _buffers(plan)
    yield from _refusals("Without a place", plan.unschedulable_pods)
    yield from _refusals("Ignored", plan.ignored_pods)
    if plan.notes:
        yield ""
        yield "Notes:"
        yield from (f"  {note}" for note in plan.notes)


def _total(plan: Plan) -> str:
    placed = sum(len(node.pods) for node in plan.new_nodes)
    if not plan.new_nodes:
        waiting = plan.unschedulable_pods or plan.ignored_pods or plan.existing_nodes
        return "No new nodes." if waiting else "No new nodes: no pod is waiting."
    hourly = plan.price_picousd_per_hour
    monthly = hourly * _HOURS_A_MONTH / PICOUSD
    served = f" for {_count(placed, 'pod')}" if placed else ""
    return f"{_count(len(plan.new_nodes), 'new node')}{served}, {format_price(hourly)} (${monthly:,.2f} a month)"


def _bound(plan: Plan) -> Iterator[str]:
    """How much a better plan could save at most."""
    if plan.lower_bound_picousd_per_hour:
        share = 1 - plan.lower_bound_picousd_per_hour / plan.price_picousd_per_hour
        yield ""
        least = format_price(plan.lower_bound_picousd_per_hour)
        yield f"No plan for these pods costs less than {least}, {share:.1%} below this one."


def _group_equal_nodes(nodes: Iterable[NewNode]) -> list[list[NewNode]]:
    """Groups of nodes that differ only in the names of their pods, in the order of their first nodes."""
    groups: dict[object, list[NewNode]] = {}
    for node in nodes:
        key = (
            node.nodepool,
            node.instance_types,
            node.reason,
            node.price_picousd_per_hour,
            len(node.pods),
            node.relaxed_preferences,
        )
        groups.setdefault(key, []).append(node)
    return list(groups.values())


def _nodes(equal_nodes: list[NewNode]) -> Iterator[str]:
    node = equal_nodes[0]
    pods = [pod for new_node in equal_nodes for pod in new_node.pods]
    count_prefix = f"{len(equal_nodes)} x " if len(equal_nodes) > 1 else ""
    yield (
        f"  {count_prefix}{node.instance_types[0]} {node.capacity_type} of NodePool {node.nodepool},"
        f" {format_price(node.price_picousd_per_hour)}{' each' if count_prefix else ''}, {_zones(node.zones)}"
    )
    if pods:
        yield f"    pods: {_few(pods)}"
    if node.requests:
        yield f"    requests: {_amounts(node.requests)}"
    if node.taints:
        yield f"    taints: {', '.join(map(str, node.taints))}"
    yield f"    why: {node.reason}"
    if node.relaxed_preferences:
        yield f"    given up: {'; '.join(node.relaxed_preferences)}"
    if len(node.instance_types) > 1:
        yield f"    EC2 may also launch: {_few(node.instance_types[1:])}"
    if node.alternatives:
        yield f"    otherwise: {', '.join(_alternative(alternative) for alternative in node.alternatives)}"


def _zones(zones: tuple[str, ...]) -> str:
    return f"zone {zones[0]}" if len(zones) == 1 else f"any of {', '.join(zones)}"


def _alternative(alternative: AlternativeOffering) -> str:
    return f"{alternative.instance_type} {alternative.capacity_type} {format_price(alternative.price_picousd_per_hour)}"


def _amounts(amounts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in resources.text(amounts).items())


def _few(names: Sequence[str]) -> str:
    """The first names and how many more there are."""
    shown = ", ".join(names[:_MAX_NAMES])
    return shown + (f" and {len(names) - _MAX_NAMES} more" if len(names) > _MAX_NAMES else "")


def _buffers(plan: Plan) -> Iterator[str]:
    if not plan.buffers:
        return
    yield ""
    yield "Capacity buffers:"
    for provisioning in plan.buffers:
        name = f"{provisioning.namespace}/{provisioning.name}"
        message = f": {provisioning.message}" if provisioning.message else ""
        yield f"  {name} keeps room for {_count(provisioning.pod_count, 'pod')}, {provisioning.reason}{message}"
    for node in plan.buffer_assignments:
        yield f"  {node.name} has room for {_few(node.pods)}"


def _refusals(heading: str, pods: Sequence[UnplacedPod]) -> Iterator[str]:
    if not pods:
        return
    yield ""
    yield f"{heading}: {_count(len(pods), 'pod')}"
    keys_by_reasons: dict[tuple[str, ...], list[str]] = {}
    for pod in pods:
        keys_by_reasons.setdefault(pod.reasons, []).append(pod.pod)
    for reasons, keys in keys_by_reasons.items():
        yield f"  {_few(keys)}"
        yield from (f"    {reason}" for reason in reasons)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
