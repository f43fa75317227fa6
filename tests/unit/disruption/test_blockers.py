"""What stands in the way of a disruption, and who is told."""

from datetime import datetime

import msgspec
import pytest

from spotwright.disruption.blockers import NOMINATION_WINDOW, annotation_events, blocked_events, nominated_until
from spotwright.model import labels
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.kubernetes.meta import EARLIEST_TIME, Condition, OwnerReference
from spotwright.model.kubernetes.pod import Pod
from spotwright.scheduling.plan import NodeAssignment, Plan
from spotwright.simulation import builders
from tests.unit.disruption.builders import LONG_AGO, NOBODY, NOW, claim, node, on, snapshot


def blocked_objects(
    *args: object, plan: Plan | None = None, locked: frozenset[str] = NOBODY
) -> set[tuple[str, str, str, str]]:
    (observed,) = args
    blocked = blocked_events(observed, plan or Plan(), locked=locked, reason="Empty")  # type: ignore[arg-type]
    return {
        (blocked_event.kind, blocked_event.about.name, blocked_event.event.reason, blocked_event.event.message)
        for blocked_event in blocked
    }


def annotations_told(*pods: Pod) -> list[tuple[str, str, str, str]]:
    told = annotation_events(snapshot("a", pods=pods))
    return [(event.kind, event.about.name, event.event.reason, event.event.message) for event in told]


def test_nothing_is_told_of_nodes_that_may_go() -> None:
    assert blocked_objects(snapshot("a", pods=(on("a", builders.pod("p")),))) == set()


def test_claim_and_node_are_told_of_the_annotation() -> None:
    kept = msgspec.structs.replace(node("a").metadata, annotations={labels.DO_NOT_DISRUPT: "true"})
    message = "Disruption is blocked through the karpenter.sh/do-not-disrupt annotation"
    assert blocked_objects(snapshot("a", nodes=(node("a", metadata=kept),))) == {
        ("nodeclaims", "a", "DisruptionBlocked", message),
        ("nodes", "node-a", "DisruptionBlocked", message),
    }


def test_pods_that_forbid_it_are_named_on_busy_nodes_too() -> None:
    stays = on("a", builders.pod("p", annotations={labels.DO_NOT_DISRUPT: "true"}))
    assert {event[3] for event in blocked_objects(snapshot("a", pods=(stays,)))} == {
        "Pod has the karpenter.sh/do-not-disrupt annotation (Pod=default/p)"
    }


@pytest.mark.parametrize("value", ["10 minutes", "True", "-5m", "0s", "5", "x" * 300])
def test_a_pod_whose_annotation_says_nothing_is_told_what_is_allowed(value: str) -> None:
    goes = on("a", builders.pod("p", annotations={labels.DO_NOT_DISRUPT: value}))
    ((kind, name, reason, message),) = annotations_told(goes)
    assert (kind, name, reason) == ("pods", "p", "InvalidDoNotDisruptAnnotation")
    assert message == (
        f'karpenter.sh/do-not-disrupt "{value[:100]}" is ignored: allowed are "true" and a positive duration such as'
        ' "30m"'
    )


def test_of_the_pods_of_a_controller_one_is_told() -> None:
    """Their template is to be corrected; and each event of thousands of pods would keep those of nodes waiting."""
    forbids = {labels.DO_NOT_DISRUPT: "soon"}
    other_values = {labels.DO_NOT_DISRUPT: "later"}
    another = (OwnerReference("ReplicaSet", "another", "uid-another"),)
    pods = (
        *(on("a", builders.pod(name, annotations=forbids)) for name in ("c", "b", "d")),
        on("a", builders.pod("e", annotations=other_values)),
        on("a", builders.pod("f", annotations=forbids, owner_references=another)),
        *(on("a", builders.pod(name, annotations=forbids, owner_references=())) for name in ("g", "h")),
    )
    assert {name for _, name, _, _ in annotations_told(*pods)} == {"b", "e", "f", "g", "h"}


@pytest.mark.parametrize("value", ["", "false"])
def test_a_pod_that_says_no_is_told_nothing(value: str) -> None:
    goes = on("a", builders.pod("p", annotations={labels.DO_NOT_DISRUPT: value}))
    assert annotations_told(goes) == []


@pytest.mark.parametrize("value", ["soon", "1m", "2h"])
def test_pods_of_nodes_that_are_not_ours_are_told_nothing(value: str) -> None:
    pod = builders.pod("p", annotations={labels.DO_NOT_DISRUPT: value}, node_name="elsewhere")
    assert annotations_told(msgspec.structs.replace(pod, start_time=LONG_AGO)) == []


UNTIL = "The karpenter.sh/do-not-disrupt grace period will elapse at 2026-01-01T12:00:01Z"
ELAPSED = "The karpenter.sh/do-not-disrupt grace period has elapsed: the annotation keeps the pod's node no longer"


@pytest.mark.parametrize(
    ("value", "told"),
    [
        ("60m1s", [("pods", "p", "DoNotDisruptUntil", UNTIL)]),
        ("60m", [("pods", "p", "DoNotDisruptGracePeriodElapsed", ELAPSED)]),
        ("45m1s", [("pods", "p", "DoNotDisruptGracePeriodElapsed", ELAPSED)]),
        ("45m", []),
        ("true", []),
    ],
)
def test_a_duration_is_told_until_it_ends_and_for_fifteen_minutes_after_that(
    value: str, told: list[tuple[str, str, str, str]]
) -> None:
    """The pod started an hour ago."""
    pod = on("a", builders.pod("p", annotations={labels.DO_NOT_DISRUPT: value}))
    assert annotations_told(pod) == told
    keeps = "Pod has the karpenter.sh/do-not-disrupt annotation (Pod=default/p)"
    blocked = {message for *_, message in blocked_objects(snapshot("a", pods=(pod,)))}
    assert (keeps in blocked) == (value in ("60m1s", "true"))


def test_of_a_pod_that_has_not_started_or_is_going_no_end_is_known() -> None:
    pod = on("a", builders.pod("p", annotations={labels.DO_NOT_DISRUPT: "2h"}))
    assert annotations_told(msgspec.structs.replace(pod, start_time=None)) == []
    about = msgspec.structs.replace(pod.metadata, deletion_timestamp=NOW)
    assert annotations_told(msgspec.structs.replace(pod, metadata=about)) == []


def test_a_node_that_waits_for_pods_is_nominated() -> None:
    plan = Plan(existing_nodes=(NodeAssignment("node-a", ("default/p",)),))
    assert {event[3] for event in blocked_objects(snapshot("a"), plan=plan)} == {"Node is nominated for a pending pod"}


def test_disabled_consolidation_is_unconsolidatable_and_nothing_worse() -> None:
    pools = (builders.nodepool(consolidate_after_seconds=None, budgets=(Budget("100%"),)),)
    assert {(event[2], event[3]) for event in blocked_objects(snapshot("a", nodepools=pools))} == {
        ("Unconsolidatable", 'NodePool "default" has consolidation disabled')
    }


def test_a_pool_whose_budgets_allow_nothing_says_so() -> None:
    pools = (builders.nodepool(budgets=(Budget("0"),)),)
    message = "No allowed disruptions for disruption reason Empty due to blocking budget"
    assert blocked_objects(snapshot("a", nodepools=pools)) == {("nodepools", "default", "DisruptionBlocked", message)}


def test_whoever_goes_already_or_is_held_by_a_command_is_not_spoken_of() -> None:
    fresh = claim("b", conditions=())
    assert blocked_objects(snapshot("a", nodeclaims=(fresh,)), locked=frozenset({"b"})) == set()


def test_a_node_counts_as_nominated_from_when_it_is_initialized() -> None:
    def until(*conditions: Condition) -> datetime:
        return nominated_until(msgspec.structs.replace(claim("a"), conditions=conditions))

    assert until(Condition("Initialized", "True", last_transition_time=NOW)) == NOW + NOMINATION_WINDOW
    assert until(Condition("Initialized", "Unknown", last_transition_time=NOW)) == EARLIEST_TIME
    assert until(Condition("Initialized", "True")) == until() == EARLIEST_TIME
