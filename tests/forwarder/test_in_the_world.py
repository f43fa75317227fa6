"""The forwarder in the simulated world, where functions answer its doorbells."""

from spotwright.simulation import builders
from spotwright.simulation.world import World
from tests.real_forwarder import RealForwarder

ONE = builders.pod("inflate", cpu_millicores=1800)


def fresh_world() -> World:
    world = World(forwarder=RealForwarder)
    world.cluster.put("ec2nodeclasses", builders.nodeclass())
    world.cluster.put("nodepools", builders.nodepool())
    world._schedules = lambda: None  # type: ignore[method-assign]
    return world


def rung(world: World, about: str) -> list[int]:
    """At which seconds since the start it rang; lifecycle does not ring for nodes, nor at once for claims."""
    start = world.effects.log[0].at
    rings = (effect for effect in world.effects.select("doorbells", "ring") if effect.subject == about)
    return [round((effect.at - start).total_seconds()) for effect in rings]


def with_node(pods: int = 1) -> World:
    world = fresh_world()
    world.deploy(ONE, pods)
    assert world.run(60, until=lambda: len(world.running_pods()) == pods)
    world.run(20)
    return world


def test_a_node_that_joins_rings_when_it_comes_and_when_its_pods_have_come() -> None:
    """Not for what lifecycle writes meanwhile."""
    world = with_node()
    (node,) = world.cluster.nodes()
    assert node.is_initialized
    joined = 1 + int(world.kubelets.boot_seconds)
    bound = joined + int(world.kubelets.ready_seconds)
    assert rung(world, f"lifecycle/node:{node.name}") == [joined, bound + 3]


def test_pods_ring_a_second_after_they_wait_and_again_while_they_do() -> None:
    world = fresh_world()
    world.run(5)
    world.deploy(builders.pod("vast", cpu_millicores=10**9), 1)
    began = int(world.clock.now().second)
    world.run(25)
    assert [at - began for at in rung(world, "provision/pods:") if at > began] == [1, 11, 21]


def test_a_forwarder_that_runs_again_rings_for_what_is_unsettled() -> None:
    world = with_node()
    (claim,) = world.claims()
    world.forwarder_runs = False
    world.run(3)
    world.cluster.delete("nodeclaims", claim.metadata)
    world.run(20)
    assert not world.effects.select("ec2", "terminate")
    world.forwarder_runs = True
    assert world.run(12, until=lambda: bool(world.effects.select("ec2", "terminate")))


def test_what_is_forgotten_does_not_ring_but_pods_that_go_on_waiting_do() -> None:
    world = with_node()
    (node,) = world.cluster.nodes()
    world.kubelets.reconcile = lambda: None  # type: ignore[method-assign]
    begun = len(world.effects.log)
    world.cluster.put("pods", builders.pod("came", node_name=node.name, phase="Running"))
    world.cluster.put("pods", builders.pod("waits", unschedulable=True))
    world.forget_changes()
    world.run(15)
    rung_since = [effect.subject for effect in world.effects.log[begun:] if effect.action == "ring"]
    assert f"lifecycle/node:{node.name}" not in rung_since
    assert "provision/pods:" in rung_since


def test_without_a_forwarder_the_heartbeat_stays_as_it_was() -> None:
    world = fresh_world()
    world.run(30)
    last = world.state.heartbeat_at
    assert world.clock.milliseconds() - last <= 10_000
    world.forwarder_runs = False
    world.run(60)
    assert world.state.heartbeat_at == last
