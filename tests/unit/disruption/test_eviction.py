"""What may happen to a pod when its node goes."""

from datetime import UTC, datetime, timedelta
from fractions import Fraction

import msgspec
import pytest

from spotwright.model import labels
from spotwright.model.kubernetes import eviction
from spotwright.model.kubernetes.meta import OwnerReference
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.simulation import builders

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)


def annotated(value: str, *, started: datetime | None = NOW) -> Pod:
    return builders.pod("p", annotations={labels.DO_NOT_DISRUPT: value}, start_time=started)


@pytest.mark.parametrize(
    ("value", "age", "holds"),
    [
        ("true", 10**6, True), ("false", 0, False), ("1m", 59, True), ("1m", 60, False), ("3m", 120, True),
        ("1h30m", 5399, True), ("1.5h", 5401, False), ("500ms", 0, True), ("invalid-format", 0, False),
        ("-5m", 0, False), ("0s", 0, False), ("", 0, False), ("5", 0, False),
    ],
)  # fmt: skip
def test_do_not_disrupt_is_true_or_a_duration_from_the_pods_start(value: str, age: int, holds: bool) -> None:
    assert eviction.is_do_not_disrupt_active(annotated(value), NOW + timedelta(seconds=age)) is holds


def test_a_duration_on_a_pod_that_never_started_holds() -> None:
    assert eviction.is_do_not_disrupt_active(annotated("1m", started=None), NOW)


@pytest.mark.parametrize(
    ("deletion_cost", "priority", "cost"),
    [
        ("", 0, Fraction(1)), ("2147483647", 0, Fraction(10)), ("-2147483647", 0, Fraction(-10)),
        ("-134217728", 0, Fraction(0)), ("", 1_000_000_000, Fraction(10)), ("many", 0, Fraction(1)),
    ],
)  # fmt: skip
def test_cost_of_an_eviction(deletion_cost: str, priority: int, cost: Fraction) -> None:
    given_cost = {labels.POD_DELETION_COST: deletion_cost} if deletion_cost else {}
    assert eviction.eviction_cost(builders.pod("p", annotations=given_cost, priority=priority)) == cost


@pytest.mark.parametrize(
    ("pod", "moves"),
    [
        (builders.pod("plain"), True),
        (builders.pod("done", phase="Failed"), False),
        (builders.daemonset_pod("agent", "node"), False),
        (builders.pod("static", owner_references=(OwnerReference("Node", "node"),)), False),
        (builders.pod("set-0", owner_references=(OwnerReference("StatefulSet", "set"),)), True),
    ],
)
def test_which_pods_need_another_place(pod: Pod, moves: bool) -> None:
    assert eviction.is_reschedulable(pod) is moves


def test_a_terminating_pod_comes_back_only_from_a_stateful_set() -> None:
    def terminating(pod: Pod) -> Pod:
        return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, deletion_timestamp=NOW))

    assert not eviction.is_reschedulable(terminating(builders.pod("plain")))
    assert eviction.is_reschedulable(
        terminating(builders.pod("set-0", owner_references=(OwnerReference("StatefulSet", "set"),)))
    )


def test_a_budget_forbids_when_it_allows_nothing_now() -> None:
    pod = builders.pod("inflate-1", is_ready=True)
    assert "pdb prevents pod evictions" in eviction.eviction_refusal(
        pod, [builders.pod_disruption_budget("b", "inflate")]
    )
    assert eviction.eviction_refusal(pod, [builders.pod_disruption_budget("b", "inflate", disruptions_allowed=1)]) == ""
    assert eviction.eviction_refusal(pod, [builders.pod_disruption_budget("b", "other")]) == ""
    assert eviction.eviction_refusal(pod, [builders.pod_disruption_budget("b", "inflate", namespace="elsewhere")]) == ""


@pytest.mark.parametrize("expressions", [("Near",), ("In", "Near"), ("Near", "In")])
def test_a_budget_whose_selector_cannot_be_read_allows_no_eviction_in_its_namespace(
    expressions: tuple[str, ...],
) -> None:
    """Wherever the expression stands, and whatever the budget says it allows. Nobody else's pods are kept."""
    selector = tuple(NodeSelectorRequirement("tier", operator, ("x",)) for operator in expressions)
    budget = msgspec.structs.replace(
        builders.pod_disruption_budget("b", "other"), selector=selector, disruptions_allowed=5
    )
    pod = builders.pod("p", is_ready=True)
    assert eviction.eviction_refusal(pod, [budget]) == "pdb prevents pod evictions (PodDisruptionBudget=default/b)"
    elsewhere = msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, namespace="elsewhere"))
    assert eviction.eviction_refusal(elsewhere, [budget]) == ""


def test_two_budgets_forbid_even_when_both_allow() -> None:
    both = [builders.pod_disruption_budget(name, "inflate", disruptions_allowed=9) for name in ("a", "b")]
    assert eviction.eviction_refusal(builders.pod("inflate-1"), both) == "eviction does not support multiple PDBs"


def test_an_unhealthy_pod_may_always_go_where_the_budget_says_so() -> None:
    budget = builders.pod_disruption_budget("b", "inflate", unhealthy_pod_eviction_policy="AlwaysAllow")
    assert eviction.eviction_refusal(builders.pod("inflate-1", is_ready=False), [budget]) == ""
    assert eviction.eviction_refusal(builders.pod("inflate-1", is_ready=True), [budget])
