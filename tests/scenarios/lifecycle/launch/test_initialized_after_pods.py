"""A node to which pods come at once is initialized after these; any other as soon as it is open."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from spotwright.errors import Unavailable
from spotwright.lifecycle.retry import NODE_TICK_SECONDS
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import Node, NodeWithVolumes
from spotwright.model.kubernetes.taints import Taint
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.joining.nominations import HELD_TAINT
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import NominationRow
from tests.scenarios.lifecycle.launch.effects import nominated, rows


def alike(world: World) -> None:
    """Two pods, for the node of one claim."""
    world.deploy(builders.pod("inflate", cpu_millicores=900), 2)
    assert world.run(10, until=lambda: len(world.claims()) == 1)


def no_pod_is_awaited(world: World) -> None:
    """Those that were planned have found another place."""
    (row,) = rows(world)
    world.state.save(msgspec.structs.replace(row, phase="done", due=0, pods={}))


def ring_node(world: World) -> NodeClaim:
    """For the one Node that there is; its claim afterwards."""
    (node,) = world.cluster.nodes()
    lifecycle(world.ports, [Doorbell(world.cluster.name, "node", node.name)], now=world.clock.now())
    (claim,) = world.claims()
    return claim


def joins(world: World, ready_seconds: int = 0) -> None:
    """Its Node is there, and no step has seen it; it is Ready in so many seconds."""
    world.kubelets.ready_seconds = ready_seconds
    world.kubelets._schedule = lambda pod: None  # type: ignore[method-assign]
    world.clock.advance(world.kubelets.boot_seconds)
    world.act_outside()
    world.forget_changes()
    (node,) = world.cluster.nodes()
    assert node.is_open == (not ready_seconds)


def joins_open(world: World) -> NodeClaim:
    """The one claim, after the first step that saw its Node, which joined Ready."""
    joins(world)
    claim = ring_node(world)
    assert claim.is_condition_true("Registered")
    return claim


def test_a_node_that_joins_ready_is_initialized_after_its_pods_have_come(world: World) -> None:
    """By one step, which looks at them as well."""
    alike(world)
    claim = joins_open(world)
    assert not claim.is_condition_true("Initialized")
    assert not world.cluster.find("nodes", claim.node_name).is_initialized
    for pod in world.cluster.all("pods"):
        world.cluster.update("pods", pod.key, node_name=claim.node_name, phase="Running")
    claim = ring_node(world)
    assert claim.is_condition_true("Initialized")
    assert world.cluster.find("nodes", claim.node_name).is_initialized
    assert {labels.INSTANCE_TAGGED, labels.PODS_SEEN} <= claim.metadata.annotations.keys()
    assert claim.last_pod_event_time is not None
    assert [(row.phase, row.due) for row in rows(world)] == [("done", 0)]


def test_a_node_that_joins_ready_is_initialized_though_no_doorbell_rings_again(world: World) -> None:
    alike(world)
    joins_open(world)
    world.forget_changes()
    assert world.run(NODE_TICK_SECONDS + 5, until=lambda: world.claims()[0].is_condition_true("Initialized"))


@pytest.mark.parametrize(("others", "seconds", "places"), [(1, 3, 1), (2, 3, 0), (1, 2, None), (0, 3, None)])
@pytest.mark.parametrize("ready_seconds", [0, 3])
def test_pods_whose_places_were_taken_before_their_node_is_initialized_do_not_wait_longer_for_that(
    world: World, ready_seconds: int, others: int, seconds: int, places: int | None
) -> None:
    """None = nothing is done: they may still come, or find a place elsewhere."""
    alike(world)
    joins(world, ready_seconds)
    world.clock.advance(2)
    ring_node(world)
    world.clock.advance(ready_seconds)
    world.act_outside()
    world.forget_changes()
    (node,) = world.cluster.nodes()
    assert node.is_open
    assert not node.is_initialized
    for number in range(others):
        world.cluster.put("pods", builders.pod(f"other-{number}", cpu_millicores=900, node_name=node.name))
    world.clock.advance(seconds)
    claim = ring_node(world)
    assert claim.is_condition_true("Initialized")
    assert (labels.INSTANCE_TAGGED in claim.metadata.annotations) == (places == 0), "not while pods are awaited"
    assert bool(world.doorbells.receive("provision")) == (places is not None)
    assert len(nominated(world)) == (places or 0)


def test_what_pods_a_node_waits_for_is_not_read_before_it_is_open(world: World) -> None:
    """While a hundred nodes join, it would be read for each of them."""
    alike(world)
    usual, read = world.state.nomination, list[str]()

    def nomination(claim: str) -> NominationRow | None:
        read.append(claim)
        return usual(claim)

    world.state.nomination = nomination  # type: ignore[method-assign]
    joins(world, ready_seconds=3)
    assert ring_node(world).is_condition_true("Registered")
    assert not read


def test_a_node_that_is_not_ready_any_more_when_it_is_adopted_is_not_labeled_initialized(world: World) -> None:
    """What its kubelet wrote between the step's read and its write is read again."""
    alike(world)
    no_pod_is_awaited(world)
    joins(world)
    (joined,) = world.cluster.nodes()
    world.cluster.update("nodes", joined.name, taints=(Taint("theirs", "NoSchedule"), *joined.taints))
    usual = world.cluster.set_taints

    def set_taints(node: Node, taints: Sequence[Taint], **more: Any) -> NodeWithVolumes:
        world.cluster.set_taints = usual  # type: ignore[method-assign]
        unready = world.kubelets._ready(up=False)
        world.cluster.update("nodes", joined.name, conditions=(unready,), taints=joined.taints)
        return usual(node, taints, **more)

    world.cluster.set_taints = set_taints  # type: ignore[method-assign]
    assert ring_node(world).is_condition_true("Registered")
    (node,) = world.cluster.nodes()
    assert (node.is_registered, node.is_initialized) == (True, False)
    world.kubelets._readiness(node, up=True)
    assert ring_node(world).is_condition_true("Initialized")
    assert world.cluster.nodes()[0].is_initialized


@pytest.mark.parametrize("opens", [True, False])
def test_whether_pods_come_first_is_decided_by_the_node_as_it_is_adopted(world: World, opens: bool) -> None:
    """The control plane took its taint off, or put it back, between the step's read and its write."""
    alike(world)
    joins(world)
    (joined,) = world.cluster.nodes()
    closed = (Taint(labels.NOT_READY, "NoSchedule"), *joined.taints)
    before, after = (closed, joined.taints) if opens else (joined.taints, closed)
    world.cluster.update("nodes", joined.name, taints=before)
    usual = world.cluster.set_taints

    def set_taints(node: Node, taints: Sequence[Taint], **more: Any) -> NodeWithVolumes:
        world.cluster.set_taints = usual  # type: ignore[method-assign]
        world.cluster.update("nodes", joined.name, taints=after)
        return usual(node, taints, **more)

    world.cluster.set_taints = set_taints  # type: ignore[method-assign]
    claim = ring_node(world)
    assert claim.is_condition_true("Registered")
    assert not claim.is_condition_true("Initialized")
    (node,) = world.cluster.nodes()
    assert (node.is_open, node.is_registered, node.is_initialized) == (opens, True, False)


@pytest.mark.parametrize(("left", "given"), [((), {labels.INITIALIZED: "true"}), ((HELD_TAINT,), {})])
def test_a_node_that_another_step_adopted_meanwhile_and_did_not_go_on_with_is_initialized(
    world: World, left: tuple[Taint, ...], given: dict[str, str]
) -> None:
    """The forwarder does not say that pods may come to one that is labeled initialized, or held."""
    alike(world)
    joins(world)
    (joined,) = world.cluster.nodes()
    usual = world.cluster.set_taints

    def set_taints(node: Node, taints: Sequence[Taint], **more: Any) -> NodeWithVolumes:
        world.cluster.set_taints = usual  # type: ignore[method-assign]
        usual(joined, left, metadata={"labels": {labels.REGISTERED: "true"} | given})
        return usual(node, taints, **more)

    world.cluster.set_taints = set_taints  # type: ignore[method-assign]
    assert ring_node(world).is_condition_true("Initialized")
    (node,) = world.cluster.nodes()
    assert node.is_initialized
    assert HELD_TAINT not in node.taints


def test_a_node_that_is_held_because_the_state_did_not_answer_is_let_go_by_the_same_step(world: World) -> None:
    """Though it answers a moment later: the forwarder does not ring for a node that is held."""
    alike(world)
    joins(world)
    world.effects.inject(Fault("state", "pods_alike", Unavailable("no answer")))
    assert ring_node(world).is_condition_true("Initialized")
    assert HELD_TAINT not in world.cluster.nodes()[0].taints
    assert len(nominated(world)) == 2


def test_a_node_that_could_not_be_held_is_nominated_for_by_the_step_that_registers_it(world: World) -> None:
    """Pods of several kinds wait, and an AMI left out the taint that keeps them off until then."""
    alike(world)
    world.state.note_other_pods()
    joins(world)
    (node,) = world.cluster.nodes()
    world.cluster.update("nodes", node.name, taints=())
    assert ring_node(world).is_condition_true("Initialized")
    assert len(nominated(world)) == 2


def test_a_node_of_which_all_pods_found_another_place_is_initialized_by_the_step_that_registers_it(
    world: World,
) -> None:
    alike(world)
    no_pod_is_awaited(world)
    joins(world)
    assert ring_node(world).is_condition_true("Initialized")


def test_pods_that_nobody_planned_for_a_node_are_seen_by_the_step_that_initializes_it(world: World) -> None:
    """They came before, and do not ring again."""
    alike(world)
    no_pod_is_awaited(world)
    joins(world)
    world.cluster.put("pods", builders.pod("other", node_name=world.cluster.nodes()[0].name))
    assert labels.PODS_SEEN in ring_node(world).metadata.annotations


def test_a_node_that_was_adopted_before_its_claim_says_so_is_initialized_with_it(world: World) -> None:
    """The step that adopts it does not change it any more, so that no doorbell rings again."""
    alike(world)
    joins(world)
    world.effects.inject(Fault("cluster", "write_nodeclaim_status", Unavailable("no answer")))
    assert not ring_node(world).is_condition_true("Registered")
    assert world.cluster.nodes()[0].is_registered
    assert ring_node(world).is_condition_true("Initialized")
    assert [row.phase for row in rows(world)] == ["promised"]


def test_a_node_that_joins_ready_and_no_pod_waits_for_is_initialized_at_once(world: World) -> None:
    """What registers it labels it by the same write: the node that it replaces may be waiting for that."""
    world.deploy(builders.pod("inflate", cpu_millicores=1500), 1)
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)
    (old,) = world.cluster.nodes()
    world.interrupt_spot(world.ec2.live_instances()[0].id)
    assert world.run(10, until=lambda: len(world.claims()) == 2)
    world.kubelets.ready_seconds = 0
    written: list[tuple[bool, bool]] = []
    usual = world.cluster.set_taints

    def set_taints(node: Node, taints: Sequence[Taint], **more: Any) -> NodeWithVolumes:
        after = usual(node, taints, **more)
        written.extend([(after.is_registered, after.is_initialized)] if node.name != old.name else [])
        return after

    world.cluster.set_taints = set_taints  # type: ignore[method-assign]
    assert world.run(30, until=lambda: len(world.cluster.nodes()) == 2 and bool(written))
    (claim,) = (claim for claim in world.claims() if claim.node_name != old.name)
    assert claim.is_condition_true("Initialized")
    assert written == [(True, True)]
