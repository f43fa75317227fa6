"""When a NodeClaim is looked at again, and what is written on a Node that others write at the same time."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from spotwright.errors import Conflict
from spotwright.lifecycle.retry import NODE_TICK_SECONDS, TERMINATION_TICKS, TICK_SECONDS
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import parse_time
from spotwright.model.kubernetes.node import Node, NodeWithVolumes
from spotwright.model.kubernetes.taints import Taint, TaintEffect
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.telemetry import log_lines
from spotwright.workflows.lifecycle.joining.nominations import HELD_TAINT
from spotwright.workflows.lifecycle.joining.registration import TAINT_ATTEMPTS
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell

POD = builders.pod("inflate", cpu_millicores=1800)
THEIRS = Taint("example.com/theirs", TaintEffect.NO_SCHEDULE)
STARTING = Taint("example.com/starting", TaintEffect.NO_SCHEDULE)
NOT_READY = "node.kubernetes.io/not-ready"


def look(world: World, kind: str, name: str, tick: int = 0) -> list[tuple[float, int]]:
    """A doorbell rings: in how many seconds the NodeClaim is looked at again for it, and by which tick, 0 = by none."""
    world.doorbells.messages.clear()
    lifecycle(world.ports, [Doorbell(world.cluster.name, kind, name, tick)], now=world.clock.now())
    messages = world.doorbells.messages_of("lifecycle", "claim")
    return [((message.at - world.clock.milliseconds()) / 1000, message.doorbell.epoch) for message in messages]


def boots(world: World, *, launched: bool = True) -> NodeClaim:
    """A NodeClaim whose node has not joined."""
    world.deploy(POD, 1)
    assert world.run(60, until=lambda: any(claim.is_condition_true("Launched") for claim in world.claims()))
    (claim,) = world.claims()
    if not launched:
        unlaunched = msgspec.structs.replace(claim, conditions=(), provider_id="")
        world.cluster.put("nodeclaims", unlaunched)
    return claim


@pytest.mark.parametrize(("is_alive", "seconds"), [(True, NODE_TICK_SECONDS), (False, TICK_SECONDS)])
def test_beside_a_forwarder_a_node_that_boots_is_looked_at_less_often(
    world: World, is_alive: bool, seconds: int
) -> None:
    """Its node rings when it joins."""
    claim = boots(world)
    world.state.heartbeat_at = world.clock.milliseconds() if is_alive else 0
    assert look(world, "claim", claim.name, tick=1) == [(seconds, 2)]


def test_a_nodeclaim_that_is_not_launched_is_looked_at_soon_also_beside_a_forwarder(world: World) -> None:
    claim = boots(world, launched=False)
    world.state.heartbeat_at = world.clock.milliseconds()
    assert look(world, "claim", claim.name, tick=1) == [(TICK_SECONDS, 2)]


def test_whether_a_forwarder_is_alive_is_not_read_where_no_tick_follows(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred nodes that join ring several times each."""
    claim, reads = boots(world), list[int]()

    def heartbeat() -> int:
        reads.append(1)
        return world.clock.milliseconds()

    monkeypatch.setattr(world.state, "heartbeat", heartbeat)
    assert look(world, "claim", claim.name) == []
    assert not reads
    look(world, "claim", claim.name, tick=1)
    assert reads


def drains(world: World, stop_seconds: float = 600) -> NodeClaim:
    """A NodeClaim that was deleted, whose pod takes so long to stop."""
    world.deploy(POD, 1)
    assert world.run(120, until=lambda: bool(world.running_pods()))
    world.run(60)
    world.kubelets.stop_seconds = stop_seconds
    (claim,) = world.claims()
    world.forget_deployments()
    world.cluster.delete("nodeclaims", claim.metadata)
    assert world.run(20, until=lambda: not world.running_pods())
    world.state.heartbeat_at = world.clock.milliseconds()
    return claim


@pytest.mark.parametrize(("is_alive", "seconds"), [(True, NODE_TICK_SECONDS), (False, TICK_SECONDS)])
def test_beside_a_forwarder_a_drain_is_looked_at_less_often(world: World, is_alive: bool, seconds: int) -> None:
    """The end of each pod rings."""
    claim = drains(world)
    world.state.heartbeat_at = world.clock.milliseconds() if is_alive else 0
    tick = TERMINATION_TICKS + 1
    assert look(world, "claim", claim.name, tick=tick) == [(seconds, tick + 1)]


def test_a_drain_that_a_pod_rings_for_is_not_looked_at_again_before_another_one_rings(world: World) -> None:
    claim = drains(world)
    assert look(world, "node", claim.node_name) == []


def test_a_drain_whose_last_pod_rings_before_it_is_over_is_looked_at_once_more(world: World) -> None:
    """Its ticks are far apart. That its instance has ended is told by EC2."""
    claim = drains(world)
    world.cluster.remove("pods", world.cluster.all("pods")[0].key)
    assert look(world, "claim", claim.name) == [], "its ticks go on"
    ((seconds, tick),) = look(world, "node", claim.node_name)
    assert 0 < seconds <= TICK_SECONDS
    assert tick == 0
    world.clock.advance(seconds)
    for _ in range(3):
        assert look(world, "node", claim.node_name) == []
    (claim,) = world.claims()
    assert claim.is_condition_true("InstanceTerminating")


@pytest.mark.parametrize("seconds", [0, 1, 2])
def test_a_drain_that_rings_shortly_before_a_pod_is_told_to_stop_is_looked_at_just_after_that(
    world: World, seconds: int
) -> None:
    """Its ticks are far apart: the pod would lose most of the grace period that it has until the deadline."""
    world.cluster.update("nodepools", "default", termination_grace_period_seconds=120)
    kept = builders.pod("kept", annotations={labels.DO_NOT_DISRUPT: "true"}, termination_grace_period_seconds=30)
    world.deploy(kept, 1)
    assert world.run(120, until=lambda: bool(world.running_pods()))
    world.forget_deployments()
    (claim,) = world.claims()
    world.cluster.delete("nodeclaims", claim.metadata)
    world.run(20)
    deadline = parse_time(world.claims()[0].metadata.annotations[labels.TERMINATION_TIMESTAMP])
    assert deadline is not None
    told = deadline - timedelta(seconds=30)
    world.clock.advance((told - world.clock.now()).total_seconds() - seconds)
    ((again, _),) = look(world, "node", claim.node_name)
    assert 0 < again - seconds <= 1
    world.clock.advance(again)
    look(world, "claim", claim.name)
    (told_pod,) = [event for event in world.cluster.events if event.reason == "Disrupted"]
    assert "granted 29 seconds of grace-period" in told_pod.message


def test_a_node_whose_pods_are_awaited_rings_for_no_further_look(world: World) -> None:
    """Ticks look at them."""
    world.deploy(POD, 1)
    assert world.run(10, until=lambda: bool(world.claims()))
    world.kubelets._schedule = lambda pod: None  # type: ignore[method-assign]
    assert world.run(60, until=lambda: any(claim.is_condition_true("Initialized") for claim in world.claims()))
    world.clock.advance(1)
    assert look(world, "node", world.claims()[0].node_name) == []


def on_write(world: World, act: Callable[[Node, int], None]) -> None:
    """When taints of a Node are written, others ``act`` before; they are given the number of the write."""
    usual, writes = world.cluster.set_taints, list[int]()

    def set_taints(node: Node, taints: Sequence[Taint], **more: Any) -> NodeWithVolumes:
        writes.append(len(writes) + 1)
        act(node, writes[-1])
        return usual(node, taints, **more)

    world.cluster.set_taints = set_taints  # type: ignore[method-assign]


def conflict() -> Conflict:
    return Conflict("the Node was changed meanwhile", code="Conflict")


def joins(world: World, act: Callable[[Node, int], None]) -> Node:
    """A node that joined and is registered while others ``act``."""
    on_write(world, act)
    world.deploy(POD, 1)
    world.run(180, until=lambda: any(claim.is_condition_true("Registered") for claim in world.claims()))
    (node,) = world.cluster.nodes()
    return node


def conflicts(caplog: pytest.LogCaptureFixture) -> int:
    """How many steps were given up for a conflict."""
    return sum(record.message == log_lines.CHANGED_CONCURRENTLY.message for record in caplog.records)


@pytest.mark.parametrize("times", [1, TAINT_ATTEMPTS - 1, TAINT_ATTEMPTS])
def test_a_node_that_others_change_is_registered_in_the_same_step_or_in_another_one(
    world: World, times: int, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")

    def change(node: Node, number: int) -> None:
        if number <= times:
            raise conflict()

    node = joins(world, change)
    assert labels.REGISTERED in node.metadata.labels
    assert conflicts(caplog) == (1 if times == TAINT_ATTEMPTS else 0)


def test_where_a_node_is_gone_when_it_is_registered_its_pods_get_another_one(world: World) -> None:
    def go(node: Node, number: int) -> None:
        if number == 1:
            world.cluster.remove("nodes", node.name)
            raise conflict()

    on_write(world, go)
    world.deploy(POD, 1)
    assert world.run(300, until=lambda: bool(world.running_pods()))
    assert not world.failures


@pytest.mark.usefixtures("pods_differ")
@pytest.mark.parametrize("also_ours", [(), (HELD_TAINT,)], ids=["others", "another worker"])
def test_taints_that_others_set_while_a_node_is_registered_stay_and_those_they_took_off_do_not_return(
    world: World, also_ours: tuple[Taint, ...]
) -> None:
    def change(node: Node, number: int) -> None:
        if number == 1:
            kept = (taint for taint in node.taints if taint.key != NOT_READY)
            world.cluster.update("nodes", node.name, taints=(*kept, THEIRS, *also_ours))
            raise conflict()

    assert joins(world, change).taints == (THEIRS, HELD_TAINT)


def test_a_taint_of_the_nodeclaim_that_others_set_with_another_value_meanwhile_stays_as_they_set_it(
    world: World, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server takes no second one of its key and effect. As with a custom AMI, the node joins without it."""
    caplog.set_level("INFO")
    world.cluster.update("nodepools", "default", startup_taints=(STARTING,))
    claim, theirs, usual = boots(world), msgspec.structs.replace(THEIRS, value="theirs"), world.cluster.put
    world.cluster.update("nodeclaims", claim.name, taints=(THEIRS,))

    def put(kind: str, obj: Any) -> None:
        synced = {key: value for key, value in obj.metadata.labels.items() if key != labels.DO_NOT_SYNC_TAINTS}
        usual(kind, msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, labels=synced)))

    def change(node: Node, number: int) -> None:
        if number == 1:
            world.cluster.update("nodes", node.name, taints=(*node.taints, theirs))
            raise conflict()

    monkeypatch.setattr(world.cluster, "put", put)
    on_write(world, change)
    assert world.run(180, until=lambda: any(claim.is_condition_true("Registered") for claim in world.claims()))
    (node,) = world.cluster.nodes()
    assert [taint for taint in node.taints if taint.key == THEIRS.key] == [theirs]
    assert STARTING in node.taints
    assert not [record for record in caplog.records if record.message == log_lines.STEP_FAILED.message]
