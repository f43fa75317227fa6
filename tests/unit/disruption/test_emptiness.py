"""Which nodes are empty and may go."""

from datetime import timedelta

import msgspec
import pytest

from spotwright.disruption.emptiness import find_empty_nodes, stale_consolidation_timers
from spotwright.disruption.interruption import eviction_start, mark_deleting, mark_interrupted
from spotwright.model import labels
from spotwright.model.karpenter.consolidation_timer import consolidatable_at, pods_digest
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.node import instance_id
from spotwright.model.snapshot import Snapshot
from spotwright.scheduling.plan import NodeAssignment, Plan
from spotwright.simulation import builders
from tests.unit.disruption.builders import LONG_AGO, NOBODY, NOW, claim, node, on, snapshot


def why(observed: Snapshot, plan: Plan | None = None, locked: frozenset[str] = NOBODY) -> str:
    (blocked,) = find_empty_nodes(observed, plan or Plan(), locked=locked).blocked
    return blocked.reason


def test_an_empty_node_may_go() -> None:
    assert find_empty_nodes(snapshot("a", "b"), Plan(), locked=NOBODY).claims == ("a", "b")


def test_a_node_with_a_pod_is_not_even_considered() -> None:
    emptiness = find_empty_nodes(snapshot("a", pods=(on("a", builders.pod("p")),)), Plan(), locked=NOBODY)
    assert (emptiness.claims, emptiness.blocked) == ((), ())


def test_daemons_finished_and_costless_pods_keep_nothing() -> None:
    free = builders.pod("free", annotations={"controller.kubernetes.io/pod-deletion-cost": "-2147483647"})
    pods = (on("a", builders.daemonset_pod("agent", "node-a")), on("a", free))
    nodeclaim = claim(
        "a", metadata=msgspec.structs.replace(claim("a").metadata, annotations={labels.PODS_SEEN: pods_digest(pods)})
    )
    assert find_empty_nodes(snapshot("a", pods=pods, nodeclaims=(nodeclaim,)), Plan(), locked=NOBODY).claims == ("a",)


@pytest.mark.parametrize(
    ("observed", "reason"),
    [
        (snapshot("a", nodes=()), "does not have an associated node"),
        (snapshot("a", nodes=(node("a", metadata=ObjectMeta("node-a")),)), "isn't initialized"),
        (snapshot("a", nodepools=()), "NodePool not found (NodePool=default)"),
        (snapshot("a", nodepools=(builders.nodepool(consolidate_after_seconds=None),)), "consolidation is disabled"),
        (snapshot("a", nodepools=(builders.nodepool(consolidate_after_seconds=7200),)), "not consolidatable before"),
        (
            snapshot(
                "a",
                nodes=(
                    node(
                        "a",
                        metadata=ObjectMeta(
                            "node-a",
                            labels={labels.INITIALIZED: "true"},
                            annotations={labels.DO_NOT_DISRUPT: "true"},
                        ),
                    ),
                ),
            ),
            "do-not-disrupt annotation",
        ),
        (
            snapshot(
                "a",
                nodeclaims=(
                    claim(
                        "a",
                        conditions=(
                            Condition("Initialized", "True", last_transition_time=NOW - timedelta(seconds=19)),
                        ),
                    ),
                ),
            ),
            "nominated",
        ),
        (
            snapshot("a", pods=(builders.daemonset_pod("d", "node-a", annotations={labels.DO_NOT_DISRUPT: "true"}),)),
            "Pod=kube-system/d",
        ),
    ],
)
def test_what_holds_an_empty_node_back(observed: Snapshot, reason: str) -> None:
    assert reason in why(observed)


def test_a_node_that_pending_pods_would_go_to_is_kept() -> None:
    plan = Plan(existing_nodes=(NodeAssignment("node-a", ("default/p",)),))
    assert "nominated" in why(snapshot("a"), plan)


def test_a_locked_claim_is_left_out_without_a_word() -> None:
    assert find_empty_nodes(snapshot("a"), Plan(), locked=frozenset({"a"})).blocked == ()


def test_a_pod_disruption_budget_keeps_a_node_whose_pods_are_worth_nothing() -> None:
    """A pod of the least deletion cost does not keep its node, a budget that forbids its eviction does."""
    annotations = {"controller.kubernetes.io/pod-deletion-cost": "-2147483647", labels.FOLLOW: "false"}
    pods = (on("a", builders.pod("free-0", annotations=annotations)),)
    metadata = msgspec.structs.replace(claim("a").metadata, annotations={labels.PODS_SEEN: pods_digest(pods)})
    guarded = snapshot("a", pods=pods, nodeclaims=(claim("a", metadata=metadata),))
    assert find_empty_nodes(guarded, Plan(), locked=NOBODY).claims == ("a",)
    forbids = builders.pod_disruption_budget("guard", "free", disruptions_allowed=0)
    kept = msgspec.structs.replace(guarded, pod_disruption_budgets=(forbids,))
    assert find_empty_nodes(kept, Plan(), locked=NOBODY).claims == ()
    assert why(kept) == "pdb prevents pod evictions (PodDisruptionBudget=default/guard)"
    allows = builders.pod_disruption_budget("guard", "free", disruptions_allowed=1)
    free = msgspec.structs.replace(guarded, pod_disruption_budgets=(allows,))
    assert find_empty_nodes(free, Plan(), locked=NOBODY).claims == ("a",)


def test_budgets_split_those_who_go_from_those_who_wait() -> None:
    pool = builders.nodepool(budgets=(Budget("2"),))
    emptiness = find_empty_nodes(snapshot("a", "b", "c", nodepools=(pool,)), Plan(), locked=NOBODY)
    assert (emptiness.claims, emptiness.waiting) == (("a", "b"), ("c",))


def test_nodes_under_way_use_the_budget_up() -> None:
    pool = builders.nodepool(budgets=(Budget("2"),))
    emptiness = find_empty_nodes(snapshot("a", "b", "c", nodepools=(pool,)), Plan(), locked=frozenset({"c"}))
    assert emptiness.claims == ("a",)


def test_a_pod_event_that_was_not_recorded_counts_as_now() -> None:
    metadata = msgspec.structs.replace(claim("a").metadata, annotations={labels.PODS_SEEN: "somebody"})
    pool = builders.nodepool(consolidate_after_seconds=30)
    observed = snapshot("a", nodepools=(pool,), nodeclaims=(claim("a", metadata=metadata),))
    assert "not consolidatable" in why(observed)
    assert stale_consolidation_timers(observed) == ("a",)


@pytest.mark.parametrize(("after", "event", "at"), [(60, None, 60), (0, None, 0), (60, 30, 90), (None, None, None)])
def test_consolidatable_after_the_last_pod_event_or_initialization(
    after: int | None, event: int | None, at: int | None
) -> None:
    last = None if event is None else LONG_AGO + timedelta(seconds=event)
    due = consolidatable_at(claim("a", last_pod_event_time=last), builders.nodepool(consolidate_after_seconds=after))
    assert due == (None if at is None else LONG_AGO + timedelta(seconds=at))


def test_a_static_pool_consolidates_nothing() -> None:
    assert consolidatable_at(claim("a"), builders.nodepool(replicas=1)) is None


def test_followers_alone_keep_nothing_but_with_others_they_do() -> None:
    dns = on("a", builders.pod("dns", namespace="kube-system", labels={"k8s-app": "kube-dns"}))
    metadata = msgspec.structs.replace(claim("a").metadata, annotations={labels.PODS_SEEN: pods_digest([dns])})
    alone = snapshot("a", pods=(dns,), nodeclaims=(claim("a", metadata=metadata),))
    assert find_empty_nodes(alone, Plan(), locked=NOBODY).claims == ("a",)
    busy = msgspec.structs.replace(alone, pods=(dns, on("b", builders.pod("p"))), nodes=(*alone.nodes, node("b")))
    busy = msgspec.structs.replace(busy, nodeclaims=(*alone.nodeclaims, claim("b")))
    assert find_empty_nodes(busy, Plan(), locked=NOBODY).claims == ()
    foreign = msgspec.structs.replace(alone, nodes=(*alone.nodes, builders.unmanaged_node("managed")))
    assert find_empty_nodes(foreign, Plan(), locked=NOBODY).claims == ()


def test_an_interrupted_node_counts_as_leaving() -> None:
    marked = mark_deleting(snapshot("a", "b"), {instance_id(claim("a").provider_id)})
    assert [nodeclaim.metadata.deletion_timestamp for nodeclaim in marked.nodeclaims] == [NOW, None]
    assert [node.metadata.deletion_timestamp for node in marked.nodes] == [NOW, None]


def test_an_interrupted_claim_and_its_node_are_leaving_whatever_a_snapshot_shows_of_them() -> None:
    """It shows the claim with another instance, and its Node with that of another claim."""
    shown = snapshot("a", "b", nodeclaims=(claim("a", provider_id="aws:///z/i-other", node_name=""), claim("b")))
    nodes = tuple(msgspec.structs.replace(node, provider_id=claim("b").provider_id) for node in shown.nodes)
    marked = mark_interrupted(msgspec.structs.replace(shown, nodes=nodes), [claim("a")])
    leaving = {found.name: found.metadata.deletion_timestamp for found in marked.nodeclaims}
    assert (leaving, len(marked.nodeclaims)) == ({"a": NOW, "b": None}, 2)
    assert [node.metadata.deletion_timestamp for node in marked.nodes] == [NOW, None]


def test_evictions_begin_when_the_longest_grace_still_fits() -> None:
    deadline = NOW + timedelta(seconds=120)
    pods = [
        builders.pod("a", termination_grace_period_seconds=30),
        builders.pod("b", termination_grace_period_seconds=60),
    ]
    assert eviction_start(pods, (), deadline, NOW) == NOW + timedelta(seconds=50)
    assert eviction_start([builders.pod("a", termination_grace_period_seconds=600)], (), deadline, NOW) == NOW
