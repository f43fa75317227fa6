"""What the forwarder rings for is enough: no schedule rings here, and nodes that join, without ticks."""

from collections.abc import Sequence
from typing import Any

import pytest

from spotwright.errors import ApiError, Conflict, Denied, Throttled, Unavailable
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.taints import Taint
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.workflow import ONCE_MORE_SECONDS
from spotwright.workflows.ports.doorbells import Doorbell
from tests.scenarios.lifecycle.conftest import are_initialized, fresh_world

BOOT_SECONDS = 20
VISIBILITY_SECONDS = 180
ONE_EACH = builders.pod("inflate", cpu_millicores=1800)
NOT_READY = (Taint(labels.NOT_READY, "NoSchedule"), Taint(labels.NOT_READY, "NoExecute"))


@pytest.fixture
def world() -> World:
    made = fresh_world()
    made._schedules = lambda: None  # type: ignore[method-assign]
    return made


def lose_ticks(world: World) -> None:
    """From now on: doorbells of claims that have a number."""
    ring = world.doorbells.ring

    def ring_but_for_ticks(queue: str, bells: Sequence[Doorbell], *, delay_seconds: int = 0) -> None:
        arriving = [bell for bell in bells if bell.kind != "claim" or not bell.epoch]
        ring(queue, arriving, delay_seconds=delay_seconds)

    world.doorbells.ring = ring_but_for_ticks  # type: ignore[method-assign]


def pods_run_within(world: World, seconds: int, pods: int = 2) -> bool:
    return world.run(seconds, until=lambda: len(world.running_pods()) == pods)


def joining(world: World) -> None:
    """Two nodes, until they are about to join, whose ticks are lost."""
    lose_ticks(world)
    world.deploy(ONE_EACH, 2)
    assert world.run(3, until=lambda: len(world.claims()) == 2)
    world.run(BOOT_SECONDS - 1)
    assert not world.cluster.nodes()


@pytest.mark.parametrize("alike", [True, False], ids=["pods are alike", "pods differ"])
@pytest.mark.parametrize("seconds", [0, 1, 3, 45])
def test_pods_come_to_a_node_as_soon_as_it_is_ready(world: World, seconds: int, alike: bool) -> None:
    world.state.pods_alike = lambda: alike  # type: ignore[method-assign]
    world.kubelets.ready_seconds = seconds
    joining(world)
    assert pods_run_within(world, 1 + seconds + 2)
    assert world.run(5, until=lambda: are_initialized(world))


@pytest.mark.parametrize("seconds", [1, 5, 30])
def test_pods_come_to_a_node_when_the_control_plane_has_taken_its_taints_off(world: World, seconds: int) -> None:
    """It does that some time after the kubelet has said that it is ready."""
    ready_at = dict[str, float]()

    def say(node: Node, up: bool) -> None:
        now = world.clock.now().timestamp()
        if up and not node.is_ready:
            ready_at[node.name] = now
            world.cluster.update("nodes", node.name, conditions=(world.kubelets._ready(up=True),))
        elif up and now - ready_at[node.name] >= seconds:
            kept = tuple(taint for taint in node.taints if taint not in NOT_READY)
            if kept != node.taints:
                world.cluster.update("nodes", node.name, taints=kept)

    world.kubelets._readiness = say  # type: ignore[method-assign]
    joining(world)
    assert pods_run_within(world, 1 + 3 + seconds + 2)
    assert world.run(5, until=lambda: are_initialized(world))


@pytest.mark.parametrize("after_change", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("action", ["nodeclaims_of_instances", "nodeclaim", "set_taints"])
@pytest.mark.parametrize("seconds", [0, 3])
def test_a_node_whose_step_fails_as_it_is_ready_rings_once_more(
    world: World, seconds: int, action: str, after_change: bool
) -> None:
    """Not three minutes later, when its message comes back."""
    world.kubelets.ready_seconds = seconds
    joining(world)
    world.run(seconds)
    world.effects.inject(Fault("cluster", action, Unavailable("no answer"), times=2, after_change=after_change))
    assert pods_run_within(world, 1 + 5 + 3)


def test_a_node_that_becomes_ready_while_its_first_step_fails_rings(world: World) -> None:
    joining(world)
    world.effects.inject(Fault("cluster", "set_taints", Unavailable("no answer"), times=2))
    assert pods_run_within(world, 1 + 3 + 5 + 3)


@pytest.mark.parametrize("failures", [1, 2, 3])
@pytest.mark.parametrize("alike", [True, False], ids=["pods are alike", "pods differ"])
def test_a_node_whose_step_fails_again_and_again_rings_again(world: World, failures: int, alike: bool) -> None:
    """The next tick of its claim may be 20 seconds away."""
    world.state.pods_alike = lambda: alike  # type: ignore[method-assign]
    world.kubelets.ready_seconds = 0
    joining(world)
    # Of two nodes, at each of their doorbells.
    world.effects.inject(Fault("cluster", "set_taints", Unavailable("no answer"), times=2 * failures))
    assert pods_run_within(world, 1 + 5 * failures + 3)


def running(world: World, stop_seconds: float = 2.0) -> NodeClaim:
    """A node with two pods, which nothing comes after, all done with it."""
    for name, grace in (("quick", 5), ("slow", 60)):
        world.deploy(builders.pod(name, cpu_millicores=500, termination_grace_period_seconds=grace), 1)
    assert pods_run_within(world, 60)
    world.run(60)
    world.forget_deployments()
    world.kubelets.stop_seconds = stop_seconds
    (claim,) = world.claims()
    return claim


def is_terminated(world: World) -> bool:
    return bool(world.effects.select("ec2", "terminate"))


@pytest.mark.parametrize("stop_seconds", [0, 2, 4, 5, 7, 25, 44])
@pytest.mark.parametrize("deleted", ["nodeclaims", "nodes"])
def test_a_drain_goes_on_when_its_last_pod_has_stopped(world: World, deleted: str, stop_seconds: int) -> None:
    claim = running(world, stop_seconds)
    if deleted == "nodes":
        world.cluster.delete_node(world.cluster.node(claim.node_name))
    else:
        world.cluster.delete("nodeclaims", claim.metadata)
    assert world.run(max(5, stop_seconds) + 3 + 3, until=lambda: is_terminated(world))


def test_pods_that_come_to_a_node_and_leave_it_are_seen(world: World) -> None:
    claim = running(world)

    def seen() -> str:
        return world.claims()[0].metadata.annotations[labels.PODS_SEEN]

    for pods in (1, 0):
        before = seen()
        world.deploy(builders.pod("small", cpu_millicores=10), pods)
        assert world.run(3 + 1, until=lambda before=before: seen() != before)  # type: ignore[misc]
        world.run(30)
    assert [found.name for found in world.claims()] == [claim.name]


@pytest.mark.parametrize("kind", ["nodes", "nodeclaims"])
def test_a_finalizer_that_somebody_else_changes_meanwhile_is_removed_all_the_same(
    world: World, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    claim = running(world)
    refused = list[str]()

    def refuse_once(action: str) -> None:
        usual = getattr(world.cluster, action)

        def write(*arguments: Any, **options: Any) -> Any:
            if "finalizers" in (options.get("metadata") or arguments[-1]) and not refused:
                refused.append(action)
                raise Conflict("the object was modified", code="Conflict")
            return usual(*arguments, **options)

        monkeypatch.setattr(world.cluster, action, write)

    refuse_once("set_taints" if kind == "nodes" else "patch_metadata")
    world.cluster.delete("nodeclaims", claim.metadata)
    assert world.run(15, until=lambda: is_terminated(world))
    # EC2 says that the instance has ended.
    ended = {"instance-id": claim.provider_id.rpartition("/")[2], "state": "terminated"}
    world.run(30)
    world.deliver_event("EC2 Instance State-change Notification", ended)
    assert world.run(10, until=lambda: not world.claims() and not world.cluster.nodes())
    assert refused


@pytest.mark.parametrize("action", ["nodeclaims_of_instances", "delete"])
@pytest.mark.parametrize(
    "failure",
    [Unavailable("no answer"), Throttled("too many", code="TooManyRequests"), Conflict("modified", code="Conflict")],
)
@pytest.mark.parametrize(("times", "seconds"), [(1, ONCE_MORE_SECONDS), (2, VISIBILITY_SECONDS + ONCE_MORE_SECONDS)])
def test_a_node_that_a_user_deletes_goes_though_its_step_fails(
    world: World, action: str, failure: ApiError, times: int, seconds: int
) -> None:
    """It is taken once more, and then its message comes back; it was left to the sweep of every ten minutes."""
    claim = running(world)
    world.effects.inject(Fault("cluster", action, failure, times=times))
    world.cluster.delete_node(world.cluster.node(claim.node_name))
    assert world.run(seconds + 15, until=lambda: is_terminated(world))


@pytest.mark.parametrize("failure", [Unavailable("no answer"), Conflict("modified", code="Conflict")])
def test_a_claim_becomes_consolidatable_though_the_step_at_that_moment_fails(world: World, failure: ApiError) -> None:
    """Its ticks have ended: it was left to the evaluations of each minute."""
    world.cluster.update("nodepools", "default", consolidate_after_seconds=60)
    world.deploy(ONE_EACH, 1)
    assert pods_run_within(world, 60, pods=1)
    world.run(40)
    world.effects.inject(Fault("cluster", "write_nodeclaim_status", failure))
    assert world.run(
        25 + ONCE_MORE_SECONDS, until=lambda: all(claim.is_condition_true("Consolidatable") for claim in world.claims())
    )


def test_a_step_that_the_api_server_refuses_is_not_taken_again(world: World) -> None:
    """It would be refused again."""
    claim = running(world)
    world.effects.inject(Fault("cluster", "delete", Denied("forbidden", code="Forbidden")))
    world.cluster.delete_node(world.cluster.node(claim.node_name))
    world.run(5)
    assert not world.failures


def test_a_step_of_a_claim_that_is_being_deleted_is_taken_again_by_its_ticks(world: World) -> None:
    claim = running(world)
    world.cluster.delete("nodeclaims", claim.metadata)
    world.run(3)
    world.effects.inject(Fault("cluster", "pods_of_node", Unavailable("no answer"), times=3))
    world.doorbells.ring("lifecycle", [Doorbell(world.cluster.name, "claim", claim.name)])
    world.run(1)
    assert not world.failures
