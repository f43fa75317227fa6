"""Something does not answer for minutes: nothing is lost meanwhile, and afterwards everything goes on."""

from collections.abc import Iterable

import msgspec
import pytest

from spotwright.errors import ApiError, InvalidRequest, Throttled, Unavailable
from spotwright.lifecycle import registration_health
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import find_condition
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation import builders
from spotwright.simulation.effects import Crash
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import LaunchRow, epoch_ms

OUTAGES = [
    ("cluster", Unavailable("no answer")),
    ("ec2", Throttled("too many requests")),
    ("state", Unavailable("table not found")),
    ("blobs", Unavailable("no such bucket")),
    ("doorbells", Unavailable("no such queue")),
]
POD = builders.pod("inflate", cpu_millicores=1800)


@pytest.mark.parametrize(("port", "failure"), OUTAGES, ids=[port for port, _ in OUTAGES])
@pytest.mark.parametrize("begins", [0, 3, 25, 40])
def test_an_outage_of_four_minutes_costs_time_and_no_node(
    world: World, port: str, failure: ApiError, begins: int
) -> None:
    world.deploy(POD, 2)
    world.run(begins)
    world.outages[port] = failure
    world.run(240)
    ended = len([instance for instance in world.ec2.all_instances() if instance.state == "terminated"])
    assert ended == 0
    assert not [nodeclaim for nodeclaim in world.claims() if nodeclaim.metadata.deletion_timestamp is not None]
    world.outages.clear()
    assert world.run(900, until=lambda: len(world.running_pods()) == 2)
    world.run(180)
    assert len(world.ec2.live_instances()) == 2


@pytest.mark.parametrize(("port", "failure"), OUTAGES, ids=[port for port, _ in OUTAGES])
def test_messages_do_not_multiply_in_an_outage(world: World, port: str, failure: ApiError) -> None:
    world.deploy(POD, 2)
    world.run(5)
    world.outages[port] = failure
    world.run(240)
    early = len(world.doorbells.messages)
    world.run(360)
    assert len(world.doorbells.messages) <= early + 20


@pytest.mark.parametrize(("port", "failure"), OUTAGES, ids=[port for port, _ in OUTAGES])
@pytest.mark.parametrize("begins", [2, 10])
def test_an_outage_of_twenty_minutes_costs_no_node_that_joined_meanwhile(
    world: World, port: str, failure: ApiError, begins: int
) -> None:
    """Its claim was not registered in time, only because nobody could write it."""
    world.run(100)
    world.deploy(POD, 2)
    world.run(begins)
    launched = {instance.id for instance in world.ec2.live_instances()}
    assert len(launched) == 2
    world.outages[port] = failure
    world.run(1200)
    world.outages.clear()
    assert world.run(300, until=lambda: all(claim.is_condition_true("Initialized") for claim in world.claims()))
    world.run(300)
    assert {instance.id for instance in world.ec2.live_instances()} == launched
    assert len(world.running_pods()) == 2
    health = find_condition(world.cluster.nodepools()[0].conditions, registration_health.CONDITION)
    assert health is not None
    assert health.status == "True"


def test_a_node_that_joins_while_dynamodb_does_not_answer_is_registered_and_initialized_then(world: World) -> None:
    """Nothing of it needs DynamoDB but how the NodePool remembers that it joined."""
    world.run(100)
    world.deploy(POD, 1)
    world.run(10)
    world.outages["state"] = Unavailable("no answer")
    world.run(30)
    (claim,) = world.claims()
    assert claim.is_condition_true("Registered")
    assert claim.is_condition_true("Initialized")
    assert len(world.running_pods()) == 1


@pytest.mark.parametrize("is_found", [True, False], ids=["a running instance", "an instance that EC2 does not find"])
def test_a_claim_receives_the_instance_of_its_launch_however_late_it_is(world: World, is_found: bool) -> None:
    """The API server did not answer from CreateFleet on, and the claim is looked at before its launch."""
    world.run(100)
    world.deploy(POD, 1)
    assert world.run(10, until=lambda: bool(world.claims()))
    (claim,) = world.claims()
    world.cluster.update("nodeclaims", claim.name, provider_id="", conditions=())
    row = world.state.launch(claim.metadata.annotations[labels.LAUNCH])
    assert row is not None
    world.state.save(msgspec.structs.replace(row, phase="launched"))
    world.forget_changes()
    world.clock.advance(301)
    if not is_found:
        world.ec2.forget_instance(row.instances[claim.name])
    lifecycle(world.ports, [Doorbell(world.cluster.name, "claim", claim.name)], now=world.clock.now())
    (current,) = world.claims()
    assert current.is_condition_true("Launched") is is_found
    assert (current.metadata.deletion_timestamp is None) is is_found


def _claim_awaiting_its_instance(world: World) -> tuple[NodeClaim, LaunchRow]:
    """CreateFleet was answered five minutes ago, and the claim could not be written since."""
    world.run(100)
    world.deploy(POD, 1)
    assert world.run(10, until=lambda: bool(world.claims()))
    (claim,) = world.claims()
    world.cluster.update("nodeclaims", claim.name, provider_id="", conditions=())
    row = world.state.launch(claim.metadata.annotations[labels.LAUNCH])
    assert row is not None
    world.clock.advance(301)
    return claim, world.state.save(msgspec.structs.replace(row, phase="launched"))


def test_a_claim_does_not_wait_for_the_next_try_of_its_launch(world: World) -> None:
    """The last one failed a moment before the API server answered again."""
    claim, row = _claim_awaiting_its_instance(world)
    world.state.save(msgspec.structs.replace(row, not_before=epoch_ms(world.clock.now()) + 4000))
    lifecycle(world.ports, [Doorbell(world.cluster.name, "claim", claim.name)], now=world.clock.now())
    (current,) = world.claims()
    assert current.is_condition_true("Launched")
    assert current.metadata.deletion_timestamp is None


def test_a_claim_that_cannot_be_given_its_instance_now_is_not_given_up(world: World) -> None:
    claim, _ = _claim_awaiting_its_instance(world)
    world.outages["ec2"] = Throttled("too many requests")
    lifecycle(world.ports, [Doorbell(world.cluster.name, "claim", claim.name)], now=world.clock.now())
    (current,) = world.claims()
    assert current.metadata.deletion_timestamp is None
    world.outages.clear()
    assert world.run(120, until=lambda: len(world.running_pods()) == 1)
    assert [claim.name for claim in world.claims()] == [current.name]


def test_a_claim_that_the_api_server_refuses_to_take_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its pods would wait for it for ever."""
    claim, _ = _claim_awaiting_its_instance(world)

    def refuse(*_: object) -> NodeClaim:
        raise InvalidRequest("admission webhook denied the request", code="Invalid")

    with monkeypatch.context() as refusing:
        refusing.setattr(world.cluster, "patch_nodeclaim", refuse)
        lifecycle(world.ports, [Doorbell(world.cluster.name, "claim", claim.name)], now=world.clock.now())
    assert [left for left in world.claims() if left.metadata.deletion_timestamp is None] == []


def test_a_claim_that_is_late_writes_no_other_claim_of_its_launch(world: World) -> None:
    """Each of a hundred would read and write all of them."""
    world.run(100)
    world.deploy(POD, 3)
    assert world.run(10, until=lambda: len(world.claims()) == 3)
    for claim in world.claims():
        world.cluster.update("nodeclaims", claim.name, provider_id="", conditions=())
    (first, *_) = world.claims()
    row = world.state.launch(first.metadata.annotations[labels.LAUNCH])
    assert row is not None
    assert len(row.claims) == 3
    world.state.save(msgspec.structs.replace(row, phase="launched"))
    world.clock.advance(301)
    lifecycle(world.ports, [Doorbell(world.cluster.name, "claim", first.name)], now=world.clock.now())
    assert [claim.name for claim in world.claims() if claim.provider_id] == [first.name]


def _claims_whose_launch_was_not_noted(world: World, replicas: int) -> tuple[NodeClaim, ...]:
    """EC2 answered CreateFleet five minutes ago, and DynamoDB has not taken anything since."""
    world.run(100)
    world.deploy(POD, replicas)
    world.effects.crash_at("ec2", "create_fleet")
    with pytest.raises(Crash):
        world.run(10)
    (row,) = world.state.launches()
    assert (row.phase, bool(row.request), row.instances) == ("claimed", True, {})
    world.clock.advance(301)
    return world.claims()


def _ring_for(world: World, claims: Iterable[NodeClaim]) -> None:
    """The claims are looked at, and their launch is not."""
    bells = [Doorbell(world.cluster.name, "claim", claim.name) for claim in claims]
    lifecycle(world.ports, bells, now=world.clock.now())


def test_a_claim_is_not_given_up_though_its_instance_was_never_noted(world: World) -> None:
    claims = _claims_whose_launch_was_not_noted(world, 3)
    launched = {instance.id for instance in world.ec2.live_instances()}
    _ring_for(world, claims)
    assert all(claim.is_condition_true("Launched") for claim in world.claims())
    (row,) = world.state.launches()
    noted = {claim.name: instance_id(claim.provider_id) for claim in world.claims()}
    assert row.instances == noted, "another worker goes by it"
    assert world.run(120, until=lambda: len(world.running_pods()) == 3)
    world.run(180)
    assert {claim.name for claim in world.claims()} == {claim.name for claim in claims}
    assert {instance.id for instance in world.ec2.live_instances()} == launched
    assert not world.effects.select("ec2", "terminate")


def test_a_claim_for_which_ec2_launched_nothing_is_given_up_alone(world: World) -> None:
    first, *others = _claims_whose_launch_was_not_noted(world, 3)
    gone = min(instance.id for instance in world.ec2.live_instances())
    world.ec2.forget_instance(gone)
    _ring_for(world, [first, *others])
    kept = [claim for claim in world.claims() if claim.metadata.deletion_timestamp is None]
    assert len(kept) == 2
    assert all(claim.is_condition_true("Launched") for claim in kept)


def test_a_claim_is_not_given_up_before_ec2_says_whether_it_has_an_instance(world: World) -> None:
    claims = _claims_whose_launch_was_not_noted(world, 1)
    world.outages["ec2"] = Throttled("too many requests")
    _ring_for(world, claims)
    (claim,) = world.claims()
    assert claim.metadata.deletion_timestamp is None


def test_a_claim_whose_instance_was_noted_receives_it_while_others_of_its_launch_wait(world: World) -> None:
    """EC2 had no capacity for all of them, and the API server did not answer."""
    first, second = _claims_whose_launch_was_not_noted(world, 2)
    (row,) = world.state.launches()
    instances = {first.name: min(instance.id for instance in world.ec2.live_instances())}
    world.state.save(msgspec.structs.replace(row, request="", instances=instances))
    _ring_for(world, [first, second])
    assert [claim.name for claim in world.claims() if claim.is_condition_true("Launched")] == [first.name]
    assert [claim.name for claim in world.claims() if claim.metadata.deletion_timestamp is None] == [first.name]


@pytest.mark.parametrize("has_ended", [False, True], ids=["its instance runs", "its instance has ended"])
def test_without_dynamodb_a_deleted_node_is_drained_and_stays_until_it_answers(world: World, has_ended: bool) -> None:
    world.deploy(POD, 1)
    assert world.run(120, until=lambda: bool(world.running_pods()))
    world.run(60)
    world.forget_deployments()
    (claim,) = world.claims()
    world.outages["state"] = Unavailable("no answer")
    if has_ended:
        world.ec2.stop(instance_id(claim.provider_id), after_seconds=0)
    world.cluster.delete("nodeclaims", claim.metadata)
    world.run(600)
    assert [left.name for left in world.claims()] == [claim.name]
    assert [node.name for node in world.cluster.nodes()] == [claim.node_name]
    assert has_ended or not world.cluster.pods(node=claim.node_name)
    assert len(world.ec2.live_instances()) == (0 if has_ended else 1)
    world.outages.clear()
    assert world.run(300, until=lambda: not world.claims() and not world.cluster.nodes())
    assert not world.ec2.live_instances()
