"""A plan as text for people: what it comes to, the nodes, the pods by workload, reasons, notes and assumptions."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from spotwright.cli.text.plan_report import PlanReport, price_text
from spotwright.cli.text.terminal import Terminal
from spotwright.cli.text.workloads import Workload, Workloads
from spotwright.model import labels, quantity, resources
from spotwright.model.ec2.instance_type import PICOUSD
from spotwright.model.plurals import counted
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.scheduling.explain.node_choice import format_price, resource_name
from spotwright.scheduling.packing.problem import PER_NODE_COST_PICOUSD_PER_HOUR
from spotwright.scheduling.plan import NewNode, NodeAssignment, Plan, ResourceUsage, UnplacedPod

_HOURS_A_MONTH: Final = 730
_MAX_NAMES: Final = 5
# So many workloads of which every pod has a place are listed.
_MAX_PLACED_WORKLOADS: Final = 20
# A bound that does not know that nodes are whole says little of a plan with fewer pods, unless the plan is close to it.
_FEW_PODS: Final = 100
_CLOSE_PERCENT: Final = 5
# Labels that every node has, or that the line of the node states.
_USUAL_LABELS: Final = frozenset((*labels.WELL_KNOWN, labels.NODEPOOL, labels.EC2NODECLASS, labels.HOSTNAME))


def plan_to_text(report: PlanReport, terminal: Terminal, *, is_wide: bool = False) -> Iterator[str]:
    """The plan as text, line by line. ``is_wide``: every node with its pods, requests and types by name."""
    plan = report.plan
    yield terminal.heading(summarize(plan))
    sections = (
        ("New nodes", list(_new_nodes(plan.new_nodes, report.workloads, is_wide=is_wide))),
        ("Existing nodes", list(_assignments(plan.existing_nodes, report.workloads, is_wide=is_wide))),
        ("Pods", list(_placed_pods(plan, report.workloads))),
        ("Capacity buffers", list(_buffers(plan))),
        (f"Pending: {counted(len(plan.unschedulable_pods), 'pod')}", list(_reasons(plan.unschedulable_pods, report))),
        (f"Ignored: {counted(len(plan.ignored_pods), 'pod')}", list(_reasons(plan.ignored_pods, report))),
        ("Notes", [f"  {note}" for note in _notes(report)]),
        ("Assumptions", [f"  {assumption}" for assumption in report.assumptions]),
    )
    for title, lines in sections:
        if lines:
            yield ""
            yield terminal.heading(title if ":" in title else f"{title}:")
            yield from lines


def summarize(plan: Plan) -> str:
    """What the plan comes to: pods by what becomes of them; the price; how much a better plan could save at most."""
    on_new, on_existing = _count_pods(plan.new_nodes), _count_pods(plan.existing_nodes)
    pending, ignored, nodes = len(plan.unschedulable_pods), len(plan.ignored_pods), len(plan.new_nodes)
    total = on_new + on_existing + pending + ignored
    fates = [
        f"{on_new:,} placed on {counted(nodes, 'new node')}" if on_new else counted(nodes, "new node") if nodes else "",
        f"{on_existing:,} {'' if on_new else 'placed '}on {counted(len(plan.existing_nodes), 'existing node')}"
        if on_existing
        else "",
        f"{pending:,} pending" if pending or on_new or on_existing else "",
        f"{ignored:,} ignored" if ignored else "",
    ]
    subject = counted(total, "pod") if total else "No pod is waiting"
    return "; ".join((f"{subject}: {', '.join(filter(None, fates)) or 'no new nodes'}", *_price(plan, on_new)))


def _count_pods(nodes: Iterable[NewNode | NodeAssignment]) -> int:
    return sum(len(node.pods) for node in nodes)


def _price(plan: Plan, pods: int) -> Iterator[str]:
    hourly, bound = plan.price_picousd_per_hour, plan.lower_bound_picousd_per_hour
    if not plan.new_nodes:
        return
    monthly = hourly * _HOURS_A_MONTH
    yield f"{price_text(hourly)}/h, ${monthly / PICOUSD:,.{0 if monthly >= 100 * PICOUSD else 2}f} a month"
    above = round(100 * (hourly - bound) / bound) if bound else 100
    if plan.is_cheapest and above:
        yield f"no cheaper nodes exist, each counted with {price_text(PER_NODE_COST_PICOUSD_PER_HOUR)}/h for its volume"
    elif bound and (above <= _CLOSE_PERCENT or pods >= _FEW_PODS):
        yield f"{above} % above what any plan must cost" if above else "no plan costs less"


def _new_nodes(nodes: Sequence[NewNode], workloads: Workloads, *, is_wide: bool) -> Iterator[str]:
    for alike in [[node] for node in nodes] if is_wide else group_nodes(nodes):
        yield from _describe_nodes(alike, workloads)
        yield from _details(alike[0]) if is_wide else ()


def group_nodes(nodes: Iterable[NewNode]) -> list[list[NewNode]]:
    """Nodes of which all that is printed is equal or printed as a range, in the order of their first nodes."""
    groups: dict[object, list[NewNode]] = {}
    for node in nodes:
        key = (
            node.nodepool,
            node.instance_types[0],
            node.capacity_type,
            node.price_picousd_per_hour,
            node.taints,
            node.startup_taints,
            tuple(_user_labels(node)),
            node.relaxed_preferences,
            node.reason,
        )
        groups.setdefault(key, []).append(node)
    return list(groups.values())


def _describe_nodes(alike: Sequence[NewNode], workloads: Workloads) -> Iterator[str]:
    node, number = alike[0], len(alike)
    price = format_price(node.price_picousd_per_hour)
    each = f"{price} each, {format_price(number * node.price_picousd_per_hour)} together" if number > 1 else price
    prefix = f"{number} x " if number > 1 else ""
    yield (
        f"  {prefix}{node.instance_types[0]} {node.capacity_type} of NodePool {node.nodepool}, {each}, {_zones(alike)}"
    )
    if pods := [pod for new_node in alike for pod in new_node.pods]:
        yield f"    pods: {_pods_of(alike, workloads.count(pods))}"
    if usage := _usage([new_node.usage for new_node in alike]):
        yield f"    uses: {usage}"
    if node.taints:
        yield f"    taints: {', '.join(map(str, node.taints))}"
    if user_labels := list(_user_labels(node)):
        yield f"    labels: {', '.join(f'{key}={value}' for key, value in user_labels)}"
    yield f"    why: {_why(node)}"
    if node.relaxed_preferences:
        yield f"    given up: {'; '.join(node.relaxed_preferences)}"


def _why(node: NewNode) -> str:
    """The reason, without the words that the line of the node has said."""
    price = format_price(node.price_picousd_per_hour)
    return node.reason.removeprefix(f"{node.instance_types[0]} {node.capacity_type} at {price} is ")


def _details(node: NewNode) -> Iterator[str]:
    """What only the wide output has."""
    if node.pods:
        yield f"    pod names: {', '.join(sorted(node.pods, key=_natural_order))}"
    if node.requests:
        amounts = ", ".join(f"{name} {amount}" for name, amount in resources.text(node.requests).items())
        yield f"    requests with DaemonSets: {amounts}"
    yield f"    instance types: {', '.join(node.instance_types)}"
    yield f"    requirements: {'; '.join(map(_requirement, node.requirements))}"


def _requirement(stated: NodeSelectorRequirement) -> str:
    values = f" [{', '.join(stated.values)}]" if stated.values else ""
    at_least = f" minValues {stated.min_values}" if stated.min_values is not None else ""
    return f"{stated.key} {stated.operator}{values}{at_least}"


def _user_labels(node: NewNode) -> Iterator[tuple[str, str]]:
    return ((key, value) for key, value in sorted(node.labels.items()) if key not in _USUAL_LABELS)


def _zones(alike: Sequence[NewNode]) -> str:
    numbers: dict[tuple[str, ...], int] = {}
    for node in alike:
        numbers[node.zones] = numbers.get(node.zones, 0) + 1
    if len(numbers) == 1:
        return _zone(alike[0].zones)
    return ", ".join(f"{number} in {_zone(zones)}" for zones, number in sorted(numbers.items()))


def _zone(zones: tuple[str, ...]) -> str:
    return zones[0] if len(zones) == 1 else f"any of {', '.join(zones)}"


def _pods_of(alike: Sequence[NewNode], counts: Mapping[Workload, int]) -> str:
    per_node = _range([len(node.pods) for node in alike], str)
    return name_workloads(counts) + (f" ({per_node} a node)" if len(alike) > 1 else "")


def name_workloads(counts: Mapping[Workload, int]) -> str:
    """``10 of Deployment web, 6 of StatefulSet cache and Pods a, b``."""
    owned = [f"{number:,} of {workload}" for workload, number in counts.items() if workload.kind != "Pod"]
    bare = sorted(
        (str(workload).removeprefix("Pod ") for workload in counts if workload.kind == "Pod"), key=_natural_order
    )
    named = ([f"{'Pod' if len(bare) == 1 else 'Pods'} {_few(bare)}"]) if bare else []
    hidden = len(owned) - 2 * _MAX_NAMES
    more = [f"{counted(hidden, 'more workload')}"] if hidden > 0 else []
    return ", ".join([*owned[: 2 * _MAX_NAMES], *more, *named])


def _usage(usages: Sequence[tuple[ResourceUsage, ...]]) -> str:
    """Shares of the resources, the one that is used most first, from the least to the most of the nodes."""
    by_resource: dict[str, list[ResourceUsage]] = {}
    for entry in (entry for usage in usages for entry in usage):
        by_resource.setdefault(entry.resource, []).append(entry)
    for name, entries in by_resource.items():
        if len(entries) < len(usages) and name != resources.PODS:
            entries.append(ResourceUsage(name, 0, entries[0].available))
    ordered = sorted(by_resource.values(), key=lambda entries: -max(entry.share for entry in entries))
    if len(usages) > 1 and len(ordered) > 1:
        ordered = [entries for entries in ordered if entries[0].resource != resources.PODS or entries is ordered[0]]
    return ", ".join(_share(entries, with_amounts=number == 0) for number, entries in enumerate(ordered))


def _share(entries: Sequence[ResourceUsage], *, with_amounts: bool) -> str:
    name = entries[0].resource
    percent = _range([round(100 * entry.share) for entry in entries], lambda share: str(share) if share else "under 1")
    if not with_amounts:
        return f"{percent} % of {resource_name(name)}"

    sizes = [size for entry in entries for size in (entry.requested, entry.available)]
    text_of = dict(zip(sizes, quantity.texts(name, sizes), strict=True))
    requested = _range([entry.requested for entry in entries], text_of.__getitem__)
    available = _range([entry.available for entry in entries], text_of.__getitem__)
    return f"{percent} % of {resource_name(name)} ({requested} of {available} after DaemonSets)"


def _range(values: Sequence[int], text: Callable[[int], str]) -> str:
    least, most = text(min(values)), text(max(values))
    return least if least == most else f"{least} to {most}"


def _few(names: Sequence[str]) -> str:
    """The first names and how many more there are."""
    shown = ", ".join(names[:_MAX_NAMES])
    return shown + (f" and {len(names) - _MAX_NAMES:,} more" if len(names) > _MAX_NAMES else "")


def _natural_order(name: str) -> tuple[str, int, str]:
    """``web-2`` before ``web-10``."""
    stem = name.rstrip("0123456789")
    number = name[len(stem) :]
    return (stem, int(number), number) if number.isascii() and number else (name, -1, "")


def _assignments(nodes: Iterable[NodeAssignment], workloads: Workloads, *, is_wide: bool) -> Iterator[str]:
    for node in nodes:
        yield f"  {node.name} takes {name_workloads(workloads.count(node.pods))}"
        if is_wide:
            yield f"    pod names: {', '.join(sorted(node.pods, key=_natural_order))}"


def _placed_pods(plan: Plan, workloads: Workloads) -> Iterator[str]:
    """How many pods of each workload have a place; workloads without any are among the pending or ignored pods."""
    nodes: tuple[NewNode | NodeAssignment, ...] = (*plan.new_nodes, *plan.existing_nodes)
    placed = workloads.count(pod for node in nodes for pod in node.pods)
    left = workloads.count(unplaced.pod for unplaced in (*plan.unschedulable_pods, *plan.ignored_pods))
    owned = {workload: number for workload, number in placed.items() if workload.kind != "Pod"}
    for workload in (workload for workload in owned if workload in left):
        yield f"  {workload}: {owned[workload]:,} of {owned[workload] + left[workload]:,} placed"
    whole = [workload for workload in owned if workload not in left]
    for workload in whole[:_MAX_PLACED_WORKLOADS]:
        yield f"  {workload}: {owned[workload]:,} of {owned[workload]:,}"
    if len(whole) > _MAX_PLACED_WORKLOADS:
        rest = whole[_MAX_PLACED_WORKLOADS:]
        pods = sum(owned[workload] for workload in rest)
        yield f"  {counted(len(rest), 'more workload')}: {pods:,} of {pods:,}"


def _buffers(plan: Plan) -> Iterator[str]:
    for provisioning in plan.buffers:
        name = f"{provisioning.namespace}/{provisioning.name}"
        message = f": {provisioning.message}" if provisioning.message else ""
        yield f"  {name} keeps room for {counted(provisioning.pod_count, 'pod')}, {provisioning.reason}{message}"
    for node in plan.buffer_assignments:
        yield f"  {node.name} has room for {_few(node.pods)}"


def _reasons(pods: Sequence[UnplacedPod], report: PlanReport) -> Iterator[str]:
    """Each reason once, with the workloads that it holds for."""
    keys_by_reasons: dict[tuple[str, ...], list[str]] = {}
    for pod in pods:
        keys_by_reasons.setdefault(pod.reasons, []).append(pod.pod)
    for reasons, keys in keys_by_reasons.items():
        yield f"  {name_workloads(report.workloads.count(keys))}"
        yield from (f"    {reason}" for reason in reasons)


def _notes(report: PlanReport) -> Iterator[str]:
    """The notes, without those that a reason has said already, word for word."""
    unplaced = (*report.plan.unschedulable_pods, *report.plan.ignored_pods)
    said = {reason for pod in unplaced for reason in pod.reasons}
    for note in dict.fromkeys((*report.plan.notes, *report.notes)):
        if re.sub(" makes no nodes(?: for pods)?: ", ": ", note, count=1) not in said:
            yield note
