"""Which nodes are held for their pods and which are not; what becomes of a promise when its time is over."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.taints import Taint
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.joining.nominations import HELD_TAINT, expire_nomination
from spotwright.workflows.planning.nominated_pods import expiry_ms
from spotwright.workflows.ports.rows import NominationRow

pytestmark = pytest.mark.usefixtures("pods_differ")


def held(world: World) -> list[str]:
    return [node.name for node in world.cluster.nodes() if HELD_TAINT in node.taints]


def nominated(world: World) -> set[str]:
    return {pod.nominated_node_name for pod in world.cluster.all("pods")}


def launched(world: World, **pool: Any) -> None:
    """A pod whose NodeClaim is there, and whose node is not."""
    world.cluster.put("nodepools", builders.nodepool(**pool))
    world.deploy(builders.pod("inflate"), 1)
    world.run(5)
    world.kubelets._schedule = lambda pod: None  # type: ignore[method-assign]


def row_of(world: World) -> NominationRow:
    (row,) = (row for row in world.state.rows.values() if isinstance(row, NominationRow))
    return row


def is_registered(world: World) -> bool:
    return any(node.is_registered for node in world.cluster.nodes())


def test_a_node_with_start_up_taints_is_never_held(world: World) -> None:
    launched(world, startup_taints=(Taint("agent-not-ready", "NoSchedule"),))
    for _ in range(60):
        world.run(1)
        assert not held(world)
    assert is_registered(world)


def test_a_node_is_not_held_for_what_another_launch_of_its_name_was_promised(world: World) -> None:
    launched(world)
    world.state.save(msgspec.structs.replace(row_of(world), launch="another"))
    for _ in range(60):
        world.run(1)
        assert not held(world)
        assert nominated(world) == {""}
    assert is_registered(world)


def test_pods_whose_nomination_is_cleared_before_the_taint_goes_are_nominated_again_at_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    launched(world)
    assert world.run(60, until=lambda: bool(held(world)))
    usual, opened_at = world.cluster.set_taints, list[int]()

    def set_taints(node: Node, taints: Sequence[Taint], **more: Any) -> Node:
        for pod in world.cluster.all("pods"):
            world.cluster.update("pods", pod.key, nominated_node_name="")
        opened = usual(node, taints, **more)
        opened_at.append(len(world.effects.log))
        return opened

    monkeypatch.setattr(world.cluster, "set_taints", set_taints)
    assert world.run(60, until=lambda: not held(world))
    assert nominated(world) == {node.name for node in world.cluster.nodes()}
    assert world.effects.log[opened_at[-1]].action == "nominate"


def test_a_node_that_lacks_what_its_pods_ask_for_is_let_go_without_nominations(world: World) -> None:
    """What registers the resource may be a pod, which the taint would keep away."""
    launched(world)
    assert world.run(60, until=lambda: bool(held(world)))
    (node,) = world.cluster.nodes()
    world.cluster.update("nodes", node.name, allocatable={**node.allocatable, "memory": 0})
    assert world.run(60, until=lambda: not held(world))
    assert nominated(world) == {""}


def test_the_promise_to_pods_that_move_outlives_that_to_pending_ones(world: World) -> None:
    now = world.clock.milliseconds()
    row = NominationRow(
        "default-x", world.cluster.name, {"default/a": "1"}, "", "nominated", now, now, moving_pods={"default/b": "2"}
    )
    world.state.create(row)
    expire_nomination(world.ports, "default-x", world.clock.now())
    after = row_of(world)
    assert (after.phase, after.pods, after.moving_pods) == ("promised", {}, {"default/b": "2"})
    assert after.due == expiry_ms(now)
    world.clock.advance(15 * 60)
    expire_nomination(world.ports, "default-x", world.clock.now())
    assert (row_of(world).due, row_of(world).moving_pods) == (0, {})


@pytest.mark.parametrize("phase", ["promised", "nominated"])
def test_pods_of_an_overdue_nomination_are_planned_again(world: World, phase: str) -> None:
    now = world.clock.milliseconds()
    node = "gone" if phase == "nominated" else ""
    world.state.create(NominationRow("default-x", world.cluster.name, {"default/a": "1"}, node, phase, now, now))
    expire_nomination(world.ports, "default-x", world.clock.now())
    assert [bell.kind for bell in world.doorbells.receive("provision")] == ["pods"]
    assert row_of(world).phase == "failed"
