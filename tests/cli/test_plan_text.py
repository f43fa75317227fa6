"""What a plan prints: nothing wrong of any node in a group, every pod once, no sentence twice."""

from collections import Counter
from typing import Any

import msgspec
import pytest
from hypothesis import given

from spotwright.cli.text.plan import group_nodes, plan_to_text, summarize
from spotwright.cli.text.plan_report import PlanReport
from spotwright.cli.text.terminal import Terminal
from spotwright.cli.text.workloads import Workload, Workloads, find_workload
from spotwright.model import labels
from spotwright.model.ec2.instance_type import PICOUSD
from spotwright.model.kubernetes.meta import OwnerReference
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import NewNode, NodeAssignment, Plan, ResourceUsage, UnplacedPod
from tests.property.plans import LAWS, clusters, planned
from tests.unit.scheduling.builders import owned_by, pod, pods, pool
from tests.unit.scheduling.builders import planned as planned_for

NODE = NewNode(
    nodepool="default",
    nodeclass="default",
    pods=("default/web-0",),
    instance_types=("m5.large",),
    requirements=(),
    labels={},
    taints=(),
    startup_taints=(),
    requests={},
    price_picousd_per_hour=PICOUSD // 10,
    capacity_type=labels.ON_DEMAND,
    zones=("z1",),
)


def text_of(plan: Plan, *of: Pod, **options: Any) -> str:
    return "\n".join(plan_to_text(PlanReport(plan, Workloads(of)), Terminal(), **options))


@LAWS
@given(clusters)
def test_every_pod_is_counted_once_and_the_sums_agree(cluster: Snapshot) -> None:
    plan, workloads = planned(cluster), Workloads(cluster.pods)
    on_new = [key for group in group_nodes(plan.new_nodes) for node in group for key in node.pods]
    assert Counter(on_new) == Counter(key for node in plan.new_nodes for key in node.pods)
    assert sum(workloads.count(on_new).values()) == len(on_new)
    assert f"{len(cluster.pods)} pod" in summarize(plan)


@LAWS
@given(clusters)
def test_nothing_that_is_printed_of_a_group_differs_within_it(cluster: Snapshot) -> None:
    for group in group_nodes(planned(cluster).new_nodes):
        lines = {text_of(Plan((msgspec.structs.replace(node, pods=(), usage=(), zones=()),))) for node in group}
        assert len(lines) == 1


@pytest.mark.parametrize(
    "other",
    [
        {"taints": (Taint("a", "NoSchedule"),)},
        {"startup_taints": (Taint("a", "NoSchedule"),)},
        {"labels": {"team": "a"}},
        {"nodepool": "other"},
        {"capacity_type": labels.SPOT},
        {"price_picousd_per_hour": PICOUSD},
        {"relaxed_preferences": ("ScheduleAnyway spread over zones (1 pod)",)},
    ],
)
def test_nodes_that_differ_in_what_is_printed_are_not_one_group(other: dict[str, Any]) -> None:
    assert len(group_nodes([NODE, msgspec.structs.replace(NODE, **other)])) == 2


def test_zones_of_a_group_are_counted_and_usage_is_a_range() -> None:
    nodes = [
        msgspec.structs.replace(NODE, zones=zones, usage=(ResourceUsage("cpu", cpu, 2000),), pods=names)
        for zones, cpu, names in ((("z1",), 500, ("a",)), (("z2",), 1500, ("b", "c")), (("z2",), 1000, ("d",)))
    ]
    said = text_of(Plan(tuple(nodes)))
    assert "3 x m5.large on-demand of NodePool default, $0.1000/h each, $0.3000/h together, 1 in z1, 2 in z2" in said
    assert "uses: 25 to 75 % of cpu (500m to 1500m of 2000m after DaemonSets)" in said
    assert "(1 to 2 a node)" in said


def test_each_sentence_stands_once() -> None:
    plan = planned_for(*pods(12, cpu=100, owner_references=owned_by("Job", "big")))
    said = text_of(plan, *pods(12, cpu=100, owner_references=owned_by("Job", "big")))
    assert said.count("it asks for cpu 100") == 1
    assert "Pending: 12 pods\n  12 of Job big\n" in said


def test_what_a_reason_says_of_a_static_nodepool_is_no_note_beside_it() -> None:
    left = UnplacedPod("default/p", ("NodePool a: it is static (spec.replicas: 3)",))
    notes = ("NodePool a makes no nodes for pods: it is static (spec.replicas: 3)", "NodePool b makes no nodes: why")
    said = text_of(Plan((), unschedulable_pods=(left,), notes=notes))
    assert said.count("it is static") == 1
    assert "NodePool b makes no nodes: why" in said
    arm = pool("none", NodeSelectorRequirement(labels.ARCH, "In", ("arm64",)))
    said = text_of(planned_for(pod(), pools=[arm]))
    assert said.count("kubernetes.io/arch In [arm64]") == 1


def test_bare_pods_are_named_in_the_order_of_their_numbers() -> None:
    unplaced = tuple(UnplacedPod(f"default/p-{number}", ("no",)) for number in (0, 1, 10, 11, 2, 3, 4))
    assert "  Pods p-0, p-1, p-2, p-3, p-4 and 2 more\n" in text_of(Plan(unschedulable_pods=unplaced))


def test_the_summary_says_what_becomes_of_all_pods() -> None:
    plan = Plan(
        (NODE,) * 12,
        (NodeAssignment("n1", ("default/a", "default/b")),),
        (UnplacedPod("default/c", ("no",)),),
        (UnplacedPod("default/d", ("no",)),),
    )
    assert summarize(plan) == (
        "16 pods: 12 placed on 12 new nodes, 2 on 1 existing node, 1 pending, 1 ignored; $1.20/h, $876 a month"
    )
    assert summarize(Plan()) == "No pod is waiting: no new nodes"


def test_the_bound_is_told_where_it_says_something() -> None:
    close = Plan((NODE,) * 10, lower_bound_picousd_per_hour=98 * PICOUSD // 100)
    assert summarize(close).endswith("; 2 % above what any plan must cost")
    assert summarize(msgspec.structs.replace(close, lower_bound_picousd_per_hour=PICOUSD)).endswith(
        "; no plan costs less"
    )
    proven = msgspec.structs.replace(close, is_cheapest=True)
    assert summarize(proven).endswith("; no cheaper nodes exist, each counted with $0.0030/h for its volume")
    assert summarize(msgspec.structs.replace(proven, lower_bound_picousd_per_hour=PICOUSD)).endswith(
        "; no plan costs less"
    )
    far = msgspec.structs.replace(close, lower_bound_picousd_per_hour=PICOUSD // 2)
    assert "%" not in summarize(far)
    many = msgspec.structs.replace(far, new_nodes=(msgspec.structs.replace(NODE, pods=("default/a",) * 10),) * 10)
    assert summarize(many).endswith("; 100 % above what any plan must cost")


def test_pods_of_a_replicaset_belong_to_its_deployment() -> None:
    hashed = {"pod-template-hash": "5d9c7b8f6"}
    live = pod(labels=hashed, owner_references=(OwnerReference("ReplicaSet", "web-5d9c7b8f6"),))
    assert find_workload(live) == Workload("default", "Deployment", "web")
    assert find_workload(pod(owner_references=owned_by("ReplicaSet", "web"))).kind == "ReplicaSet"
    assert str(find_workload(pod("p", namespace="batch"))) == "Pod batch/p"


def test_wide_output_names_every_pod() -> None:
    plan = planned_for(*pods(12))
    said = text_of(plan, is_wide=True)
    assert all(f"default/p-{number}" in said for number in range(12))
    assert "requests with DaemonSets: cpu 1200m" in said
    assert "    instance types: " in said


def test_wide_output_states_requirements_in_the_words_of_manifests() -> None:
    stated = (
        NodeSelectorRequirement("karpenter.sh/capacity-type", "In", ("on-demand", "spot"), 2),
        NodeSelectorRequirement("team", "Exists"),
    )
    said = text_of(Plan((msgspec.structs.replace(NODE, requirements=stated),)), is_wide=True)
    assert (
        "    requirements: karpenter.sh/capacity-type In [on-demand, spot] minValues 2; team Exists"
        in said.splitlines()
    )


def test_lines_fold_to_the_width_of_a_terminal_and_nowhere_else() -> None:
    line = "    why: the cheapest of 100 types with room for its pods; 99 alternatives, next c7g.large $0.0725/h"
    assert Terminal().show([line]) == line
    folded = Terminal(width=60).show([line]).splitlines()
    assert all(len(part) <= 60 for part in folded)
    assert folded[1].startswith("      ")
    assert " ".join(part.strip() for part in folded) == line.strip()


def test_headings_fold_as_other_lines_do() -> None:
    terminal = Terminal(40, has_color=True)
    summary = "20 pods: 19 placed on 3 new nodes, 1 pending; $0.9972/h, $728 a month"
    folded = terminal.show([terminal.heading(summary)]).splitlines()
    assert len(folded) == 2
    assert all(part.startswith("\033[1m") and part.endswith("\033[0m") for part in folded)
    assert all(len(part) <= 40 + len("\033[1m\033[0m") for part in folded)


def test_headings_are_bold_on_a_terminal_with_colors_only() -> None:
    assert Terminal().heading("Pods:") == "Pods:"
    assert Terminal(80, has_color=True).heading("Pods:") == "\033[1mPods:\033[0m"
