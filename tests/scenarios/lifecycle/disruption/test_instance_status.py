"""Instances that EC2 calls impaired, and instances for which it has scheduled an event."""

from datetime import timedelta

import pytest

from spotwright.errors import Unavailable
from spotwright.model.ec2.instance_status import Impairment, InstanceStatus, ScheduledEvent, StatusCheck
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.sweep.poll import poll
from tests.scenarios.lifecycle.disruption.sick_nodes import MINUTES, is_deleted, reasons, with_nodes


@pytest.fixture
def running(world: World) -> World:
    """Six nodes run a pod each; no gate is on."""
    return with_nodes(world, 6, gates=())


def impair(world: World, claim: NodeClaim, *checks: StatusCheck) -> None:
    """The checks fail from now on; none of them: it is well again."""
    id = instance_id(claim.provider_id)
    impairments = tuple(Impairment(check, world.clock.seconds()) for check in checks)
    world.ec2.statuses.pop(id, None)
    if impairments:
        world.ec2.statuses[id] = InstanceStatus(id, impairments)


@pytest.mark.parametrize("check", [StatusCheck.SYSTEM, StatusCheck.INSTANCE])
def test_an_impaired_instance_is_replaced_after_two_minutes_whatever_its_budgets(
    running: World, check: StatusCheck
) -> None:
    sick = running.claims()[0]
    running.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget("all", "inflate", min_available="100%"))
    impair(running, sick, check)
    assert not running.run(115, until=lambda: is_deleted(running, sick))
    assert running.run(80, until=lambda: is_deleted(running, sick))
    assert running.run(5 * MINUTES, until=lambda: len(running.running_pods()) == 6)
    assert "Unhealthy" in reasons(running, sick.node_name)


def test_an_instance_that_flaps_is_kept(running: World) -> None:
    sick = running.claims()[0]
    for _ in range(10):
        impair(running, sick, StatusCheck.SYSTEM)
        assert not running.run(110, until=lambda: is_deleted(running, sick))
        impair(running, sick)
        assert not running.run(30, until=lambda: is_deleted(running, sick))


def test_volumes_in_trouble_are_said_and_the_node_is_kept(running: World) -> None:
    sick = running.claims()[0]
    impair(running, sick, StatusCheck.ATTACHED_EBS)
    assert not running.run(10 * MINUTES, until=lambda: is_deleted(running, sick))
    assert "AttachedEbsImpaired" in reasons(running, sick.node_name)


def test_when_half_a_pool_is_impaired_all_of_it_is_kept(running: World) -> None:
    for claim in running.claims()[:3]:
        impair(running, claim, StatusCheck.SYSTEM)
    assert not running.run(10 * MINUTES, until=lambda: any(is_deleted(running, each) for each in running.claims()))
    assert "NodeRepairBlocked" in reasons(running, "default")


def test_instances_of_others_are_nobodys_concern(running: World) -> None:
    running.ec2.statuses["i-foreign"] = InstanceStatus("i-foreign", (), (ScheduledEvent("instance-stop"),))
    assert not running.run(3 * MINUTES, until=lambda: any(is_deleted(running, each) for each in running.claims()))
    assert running.state.notices() == ()


def test_a_scheduled_event_drains_the_node_as_its_message_would(running: World) -> None:
    """The message of AWS Health was lost, or is never sent; PodDisruptionBudgets are respected."""
    sick = running.claims()[0]
    id = instance_id(sick.provider_id)
    event = ScheduledEvent("instance-retirement", running.clock.seconds() + timedelta(minutes=50))
    running.ec2.statuses[id] = InstanceStatus(id, (), (event,))
    running.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget("all", "inflate", min_available="100%"))
    assert running.run(2 * MINUTES, until=lambda: is_deleted(running, sick))
    assert {"InstanceUnhealthy", "TerminatingOnInterruption"} <= reasons(running, sick.node_name)
    running.run(5 * MINUTES)
    assert running.cluster.node(sick.node_name) is not None, "its pods may not be evicted yet"
    running.cluster.remove("poddisruptionbudgets", "default/all")
    assert running.run(5 * MINUTES, until=lambda: running.cluster.find("nodeclaims", sick.name) is None)


def test_while_ec2_does_not_say_how_instances_are_the_poll_does_everything_else(running: World) -> None:
    def refuse() -> tuple[InstanceStatus, ...]:
        raise Unavailable("You are not authorized", code="UnauthorizedOperation")

    running.ec2.unhealthy_instances = refuse  # type: ignore[method-assign]
    result = poll(running.ports, now=running.clock.now(), scheduled=True)
    assert (result.nodeclaims, result.instances_in_trouble) == (6, {})
    assert "UnauthorizedOperation" in result.status_error
