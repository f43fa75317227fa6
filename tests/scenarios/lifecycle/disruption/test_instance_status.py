"""Instances that EC2 calls impaired, and instances for which it has scheduled an event."""

from datetime import timedelta

import msgspec
import pytest

from spotwright.errors import ApiError, Conflict, Denied, Throttled, Unavailable
from spotwright.model.ec2.instance_status import Impairment, InstanceStatus, ScheduledEvent, StatusCheck
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import Condition
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.repairs import repair_nodes
from spotwright.workflows.ports.rows import NoticeRow, Row
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


def test_an_impaired_instance_of_others_is_neither_counted_nor_looked_at(running: World) -> None:
    ours = running.ec2.live_instances()[0]
    running.ec2.add_instance(msgspec.structs.replace(ours, id="i-foreign", tags={}), like=ours.id)
    long_ago = running.clock.seconds() - timedelta(hours=1)
    running.ec2.statuses["i-foreign"] = InstanceStatus("i-foreign", (Impairment(StatusCheck.SYSTEM, long_ago),))
    running.doorbells.receive("lifecycle")
    result = poll(running.ports, now=running.clock.now(), scheduled=True)
    assert not any(result.instances_in_trouble.values())
    assert not running.doorbells.messages_of("lifecycle", "repair")


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


@pytest.mark.parametrize("failure", [Throttled("slower", code="RequestLimitExceeded"), Denied("no", code="Denied")])
def test_while_ec2_does_not_say_how_instances_are_nodes_are_repaired_by_their_conditions(
    world: World, monkeypatch: pytest.MonkeyPatch, failure: ApiError
) -> None:
    world = with_nodes(world, 6)
    sick = world.claims()[0]

    def refuse() -> tuple[InstanceStatus, ...]:
        raise failure

    monkeypatch.setattr(world.ec2, "unhealthy_instances", refuse)
    node = world.cluster.find("nodes", sick.node_name)
    condition = Condition("KernelReady", "False", "Found", last_transition_time=world.clock.seconds())
    world.cluster.update("nodes", node.name, conditions=(*node.conditions, condition))
    assert not world.run(29 * MINUTES, until=lambda: is_deleted(world, sick))
    assert world.run(4 * MINUTES, until=lambda: is_deleted(world, sick))


# An event beside a notice that there is


def with_event(world: World, claim: NodeClaim, **ahead: float) -> str:
    """The instance, which has an event in so long."""
    id = instance_id(claim.provider_id)
    event = ScheduledEvent("instance-retirement", world.clock.seconds() + timedelta(**ahead))
    world.ec2.statuses[id] = InstanceStatus(id, (), (event,))
    return id


def noticed(world: World, id: str) -> NoticeRow | None:
    """The notice of the instance after a look at all Nodes, before anybody acts on it."""
    repair_nodes(world.ports, now=world.clock.now())
    return world.state.notice(id)


def test_an_open_notice_of_an_interruption_stays(running: World) -> None:
    id = with_event(running, running.claims()[0], days=3)
    running.deliver_event("EC2 Spot Instance Interruption Warning", {"instance-id": id})
    before = running.state.notice(id)
    assert noticed(running, id) == before


def test_a_recommendation_gives_way_to_an_event(running: World) -> None:
    claim = running.claims()[0]
    id = instance_id(claim.provider_id)
    running.deliver_event("EC2 Instance Rebalance Recommendation", {"instance-id": id})
    running.settle()
    with_event(running, claim, days=3)
    row = noticed(running, id)
    assert row is not None
    assert (row.kind, row.phase) == ("scheduled_change", "new")


def test_a_node_without_the_finalizer_of_its_termination_gets_no_notice(running: World) -> None:
    """It is not ours, whatever its provider id."""
    claim = running.claims()[0]
    node = running.cluster.find("nodes", claim.node_name)
    metadata = msgspec.structs.replace(node.metadata, finalizers=())
    running.cluster.put("nodes", msgspec.structs.replace(node, metadata=metadata))
    assert noticed(running, with_event(running, claim, days=3)) is None


def test_a_later_event_does_not_take_the_place_of_an_earlier_one(running: World) -> None:
    claim = running.claims()[0]
    before = noticed(running, with_event(running, claim, days=3))
    assert noticed(running, with_event(running, claim, days=4)) == before


def test_an_event_of_an_instance_whose_earlier_notice_ended_without_effect_is_news(running: World) -> None:
    """EC2 said that it had stopped, but it runs."""
    claim = running.claims()[0]
    id = instance_id(claim.provider_id)
    running.deliver_event("EC2 Instance State-change Notification", {"instance-id": id, "state": "stopped"})
    running.run(15)
    row = noticed(running, with_event(running, claim, days=3))
    assert row is not None
    assert (row.kind, row.phase) == ("scheduled_change", "new")


def test_what_was_done_about_an_event_is_not_done_again(running: World) -> None:
    claim = running.claims()[0]
    running.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget("all", "inflate", min_available="100%"))
    id = with_event(running, claim, minutes=50)
    assert running.run(2 * MINUTES, until=lambda: is_deleted(running, claim))
    running.settle()
    before = running.state.notice(id)
    assert before is not None
    assert before.phase == "done"
    assert noticed(running, id) == before


@pytest.mark.parametrize("failure", [Conflict("changed", code="Conflict"), Throttled("slower", code="Throttling")])
def test_a_notice_that_cannot_be_written_keeps_neither_other_notices_nor_repairs(
    running: World, monkeypatch: pytest.MonkeyPatch, failure: ApiError
) -> None:
    sick, refused, noticed, *_ = running.claims()
    event = ScheduledEvent("instance-stop", running.clock.seconds() + timedelta(days=2))
    for claim in (refused, noticed):
        id = instance_id(claim.provider_id)
        running.ec2.statuses[id] = InstanceStatus(id, (), (event,))
    impair(running, sick, StatusCheck.SYSTEM)
    create = running.state.create

    def refuse(row: Row) -> bool:
        if isinstance(row, NoticeRow) and row.instance_id == instance_id(refused.provider_id):
            raise failure
        return create(row)

    monkeypatch.setattr(running.state, "create", refuse)
    assert running.run(5 * MINUTES, until=lambda: is_deleted(running, sick))
    assert running.state.notice(instance_id(noticed.provider_id)) is not None
