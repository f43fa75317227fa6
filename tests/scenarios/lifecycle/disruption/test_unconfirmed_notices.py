"""Notices that are old, name what is not ours, or cannot be checked: nothing is removed for them, nobody waits."""

from collections.abc import Collection
from datetime import datetime, timedelta

import msgspec
import pytest

from spotwright.errors import ApiError, Conflict, Throttled
from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.telemetry import log_lines
from spotwright.workflows.interrupt import interrupt
from spotwright.workflows.lifecycle.interruptions import step_notices
from spotwright.workflows.ports.rows import NoticeRow
from tests.scenarios.lifecycle.conftest import fresh_world
from tests.scenarios.lifecycle.disruption.sick_nodes import is_deleted, reasons, with_nodes

SPOT = "EC2 Spot Instance Interruption Warning"
STATE = "EC2 Instance State-change Notification"
REBALANCE = "EC2 Instance Rebalance Recommendation"
FOREIGN = "i-0f00000000000000f"


def running(nodes: int = 1) -> World:
    return with_nodes(fresh_world(), nodes, gates=())


def id_of(claim: NodeClaim) -> str:
    return instance_id(claim.provider_id)


def tell(world: World, kind: str, instance: str, at: datetime | None = None, state: str = "") -> None:
    """EventBridge delivers a message that it took at that time, None = now."""
    detail = {"instance-id": instance, "state": state} if state else {"instance-id": instance}
    envelope = {
        "id": f"event-{len(world.effects.log)}", "detail-type": kind, "source": "aws.ec2",
        "time": (at or world.clock.now()).isoformat(), "detail": detail,
    }  # fmt: skip
    interrupt({world.cluster.name: world.ports}, world.ports.ec2, envelope, now=world.clock.now())


def notice(world: World, instance: str) -> NoticeRow:
    row = world.state.notice(instance)
    assert row is not None
    return row


def is_replaced(world: World, claim: NodeClaim) -> bool:
    """The pod of the only node leaves in time, for a second one that was asked for."""
    world.ec2.stop(id_of(claim), after_seconds=120)
    return world.run(100, until=lambda: bool(world.effects.select("cluster", "evict"))) and len(world.ec2.requests) == 2


# Instances of others, and ids that are none


def test_while_ec2_does_not_say_whose_an_instance_is_the_nodes_of_other_notices_are_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = running()
    (claim,) = world.claims()
    asked = list[str]()

    def refuse(ids: str | Collection[str]) -> tuple[Instance, ...]:
        asked.extend([ids] if isinstance(ids, str) else ids)
        raise Throttled("Request limit exceeded", code="RequestLimitExceeded")

    monkeypatch.setattr(world.ec2, "instance", refuse)
    monkeypatch.setattr(world.ec2, "instances_by_id", refuse)
    tell(world, SPOT, FOREIGN)
    tell(world, SPOT, id_of(claim))
    world.run(10)
    assert set(asked) == {FOREIGN, id_of(claim)}, "the second by the function that records"
    assert len(world.ec2.requests) == 2
    monkeypatch.undo()
    assert is_replaced(world, claim)


def test_what_ec2_does_not_answer_about_is_asked_for_a_minute_only(monkeypatch: pytest.MonkeyPatch) -> None:
    world = running()

    def refuse(_: object) -> tuple[Instance, ...]:
        raise Throttled("Request limit exceeded", code="RequestLimitExceeded")

    monkeypatch.setattr(world.ec2, "instance", refuse)
    monkeypatch.setattr(world.ec2, "instances_by_id", refuse)
    tell(world, SPOT, FOREIGN)
    world.run(50)
    assert notice(world, FOREIGN).phase == "new", "it may be ours"
    world.run(15)
    assert notice(world, FOREIGN).phase == "done"
    assert not world.doorbells.messages_of("notices", "notice")


def refuse_malformed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lists refuse an id of another form, too."""
    listed, read = world.ec2.instances_by_id, world.ec2.instance

    def check(ids: Collection[str]) -> None:
        for id in ids:
            if not id.startswith("i-0"):
                raise ApiError(f'Invalid id: "{id}"', code="InvalidInstanceID.Malformed")

    def instances_by_id(ids: Collection[str]) -> tuple[Instance, ...]:
        check(ids)
        return listed(ids)

    def instance(id: str) -> Instance | None:
        check([id])
        return read(id)

    monkeypatch.setattr(world.ec2, "instances_by_id", instances_by_id)
    monkeypatch.setattr(world.ec2, "instance", instance)


@pytest.mark.parametrize("malformed", ["i-unknown", "i-ABC"])
def test_an_id_that_is_none_is_nobodys_and_ends_at_once(malformed: str, monkeypatch: pytest.MonkeyPatch) -> None:
    world = running()
    (claim,) = world.claims()
    refuse_malformed(world, monkeypatch)
    tell(world, SPOT, malformed)
    tell(world, SPOT, FOREIGN)
    tell(world, SPOT, id_of(claim))
    world.run(5)
    assert notice(world, malformed).phase == "done"
    assert notice(world, FOREIGN).phase == "new", "EC2 does not show it yet, so that it may be ours"
    assert is_replaced(world, claim)


def test_many_instances_that_no_claim_has_are_one_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those that EC2 shows; of the others only a read by id says whether they exist."""
    world = running()
    (mine,) = world.ec2.live_instances()
    others = [f"i-{number:017x}" for number in range(100, 120)]
    for other in others:
        world.ec2.instances[other] = msgspec.structs.replace(mine, id=other, tags={"Name": "another"})
    for other in others:
        monkeypatch.setattr("spotwright.workflows.interrupt.find_clusters", _every_cluster)
        tell(world, STATE, other, state="stopping")
    reads = world.effects.reads.copy()
    world.run(3)
    assert (world.effects.reads - reads)["ec2", "instances_by_id"] <= 2
    assert (world.effects.reads - reads)["ec2", "instance"] == 0
    assert {notice(world, other).phase for other in others} == {"done"}


def _every_cluster(clusters: Collection[str], _: object, ids: Collection[str]) -> dict[str, tuple[str, ...]]:
    """As where EC2 did not answer when the message was recorded."""
    return dict.fromkeys(ids, tuple(clusters))


def test_for_an_instance_of_another_cluster_not_all_claims_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = running()
    (mine,) = world.ec2.live_instances()
    world.ec2.instances[FOREIGN] = msgspec.structs.replace(mine, id=FOREIGN, tags={"Name": "another"})
    monkeypatch.setattr("spotwright.workflows.interrupt.find_clusters", _every_cluster)
    tell(world, SPOT, FOREIGN)
    world.clock.advance(1)
    reads = world.effects.reads.copy()
    step_notices(world.ports, [FOREIGN], now=world.clock.now())
    assert notice(world, FOREIGN).phase == "done"
    assert not (world.effects.reads - reads)["cluster", "nodeclaims"]


def gone(world: World) -> str:
    """The instance of a claim that went with it, of which EC2 still tells."""
    (claim,) = world.claims()
    world.forget_deployments()
    world.cluster.remove("nodeclaims", claim.name)
    world.cluster.remove("nodes", claim.node_name)
    instance = msgspec.structs.replace(world.ec2.instances[id_of(claim)], state="shutting-down")
    world.ec2.instances[instance.id] = instance
    return instance.id


@pytest.mark.parametrize(("kind", "state"), [(STATE, "terminated"), (SPOT, ""), (REBALANCE, "")])
def test_the_end_of_an_instance_whose_claim_has_gone_is_looked_at_once(kind: str, state: str) -> None:
    """Its tags name the claim: none is waited for, of which all would be listed each time."""
    world = running()
    instance = gone(world)
    tell(world, kind, instance, state=state)
    reads = world.effects.reads.copy()
    world.run(5)
    assert notice(world, instance).phase == "done"
    assert (world.effects.reads - reads)["cluster", "nodeclaims"] == 1
    found = world.ec2.instances[instance]
    health = world.state.health.get(f"spot:{found.instance_type}:{found.zone}")
    assert (health is not None and health.interruptions == 1) is (kind == SPOT), "an interruption is remembered"


def test_a_warning_for_an_instance_whose_claim_was_restored_without_its_status_waits() -> None:
    """The claim that the tags of the instance name is there: it is given its instance soon."""
    world = running()
    (claim,) = world.claims()
    instance = gone(world)
    metadata = msgspec.structs.replace(claim.metadata, uid="", resource_version="", labels={labels.NODEPOOL: "default"})
    world.cluster.put("nodeclaims", msgspec.structs.replace(claim, metadata=metadata, provider_id="", conditions=()))
    tell(world, SPOT, instance)
    world.clock.advance(5)
    step_notices(world.ports, [instance], now=world.clock.now())
    assert notice(world, instance).phase == "new"


def test_the_end_of_an_instance_that_may_get_a_claim_is_looked_at_more_and_more_seldom() -> None:
    world = running()
    instance = gone(world)
    tags = {key: value for key, value in world.ec2.instances[instance].tags.items() if key != labels.NODECLAIM}
    world.ec2.instances[instance] = msgspec.structs.replace(world.ec2.instances[instance], tags=tags)
    tell(world, STATE, instance, state="terminated")
    reads = world.effects.reads.copy()
    world.run(30)
    assert notice(world, instance).phase == "new"
    world.run(60)
    assert notice(world, instance).phase == "done"
    assert 6 <= (world.effects.reads - reads)["ec2", "instance"] <= 20


def test_a_claim_of_another_provider_with_the_instance_is_left_alone() -> None:
    world = running()
    (claim,) = world.claims()
    foreign = NodeClassReference("karpenter.azure.com", "AKSNodeClass", "default")
    world.cluster.update("nodeclaims", claim.name, node_class_ref=foreign)
    tell(world, SPOT, id_of(claim))
    world.run(100)
    assert not is_deleted(world, claim)
    assert not world.cluster.find("nodes", claim.node_name).taints


def test_a_warning_that_comes_before_the_instance_is_assigned_to_its_claim_is_not_lost() -> None:
    """EC2 takes back what it has just launched; the API server does not answer meanwhile."""
    world = fresh_world()
    world.kubelets.boot_seconds = 300
    world.effects.inject(Fault("cluster", "patch_metadata", Throttled("wait", code="429"), times=4))
    world.effects.inject(Fault("cluster", "patch_nodeclaim", Throttled("wait", code="429"), times=4))
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 1)
    assert world.run(60, until=lambda: bool(world.ec2.live_instances()))
    (claim,) = world.claims()
    assert not claim.provider_id
    (instance,) = world.ec2.live_instances()
    world.interrupt_spot(instance.id)
    assert world.run(60, until=lambda: bool(world.cluster.find("nodeclaims", claim.name).provider_id))
    assert world.run(10, until=lambda: is_deleted(world, claim))


def test_a_warning_before_the_node_has_joined_takes_the_claim_at_once() -> None:
    """Nothing runs there that would have to be planned for; its pods are pending."""
    world = fresh_world()
    world.kubelets.boot_seconds = 300
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 1)
    assert world.run(60, until=lambda: bool(world.claims()) and world.claims()[0].is_condition_true("Launched"))
    (claim,) = world.claims()
    world.interrupt_spot(id_of(claim))
    assert world.run(6, until=lambda: is_deleted(world, claim))
    assert not any(b'"kind":"interrupt"' in body for body in world.blobs.bodies.values())


# Messages that are old


@pytest.mark.parametrize("state", ["stopping", "stopped", "shutting-down", "terminated"])
def test_a_message_of_a_state_that_the_instance_does_not_have_removes_nothing(
    state: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = running()
    (claim,) = world.claims()
    reads = world.effects.reads.copy()
    tell(world, STATE, id_of(claim), world.clock.now() - timedelta(hours=5), state)
    assert not world.run(150, until=lambda: is_deleted(world, claim))
    assert notice(world, id_of(claim)).phase == "done"
    assert "EC2 says that the instance is running" in [getattr(line, "details", "") for line in caplog.records]
    assert (world.effects.reads - reads)["ec2", "instance"] <= 8


def test_a_state_that_ec2_shows_a_few_seconds_later_counts() -> None:
    world = running()
    (claim,) = world.claims()
    tell(world, STATE, id_of(claim), state="shutting-down")
    world.run(5)
    world.ec2.stop(id_of(claim), after_seconds=0)
    world.clock.advance(1)
    step_notices(world.ports, [id_of(claim)], now=world.clock.now())
    assert is_deleted(world, claim)
    assert "InstanceTerminating" in reasons(world, claim.name)


def test_of_two_workers_on_a_notice_that_ec2_does_not_confirm_the_one_that_saves_its_row_says_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = running()
    (claim,) = world.claims()
    tell(world, STATE, id_of(claim), state="stopping")
    world.clock.advance(60)
    world.effects.inject(Fault("state", "save", Conflict("another worker saved it", code="Conflict"), times=1))
    for lines in (0, 1):
        step_notices(world.ports, [id_of(claim)], now=world.clock.now())
        said = [line.getMessage() for line in caplog.records]
        assert said.count(log_lines.NOTICE_NOT_CONFIRMED.message) == lines


def test_while_ec2_does_not_answer_the_notice_of_an_end_waits_a_minute_and_then_for_the_sweep(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = running()
    (claim,) = world.claims()
    tell(world, STATE, id_of(claim), state="terminated")
    world.outages["ec2"] = Throttled("Request limit exceeded", code="RequestLimitExceeded")
    world.run(50)
    assert notice(world, id_of(claim)).phase == "new"
    world.run(20)
    assert notice(world, id_of(claim)).phase == "done"
    assert not is_deleted(world, claim)
    assert any("EC2 does not say" in getattr(line, "details", "") for line in caplog.records)
    world.outages.clear()
    world.ec2.stop(id_of(claim), after_seconds=0)
    assert world.run(200, until=lambda: is_deleted(world, claim))


def test_an_instance_that_ec2_does_not_find_is_looked_for_twice() -> None:
    world = running()
    (claim,) = world.claims()
    tell(world, STATE, id_of(claim), state="terminated")
    world.ec2.forget_instance(id_of(claim))
    step_notices(world.ports, [id_of(claim)], now=world.clock.now())
    assert not is_deleted(world, claim)
    assert notice(world, id_of(claim)).phase == "done"
    (rung,) = world.doorbells.messages_of("lifecycle", "claim-instance")
    assert rung.doorbell.key == claim.name


def test_many_instances_that_end_are_one_call() -> None:
    world = running(10)
    claims = world.claims()
    for claim in claims:
        world.ec2.stop(id_of(claim), after_seconds=0)
        tell(world, STATE, id_of(claim), state="shutting-down")
    reads = world.effects.reads.copy()
    world.settle()
    assert all(is_deleted(world, claim) for claim in claims)
    assert (world.effects.reads - reads)["ec2", "instances_by_id"] == 1


def test_the_end_of_an_instance_that_spotwright_terminates_is_not_asked_about() -> None:
    world = running()
    (claim,) = world.claims()
    world.forget_deployments()
    world.cluster.delete("nodeclaims", claim.metadata)
    assert world.run(60, until=lambda: bool(world.effects.select("ec2", "terminate")))
    tell(world, STATE, id_of(claim), state="shutting-down")
    reads = world.effects.reads.copy()
    assert notice(world, id_of(claim)).phase == "expected"
    assert not world.doorbells.messages_of("notices", "notice")
    world.pass_second()
    assert not {action for port, action in world.effects.reads - reads if port == "ec2"}


@pytest.mark.parametrize("kind", [SPOT, "EC2 Capacity Reservation Instance Interruption Warning"])
def test_a_warning_of_long_ago_for_an_instance_that_runs_removes_nothing(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = running()
    (claim,) = world.claims()
    tell(world, kind, id_of(claim), world.clock.now() - timedelta(hours=5))
    assert not world.run(150, until=lambda: is_deleted(world, claim))
    assert notice(world, id_of(claim)).phase == "done"
    assert not world.cluster.find("nodes", claim.node_name).taints
    assert not world.effects.select("cluster", "evict")
    assert "EC2 says that the instance is running" in [getattr(line, "details", "") for line in caplog.records]


def test_a_warning_of_long_ago_for_an_instance_that_goes_is_acted_on() -> None:
    """The functions were down for minutes."""
    world = running()
    (claim,) = world.claims()
    tell(world, SPOT, id_of(claim), world.clock.now() - timedelta(minutes=5))
    world.ec2.stop(id_of(claim), after_seconds=0)
    world.clock.advance(1)
    step_notices(world.ports, [id_of(claim)], now=world.clock.now())
    assert notice(world, id_of(claim)).phase == "replacing"
    assert "SpotInterrupted" in reasons(world, claim.name)
    assert world.run(10, until=lambda: is_deleted(world, claim))


@pytest.mark.parametrize("late", [30, 110, 170])
def test_a_warning_that_is_handled_late_is_not_asked_about(late: int) -> None:
    """EC2 takes the instance a moment after the second that it names."""
    world = running()
    (claim,) = world.claims()
    tell(world, SPOT, id_of(claim), world.clock.now() - timedelta(seconds=late))
    reads = world.effects.reads.copy()
    assert world.run(120, until=lambda: is_deleted(world, claim))
    assert not (world.effects.reads - reads)["ec2", "instances_by_id"]


@pytest.mark.parametrize("ahead", [timedelta(minutes=5), timedelta(days=1)])
def test_a_row_that_a_clock_ahead_wrote_is_not_waited_with(ahead: timedelta) -> None:
    world = running()
    (claim,) = world.claims()
    envelope = {
        "id": "e", "detail-type": SPOT, "source": "aws.ec2", "time": world.clock.now().isoformat(),
        "detail": {"instance-id": id_of(claim)},
    }  # fmt: skip
    interrupt({world.cluster.name: world.ports}, world.ports.ec2, envelope, now=world.clock.now() + ahead)
    assert is_replaced(world, claim)


def test_the_notice_of_nobodys_instance_that_a_clock_ahead_wrote_ends() -> None:
    world = running()
    envelope = {
        "id": "e", "detail-type": SPOT, "source": "aws.ec2", "time": world.clock.now().isoformat(),
        "detail": {"instance-id": FOREIGN},
    }  # fmt: skip
    interrupt({world.cluster.name: world.ports}, world.ports.ec2, envelope, now=world.clock.now() + timedelta(days=1))
    world.run(10)
    assert notice(world, FOREIGN).phase == "done"


# Two NodeClaims of one instance


def add_twin(world: World, claim: NodeClaim, name: str, *, node: str = "") -> NodeClaim:
    """A second claim of the instance, as a restored backup makes it: launched; registered where it names a node."""
    metadata = msgspec.structs.replace(claim.metadata, name=name, uid="", resource_version="")
    types = ("Launched", "Registered") if node else ("Launched",)
    conditions = tuple(condition for condition in claim.conditions if condition.type in types)
    twin = msgspec.structs.replace(claim, metadata=metadata, node_name=node, conditions=conditions)
    stored: NodeClaim = world.cluster.put("nodeclaims", twin)
    return stored


@pytest.mark.parametrize("node", ["", "gone"])
@pytest.mark.parametrize("name", ["aa-twin", "zz-twin"])
def test_of_two_claims_of_an_instance_the_one_with_the_node_is_replaced(name: str, node: str) -> None:
    world = running()
    (claim,) = world.claims()
    twin = add_twin(world, claim, name, node=node)
    asked = len(world.ec2.requests)
    tell(world, SPOT, id_of(claim))
    world.run(10)
    assert {taint.key for taint in world.cluster.find("nodes", claim.node_name).taints} == {labels.DISRUPTED}
    assert len(world.ec2.requests) > asked
    assert notice(world, id_of(claim)).claim == claim.name
    assert world.run(110, until=lambda: is_deleted(world, claim))
    assert not is_deleted(world, twin)


def test_of_claims_of_an_instance_none_of_which_has_its_node_none_is_taken() -> None:
    world = running()
    (claim,) = world.claims()
    add_twin(world, claim, "aa-twin")
    world.cluster.remove("nodes", claim.node_name)
    world.doorbells.messages.clear()
    world.forget_changes()
    tell(world, STATE, id_of(claim), state="terminated")
    world.ec2.stop(id_of(claim), after_seconds=0)
    world.run(5)
    assert not any(is_deleted(world, each) for each in world.claims())
    assert notice(world, id_of(claim)).phase == "new"
