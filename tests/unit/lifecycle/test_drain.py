"""Draining: tiers, deadlines, and who is waited for."""

from datetime import UTC, datetime, timedelta

import msgspec
import pytest
from hypothesis import given as generated
from hypothesis import strategies as st

from spotwright.lifecycle.drain import Drain, drain, evicts_before_plan, seconds_needed, tier, tier_deadlines
from spotwright.model import labels
from spotwright.model.kubernetes import eviction
from spotwright.model.kubernetes.meta import ObjectMeta, OwnerReference
from spotwright.model.kubernetes.pod import Pod, PodDisruptionBudget
from spotwright.model.kubernetes.taints import Toleration
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.simulation import builders

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
CRITICAL = "system-cluster-critical"


def daemon(name: str, **fields: object) -> Pod:
    return builders.daemonset_pod(name, "node", tolerations=(), **fields)


def deleting(pod: Pod, seconds: float) -> Pod:
    """The pod with a deletion time ``seconds`` from now."""
    about = msgspec.structs.replace(pod.metadata, deletion_timestamp=NOW + timedelta(seconds=seconds))
    return msgspec.structs.replace(pod, metadata=about)


def evicted(*pods: Pod, deadline: datetime | None = None) -> list[str]:
    return [pod.metadata.name for pod in drain(pods, deadline=deadline, now=NOW).evict]


def test_tiers_follow_one_another() -> None:
    plain, agent = builders.pod("plain"), daemon("agent")
    dns, proxy = (
        builders.pod("dns", priority_class_name=CRITICAL),
        daemon("proxy", priority_class_name="system-node-critical"),
    )
    assert evicted(proxy, dns, agent, plain) == ["plain"]
    assert evicted(proxy, dns, agent) == ["agent"]
    assert evicted(proxy, dns) == ["dns"]
    assert evicted(proxy) == ["proxy"]


def test_the_next_tier_waits_for_pods_that_are_still_terminating() -> None:
    result = drain([deleting(builders.pod("plain"), 20), daemon("agent")], deadline=None, now=NOW)
    assert result.evict == ()
    assert len(result.waiting) == 2


def test_a_stuck_pod_is_not_waited_for() -> None:
    assert drain([deleting(builders.pod("stuck"), -61)], deadline=None, now=NOW) == Drain()


@pytest.mark.parametrize(
    "pod",
    [
        builders.pod("done", phase="Succeeded"),
        builders.pod("tolerates", tolerations=(Toleration(labels.DISRUPTED, "Equal", "", "NoSchedule"),)),
        builders.pod("tolerates-all", tolerations=(Toleration(operator="Exists"),)),
        builders.pod("static", owner_references=(OwnerReference("Node", "node"),)),
    ],
)
def test_pods_that_do_not_hold_a_node(pod: Pod) -> None:
    assert drain([pod], deadline=None, now=NOW) == Drain()


def test_tolerating_another_taint_does_not_help() -> None:
    assert evicted(builders.pod("p", tolerations=(Toleration("node.kubernetes.io/unschedulable", "Exists"),))) == ["p"]


def test_do_not_disrupt_is_waited_for_but_not_evicted() -> None:
    result = drain([builders.pod("p", annotations={labels.DO_NOT_DISRUPT: "true"})], deadline=None, now=NOW)
    assert (result.evict, len(result.waiting)) == ((), 1)


@pytest.mark.parametrize(
    ("left", "grace", "forced"),
    [(300, 300, None), (299, 300, 299), (59, 60, 59), (61, 60, None), (-10, 60, 1), (0.4, 60, 1), (200, 600, 200)],
)
def test_a_pod_is_deleted_when_its_grace_would_outlast_the_deadline(
    left: float, grace: int, forced: int | None
) -> None:
    pod = builders.pod("p", annotations={labels.DO_NOT_DISRUPT: "true"}, termination_grace_period_seconds=grace)
    result = drain([pod], deadline=NOW + timedelta(seconds=left), now=NOW)
    assert [forced_delete.grace_seconds for forced_delete in result.delete] == ([] if forced is None else [forced])


def test_force_reaches_across_tiers() -> None:
    slow = builders.pod("slow", priority_class_name=CRITICAL, termination_grace_period_seconds=600)
    result = drain([builders.pod("plain"), slow], deadline=NOW + timedelta(seconds=300), now=NOW)
    assert [forced_delete.pod.metadata.name for forced_delete in result.delete] == ["slow"]
    assert [pod.metadata.name for pod in result.evict] == ["plain"]


def test_a_terminating_pod_is_only_cut_short() -> None:
    deadline = NOW + timedelta(seconds=30)
    assert drain([deleting(builders.pod("p"), 20)], deadline=deadline, now=NOW).delete == ()
    assert drain([deleting(builders.pod("p"), 40)], deadline=deadline, now=NOW).delete[0].grace_seconds == 30


def test_the_next_forced_deletion_is_announced() -> None:
    pods = [
        builders.pod("a", termination_grace_period_seconds=60),
        builders.pod("b", termination_grace_period_seconds=10),
    ]
    result = drain(pods, deadline=NOW + timedelta(seconds=100), now=NOW)
    assert result.next_forced_deletion == NOW + timedelta(seconds=40)


PODS = st.builds(
    lambda number, grace, critical, of_daemonset, deletion, annotated: Pod(
        metadata=ObjectMeta(
            f"p{number}", "ns", uid=f"u{number}",
            deletion_timestamp=None if deletion is None else NOW + timedelta(seconds=deletion),
            annotations={labels.DO_NOT_DISRUPT: "true"} if annotated else {},
            owner_references=(OwnerReference("DaemonSet", "d"),) if of_daemonset else (),
        ),
        termination_grace_period_seconds=grace,
        priority_class_name=CRITICAL if critical else "",
        phase="Running",
    ),
    st.integers(0, 5), st.integers(0, 400), st.booleans(), st.booleans(),
    st.one_of(st.none(), st.integers(-120, 400)), st.booleans(),
)  # fmt: skip


@generated(st.lists(PODS, max_size=6, unique_by=lambda pod: pod.key), st.one_of(st.none(), st.integers(-50, 500)))
def test_laws_of_a_drain(pods: list[Pod], left: int | None) -> None:
    deadline = None if left is None else NOW + timedelta(seconds=left)
    result = drain(pods, deadline=deadline, now=NOW)
    assert result == drain(list(reversed(pods)), deadline=deadline, now=NOW)
    assert {tier(pod) for pod in result.evict} <= {min((tier(pod) for pod in result.waiting), default=0)}
    assert all(eviction.is_evictable(pod, NOW) for pod in result.evict)
    assert all(forced_delete.grace_seconds >= 1 for forced_delete in result.delete)
    assert not ({pod.key for pod in result.evict} & {forced_delete.pod.key for forced_delete in result.delete})
    assert not result.delete or deadline is not None


@generated(st.lists(PODS, max_size=6, unique_by=lambda pod: pod.key), st.integers(-50, 500))
def test_laws_of_pods_that_are_told_to_stop_in_turn(pods: list[Pod], left: int) -> None:
    """Nobody is told later, or has less time, than without turns; and nobody has more than it asks for."""
    deadline = NOW + timedelta(seconds=left)
    at_once = drain(pods, deadline=deadline, now=NOW)
    in_turn = drain(pods, deadline=deadline, now=NOW, tier_deadlines=tier_deadlines(pods, deadline, NOW))
    told = {forced.pod.key: forced.grace_seconds for forced in in_turn.delete}
    assert all(told[forced.pod.key] == forced.grace_seconds for forced in at_once.delete)
    asked = {pod.key: max(1, pod.termination_grace_period_seconds) for pod in pods}
    assert all(seconds <= asked[key] for key, seconds in told.items())
    assert in_turn.waiting == at_once.waiting


def test_a_pod_that_is_kept_is_looked_at_again_when_its_turn_ends() -> None:
    kept = builders.pod("kept", termination_grace_period_seconds=60, annotations={labels.DO_NOT_DISRUPT: "true"})
    dns = builders.pod("dns", termination_grace_period_seconds=40, priority_class_name=CRITICAL)
    deadline, pods = NOW + timedelta(seconds=120), [kept, dns]
    result = drain(pods, deadline=deadline, now=NOW, tier_deadlines=tier_deadlines(pods, deadline, NOW))
    assert result.next_forced_deletion == NOW + timedelta(seconds=20)


def test_pods_of_a_later_tier_have_their_time_after_pods_that_are_kept() -> None:
    kept = builders.pod("kept", termination_grace_period_seconds=60, annotations={labels.DO_NOT_DISRUPT: "true"})
    dns = builders.pod("dns", termination_grace_period_seconds=40, priority_class_name=CRITICAL)
    for left, told in ((101, []), (99, ["kept"]), (61, ["kept"])):
        deadline = NOW + timedelta(seconds=left)
        result = drain(
            [kept, dns], deadline=deadline, now=NOW, tier_deadlines=tier_deadlines([kept, dns], deadline, NOW)
        )
        assert [(forced.pod.metadata.name, forced.grace_seconds) for forced in result.delete] == [(x, 60) for x in told]
    assert drain([kept, dns], deadline=NOW + timedelta(seconds=61), now=NOW).delete == ()


@pytest.mark.parametrize(
    "agent", [daemon("agent", termination_grace_period_seconds=600), deleting(daemon("agent"), 20)]
)
def test_no_turn_is_kept_for_pods_that_are_told_at_once(agent: Pod) -> None:
    """Their time is running: nobody has more of it because another pod stops as early, whatever its budgets say."""
    kept = builders.pod("kept", annotations={labels.DO_NOT_DISRUPT: "true"})
    for left, told in ((59, []), (29, ["kept"])):
        deadline = NOW + timedelta(seconds=left)
        pods = [kept, agent]
        result = drain(pods, deadline=deadline, now=NOW, tier_deadlines=tier_deadlines(pods, deadline, NOW))
        assert [forced.pod.metadata.name for forced in result.delete if forced.pod != agent] == told


@pytest.mark.parametrize(
    ("pods", "left", "at_once"),
    [
        ([builders.pod("web")], None, False),
        ([builders.pod("web", termination_grace_period_seconds=30)], 34, False),
        ([builders.pod("web", termination_grace_period_seconds=30)], 32, True),
        ([daemon("agent")], None, True),
        ([builders.pod("bare", owner_references=())], None, True),
        ([builders.pod("web", annotations={labels.DO_NOT_DISRUPT: "true"})], None, True),
        ([deleting(builders.pod("web"), 20)], None, True),
        ([builders.pod("web"), deleting(builders.pod("told"), 90)], 60, True),
    ],
)
def test_evictions_wait_for_a_plan_where_pods_need_another_node_and_there_is_time(
    pods: list[Pod], left: int | None, at_once: bool
) -> None:
    deadline = None if left is None else NOW + timedelta(seconds=left)
    drained = drain(pods, deadline=deadline, now=NOW)
    assert evicts_before_plan(drained, deadline=deadline, now=NOW) is at_once


def of(owner: str, name: str, grace_seconds: int = 30, *, ready: bool = True) -> Pod:
    """A pod of the ReplicaSet ``owner``, which the budget of the same name selects."""
    pod = builders.pod(name, termination_grace_period_seconds=grace_seconds, labels={"app": owner}, is_ready=ready)
    owners = (OwnerReference(kind="ReplicaSet", name=owner, uid=owner),)
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, owner_references=owners))


def test_pods_that_are_not_ready_slow_ones_and_single_replicas_go_first() -> None:
    """A budget may let only the first go, and makes an exception only for pods that are not Ready."""
    pods = [of("a", "a-1"), of("a", "a-2"), of("b", "only"), of("c", "slow", 90), of("d", "sick", ready=False)]
    assert evicted(*pods) == ["sick", "slow", "only", "a-1", "a-2"]


def budget(owner: str, allowed: int) -> PodDisruptionBudget:
    return msgspec.structs.replace(builders.pod_disruption_budget(owner, owner), disruptions_allowed=allowed)


@pytest.mark.parametrize(
    ("pods", "allowed", "seconds"),
    [
        ((), 1, 0),
        ((of("b", "b-1", 30), of("b", "b-2", 60)), 1, 60),
        ((of("a", "a-1", 30), of("a", "a-2", 60)), 2, 60),
        ((of("a", "a-1", 30), of("a", "a-2", 60)), 1, 100),
        ((of("a", "a-1", 30), of("a", "a-2", 60), of("b", "b-1", 300)), 1, 300),
        ((of("a", "a-1", 30),), 0, 30),
        ((of("b", "b-1", 30), daemon("agent", termination_grace_period_seconds=20)), 1, 50),
    ],
)
def test_how_long_pods_need_to_stop_in_order(pods: tuple[Pod, ...], allowed: int, seconds: int) -> None:
    assert seconds_needed(pods, (budget("a", allowed),), NOW) == seconds


@pytest.mark.parametrize(
    "unreadable",
    [
        PodDisruptionBudget(ObjectMeta("wrong", "default"), (), read_error="spec.selector: Expected `object`"),
        PodDisruptionBudget(ObjectMeta("wrong", "default"), (NodeSelectorRequirement("app", "Like", ("a",)),)),
    ],
)
def test_a_budget_that_cannot_be_read_makes_no_drain_begin_earlier(unreadable: PodDisruptionBudget) -> None:
    """Nobody knows which pods it is about: they count as where budgets cannot be listed at all."""
    pods = [of("a", "a-1", 30), of("a", "a-2", 60), of("b", "b-1", 40)]
    assert eviction.select_budgets(pods[0], [unreadable])[0].read_error
    assert seconds_needed(pods, (unreadable,), NOW) == 60
    assert seconds_needed(pods, (unreadable, budget("a", 1)), NOW) == 100


@generated(
    st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 100)), max_size=8), st.integers(0, 5), st.integers(0, 5)
)
def test_a_budget_that_allows_more_never_takes_longer_and_no_pod_takes_less_than_itself(
    graces: list[tuple[str, int]], allowed: int, more: int
) -> None:
    pods = [of(owner, f"{owner}-{number}", grace) for number, (owner, grace) in enumerate(graces)]
    needed = seconds_needed(pods, (budget("a", allowed),), NOW)
    assert seconds_needed(pods, (budget("a", allowed + more),), NOW) <= needed
    assert needed >= max((grace for _, grace in graces), default=0)
