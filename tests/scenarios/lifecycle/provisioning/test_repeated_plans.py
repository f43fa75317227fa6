"""Pods that nothing can place: without a forwarder the cluster is not listed again and again for the same plan."""

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest

from spotwright.errors import Unavailable
from spotwright.model import labels
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.pod import Pod
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.planning.repeated_plan import LONGEST_PAUSE_SECONDS, PAUSE_PER_SECOND, digest_of
from spotwright.workflows.provision.workflow import provision
from spotwright.workflows.sweep.poll import POLL_SECONDS, poll
from tests.scenarios.lifecycle.conftest import fresh_world

HUGE = builders.pod("huge", cpu_millicores=10_000_000)
LIST_SECONDS = 12
PAUSE_SECONDS = LIST_SECONDS * PAUSE_PER_SECOND


@pytest.fixture
def large() -> World:
    """A cluster whose pods take long to list, without a forwarder, with a pod that fits no instance type."""
    world = fresh_world()
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(60, until=lambda: bool(world.running_pods()))
    world.run(30)
    world.forwarder_runs = False
    world.state.heartbeat_at = 0
    world.deploy(HUGE, 1)
    world.kubelets.reconcile()
    world.doorbells.messages.clear()
    return world


@pytest.fixture
def lists(large: World, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What each list of all pods takes: one entry for each."""
    seconds: list[float] = []
    usual = large.cluster.pods

    def pods(*, node: str = "", pending: bool = False, limit: int | None = None) -> tuple[Pod, ...]:
        if not node and not pending:
            seconds.append(LIST_SECONDS)
            large.clock.advance(LIST_SECONDS)
        return usual(node=node, pending=pending, limit=limit)

    monkeypatch.setattr(large.cluster, "pods", pods)
    return seconds


def is_rung(world: World, *, scheduled: bool = False) -> bool:
    """Whether a look of the sweep rings for a plan."""
    world.doorbells.messages.clear()
    poll(world, now=world.clock.now(), scheduled=scheduled)
    return bool(world.doorbells.messages_of("provision", "pods"))


def look(world: World, seconds: int) -> None:
    """The sweep looks every few seconds, and what it rings for is planned."""
    end = world.clock.now() + timedelta(seconds=seconds)
    while world.clock.now() < end:
        if is_rung(world, scheduled=world.clock.now().second < POLL_SECONDS):
            provision(world.ports, clock=world.clock.now)
        world.clock.advance(POLL_SECONDS)


def test_a_large_cluster_is_listed_for_a_fifth_of_the_time_for_a_pod_that_fits_nowhere(
    large: World, lists: list[float]
) -> None:
    """It was listed as soon as the list before had ended."""
    look(large, 600)
    assert 0 < sum(lists) <= 600 / PAUSE_PER_SECOND


@pytest.mark.parametrize("scheduled", [False, True])
def test_after_the_pause_the_same_plan_is_made_again(large: World, lists: list[float], scheduled: bool) -> None:
    provision(large.ports, clock=large.clock.now)
    large.clock.advance(PAUSE_SECONDS - 1)
    assert not is_rung(large, scheduled=scheduled)
    large.clock.advance(1)
    assert is_rung(large, scheduled=scheduled)


@pytest.mark.parametrize("has_nodes", [True, False])
def test_a_follower_that_waits_ends_no_pause(large: World, lists: list[float], has_nodes: bool) -> None:
    """At zero nodes none is planned for it, and the sweep looks at none."""
    if not has_nodes:
        for kind in ("nodeclaims", "nodes"):
            for found in large.cluster.all(kind):
                large.cluster.remove(kind, found.name)
        for pod in large.running_pods():
            large.cluster.remove("pods", pod.key)
    follower = builders.pod("dns", cpu_millicores=10_000_000, annotations={labels.FOLLOW: "true"})
    large.cluster.put("pods", msgspec.structs.replace(follower, unschedulable=True))
    provision(large.ports, clock=large.clock.now)
    large.clock.advance(PAUSE_SECONDS - 1)
    assert not is_rung(large)
    large.clock.advance(1)
    assert is_rung(large)


@pytest.mark.parametrize("scheduled", [False, True])
def test_no_plan_is_rung_for_for_a_pod_that_kube_scheduler_has_not_tried(large: World, scheduled: bool) -> None:
    large.deploy(HUGE, 0)
    large.cluster.put("pods", builders.pod("gated", phase="Pending"))
    assert not is_rung(large, scheduled=scheduled)


def another_pod(world: World) -> None:
    world.cluster.put("pods", msgspec.structs.replace(builders.pod("another"), unschedulable=True))


def another_limit(world: World) -> None:
    pool = world.cluster.nodepools()[0]
    metadata = msgspec.structs.replace(pool.metadata, generation=pool.metadata.generation + 1)
    world.cluster.put("nodepools", msgspec.structs.replace(pool, metadata=metadata))


def another_class(world: World) -> None:
    nodeclass = world.cluster.nodeclasses()[0]
    metadata = msgspec.structs.replace(nodeclass.metadata, generation=nodeclass.metadata.generation + 1)
    world.cluster.put("ec2nodeclasses", msgspec.structs.replace(nodeclass, metadata=metadata))


def class_unready(world: World) -> None:
    nodeclass = world.cluster.nodeclasses()[0]
    conditions = tuple(
        msgspec.structs.replace(condition, status="False") if condition.type == "Ready" else condition
        for condition in nodeclass.conditions
    )
    world.cluster.update("ec2nodeclasses", nodeclass.name, conditions=conditions)


def node_gone(world: World) -> None:
    world.cluster.remove("nodeclaims", world.claims()[0].name)


def node_not_initialized(world: World) -> None:
    claim = world.claims()[0]
    conditions = tuple(condition for condition in claim.conditions if condition.type != "Initialized")
    world.cluster.update("nodeclaims", claim.name, conditions=conditions)


def replaced(kind: str) -> Callable[[World], None]:
    """Somebody deleted an object and created it again as it was."""

    def replace(world: World) -> None:
        for found in world.cluster.all(kind):
            about = msgspec.structs.replace(found.metadata, uid=f"{found.metadata.uid}-again")
            world.cluster.put(kind, msgspec.structs.replace(found, metadata=about))

    return replace


def pool_unready(world: World) -> None:
    world.cluster.update("nodepools", world.cluster.nodepools()[0].name, conditions=(Condition("Ready", "False"),))


CHANGES = [
    another_pod, another_limit, another_class, class_unready, node_gone, node_not_initialized, pool_unready,
    *map(replaced, ("nodepools", "ec2nodeclasses", "nodeclaims", "pods")),
]  # fmt: skip


def test_the_order_of_lists_ends_no_pause(large: World) -> None:
    large.deploy(HUGE, 3)
    large.cluster.put("nodepools", builders.nodepool("another"))
    large.cluster.put("ec2nodeclasses", builders.nodeclass("another"))
    (claim,) = large.claims()
    large.cluster.put("nodeclaims", msgspec.structs.replace(claim, metadata=ObjectMeta("a-first", uid="uid-0")))
    lists = [large.cluster.all(kind) for kind in ("nodepools", "ec2nodeclasses", "nodeclaims", "pods")]
    assert all(len(listed) > 1 for listed in lists)
    for number in range(len(lists)):
        turned = [listed[::-1] if at == number else listed for at, listed in enumerate(lists)]
        assert digest_of(*turned) == digest_of(*lists)


def test_a_nodepool_of_another_class_of_nodes_ends_no_pause(large: World, lists: list[float]) -> None:
    """No plan is made for it: the plan's own look and that of the sweep leave it out."""
    reference = msgspec.structs.replace(large.cluster.nodepools()[0].node_class_ref, group="example.com")
    theirs = msgspec.structs.replace(builders.nodepool("theirs"), node_class_ref=reference)
    assert not theirs.is_managed
    large.cluster.put("nodepools", theirs)
    provision(large.ports, clock=large.clock.now)
    assert not is_rung(large)


@pytest.mark.parametrize("change", CHANGES)
def test_the_pause_ends_when_something_is_another(
    large: World, lists: list[float], change: Callable[[World], None]
) -> None:
    provision(large.ports, clock=large.clock.now)
    assert not is_rung(large)
    change(large)
    assert is_rung(large)


def test_no_pause_is_longer_than_two_minutes(large: World, lists: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.scenarios.lifecycle.provisioning.test_repeated_plans.LIST_SECONDS", 50)
    provision(large.ports, clock=large.clock.now)
    large.clock.advance(LONGEST_PAUSE_SECONDS - 1)
    assert not is_rung(large)
    large.clock.advance(1)
    assert is_rung(large)


def test_a_plan_that_decided_something_has_no_pause(large: World, lists: list[float]) -> None:
    large.deploy(builders.pod("large", cpu_millicores=1800), 2)
    large.kubelets.reconcile()
    assert provision(large.ports, clock=large.clock.now).decisions
    assert not large.state.cluster().plans_pause_until


def test_pods_for_which_there_was_no_time_are_tried_without_a_pause(large: World, lists: list[float]) -> None:
    large.deploy(HUGE, 250)
    large.kubelets.reconcile()
    assert provision(large.ports, clock=large.clock.now, seconds_left=lambda: 0.0).postponed_pods
    assert not large.state.cluster().plans_pause_until


def test_what_a_ceiling_holds_back_is_tried_without_a_pause(large: World, lists: list[float]) -> None:
    large.settings = msgspec.structs.replace(large.settings, max_nodes_per_hour=1)
    large.deploy(builders.pod("large", cpu_millicores=1800), 2)
    large.kubelets.reconcile()
    (plan,) = provision(large.ports, clock=large.clock.now).plans
    assert (bool(plan.nodes_held_back), plan.new_nodes) == (True, ())
    assert not large.state.cluster().plans_pause_until


def test_a_plan_whose_list_is_refused_at_once_has_no_pause(large: World) -> None:
    large.effects.inject(Fault("cluster", "pods", Unavailable("no answer")))
    with pytest.raises(Unavailable):
        provision(large.ports, clock=large.clock.now)
    assert is_rung(large)


def test_while_a_forwarder_lives_the_poll_of_each_minute_rings(large: World, lists: list[float]) -> None:
    """It ships a state, of which a plan is made without a list."""
    provision(large.ports, clock=large.clock.now)
    large.state.heartbeat_at = large.clock.milliseconds()
    assert is_rung(large, scheduled=True)


def test_the_pause_of_a_wrong_clock_holds_no_plan_up(large: World, lists: list[float]) -> None:
    provision(large.ports, clock=large.clock.now)
    late = large.clock.milliseconds() + 10 * 60_000
    large.state.cluster_row = msgspec.structs.replace(large.state.cluster_row, plans_pause_until=late)
    assert is_rung(large)
