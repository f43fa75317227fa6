"""Planners that read the cluster state: late, late without saying so, or absent."""

from collections.abc import Callable

import msgspec
import pytest

from spotwright.errors import Unavailable
from spotwright.model.cluster_state import ClusterStateError
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.planning.cluster_state import FRESH, IN_CONTACT
from spotwright.workflows.planning.overlay import MAXIMUM_READS
from tests.scenarios.lifecycle.cluster_states import POD, everybody_runs, invented, settled, shipping

# A watch that broke without a word: so long the state may lack its changes and counts as fresh.
SILENT = (IN_CONTACT + FRESH).total_seconds()


def test_a_fresh_state_is_read_instead_of_lists() -> None:
    world = shipping(1)
    world.deploy(POD, 4)
    assert world.run(120, until=lambda: everybody_runs(world, 4))
    assert world.effects.reads["cluster_state", "load"] > 0
    assert world.effects.reads["cluster", "pods"] == 0
    assert len(world.claims()) == len(world.ec2.live_instances())


@pytest.mark.parametrize("lag", [0, 1, 5, 15, 29, 31, 60, SILENT])
@pytest.mark.parametrize("honest", [True, False])
def test_a_burst_after_a_burst_buys_nothing_twice(lag: float, honest: bool) -> None:
    """Pods come every few seconds while earlier ones are being seated; the state shows them late."""
    world = shipping(lag, stated=None if honest else 0)
    for pods in range(2, 11, 2):
        world.deploy(POD, pods)
        world.run(4)
    assert world.run(240, until=lambda: everybody_runs(world, 10))
    launched = len(world.ec2.all_instances())
    assert launched == len(world.claims()) == 10


def test_pods_after_many_young_nodes_have_gone_are_planned_at_once() -> None:
    """A state that is a second behind shows none of the NodeClaims of the launch: they are gone, not on their way."""
    world = shipping(1)
    world.deploy(POD, MAXIMUM_READS + 1)
    assert world.run(60, until=lambda: everybody_runs(world, MAXIMUM_READS + 1))
    world.forget_deployments()
    for claim in world.claims():
        world.cluster.delete("nodeclaims", claim.metadata)
    assert world.run(60, until=lambda: not world.claims() and not world.cluster.all("pods"))
    world.run(2)
    world.deploy(POD, MAXIMUM_READS + 1)
    assert world.run(5, until=lambda: len(world.claims()) == MAXIMUM_READS + 1)


@pytest.mark.parametrize("lag", [0, 5, 29, 60, SILENT])
@pytest.mark.parametrize("honest", [True, False])
def test_interruptions_and_scale_downs_leave_nobody_waiting(lag: float, honest: bool) -> None:
    world = shipping(lag, stated=None if honest else 0)
    world.deploy(POD, 6)
    assert world.run(240, until=lambda: everybody_runs(world, 6))
    world.run(70)
    for claim in world.claims()[:3]:
        world.interrupt_spot(instance_id(claim.provider_id))
    world.run(20)
    world.deploy(POD, 8)
    world.run(30)
    world.deploy(POD, 4)
    world.run(300)
    assert everybody_runs(world, 4)
    assert world.run(60, until=lambda: len(world.claims()) == len(world.ec2.live_instances()))
    assert len(world.ec2.all_instances()) <= 6 + 3 + 2


@pytest.mark.parametrize("lag", [5, 29])
def test_a_launch_without_capacity_is_planned_again(lag: float) -> None:
    """The state still shows the claim that got no instance, and that was deleted."""
    world = shipping(lag)
    world.ec2.capacity[("spot", "*", "*")] = 0
    world.deploy(POD, 1)
    assert world.run(100, until=lambda: everybody_runs(world, 1))


def test_pods_that_are_gone_buy_nothing() -> None:
    """The state shows pods that wait; they were deleted since."""
    world = shipping(1)
    before = settled(world, 1)
    world.cluster_state.lie = lambda objects: msgspec.structs.replace(
        objects, pods=(*objects.pods, *invented(objects, pods=20).pods)
    )
    world.cluster.put("pods", builders.pod("nobody", cpu_millicores=10**6))
    world.run(120)
    assert world.claims() == before


@pytest.mark.parametrize(
    ("broken", "reason"),
    [
        (lambda world: setattr(world.cluster_state, "lag_seconds", None), "Absent"),
        (lambda world: setattr(world.cluster_state, "lag_seconds", 31), "NotFresh"),
        (
            lambda world: setattr(world.cluster_state, "error", ClusterStateError("schema 2", code="OtherSchema")),
            "OtherSchema",
        ),
        (lambda world: world.effects.inject(Fault("cluster_state", "load", Unavailable("S3"), 100)), "NoAnswer"),
        (lambda world: world.effects.inject(Fault("cluster_state", "head", Unavailable("DynamoDB"), 100)), "NoAnswer"),
    ],
)
def test_without_a_state_that_can_be_used_the_cluster_is_listed(
    broken: Callable[[World], None], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = shipping(1)
    broken(world)
    with caplog.at_level("INFO", logger="spotwright.planning"):
        world.deploy(POD, 1)
        assert world.run(120, until=lambda: everybody_runs(world, 1))
    assert world.effects.reads["cluster", "pods"] > 0
    reasons = {vars(record).get("reason") for record in caplog.records if record.message == "listed cluster"}
    assert reasons == {reason}
