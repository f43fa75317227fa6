"""NodeClaims or Nodes that share an instance: reported, drained together, and it stays while one is there."""

from collections.abc import Collection
from datetime import timedelta

import msgspec
import pytest

from spotwright.errors import Denied
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, OwnerReference, find_condition
from spotwright.model.kubernetes.node import Node, instance_id
from spotwright.model.kubernetes.pod import Pod
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import NoticeRow
from tests.scenarios.lifecycle.termination.nodes_and_claims import (
    MINUTES,
    current,
    is_deleted,
    move_pods,
    node_of,
    running_claim,
    second_node,
)


def twin(world: World, claim: NodeClaim) -> NodeClaim:
    """A second claim with the same instance."""
    metadata = ObjectMeta(
        "twin", labels=claim.metadata.labels, finalizers=(labels.FINALIZER,), creation_timestamp=world.clock.now()
    )
    conditions = tuple(condition for condition in claim.conditions if condition.type == "Launched")
    made = msgspec.structs.replace(claim, metadata=metadata, node_name="", conditions=conditions)
    stored: NodeClaim = world.cluster.put("nodeclaims", made)
    return stored


def test_two_claims_of_one_instance_are_reported_and_a_deleted_node_costs_neither(world: World) -> None:
    claim = running_claim(world)
    twin(world, claim)
    world.run(30)
    world.cluster.delete_node(node_of(world, claim))
    world.run(5 * MINUTES)
    assert {each.name for each in world.claims() if each.metadata.deletion_timestamp is None} == {claim.name, "twin"}
    assert [instance.id for instance in world.ec2.live_instances()] == [instance_id(claim.provider_id)]
    assert len(world.running_pods()) == 1
    registered = find_condition(current(world, twin_of(world)).conditions, "Registered")
    assert registered is not None
    assert (registered.status, registered.reason) == ("False", "MultipleNodeClaimsFound")
    assert registered.message == f"its instance belongs to NodeClaim {claim.name} already"
    reported = {(event.kind, event.name) for event in world.cluster.events if event.reason == "DuplicateNodeClaims"}
    assert reported == {("nodes", claim.node_name), ("nodeclaims", claim.name), ("nodeclaims", "twin")}


def twin_of(world: World) -> NodeClaim:
    return next(claim for claim in world.claims() if claim.name == "twin")


def test_of_two_claims_of_an_instance_a_single_one_is_registered_when_the_cached_list_is_old(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = running_claim(world)
    usual = world.cluster.nodeclaims_of_instances

    def before_registration(instances: Collection[str], *, cached: bool = False) -> tuple[NodeClaim, ...]:
        found = usual(instances, cached=cached)
        return tuple(msgspec.structs.replace(each, conditions=()) for each in found) if cached else found

    monkeypatch.setattr(world.cluster, "nodeclaims_of_instances", before_registration)
    twin(world, claim)
    world.doorbells.ring("lifecycle", [Doorbell(world.cluster.name, "claim", "twin")])
    world.run(5)
    registered = find_condition(current(world, twin_of(world)).conditions, "Registered")
    assert registered is not None
    assert (registered.status, registered.reason) == ("False", "MultipleNodeClaimsFound")


def test_a_claim_shares_its_instance_with_none_that_is_being_deleted_though_the_cached_list_is_old(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = running_claim(world)
    twin(world, claim)
    world.doorbells.ring("lifecycle", [Doorbell(world.cluster.name, "node", claim.node_name)])
    world.run(5)
    usual = world.cluster.nodeclaims_of_instances

    def before_deletion(instances: Collection[str], *, cached: bool = False) -> tuple[NodeClaim, ...]:
        found = usual(instances, cached=cached)
        if not cached:
            return found
        return tuple(
            msgspec.structs.replace(each, metadata=msgspec.structs.replace(each.metadata, deletion_timestamp=None))
            for each in found
        )

    monkeypatch.setattr(world.cluster, "nodeclaims_of_instances", before_deletion)
    world.cluster.delete("nodeclaims", current(world, claim).metadata)
    lifecycle(world.ports, [Doorbell(world.cluster.name, "claim", "twin")], now=world.clock.now())
    registered = find_condition(current(world, twin_of(world)).conditions, "Registered")
    assert registered is not None
    assert registered.reason != "MultipleNodeClaimsFound"


def test_a_claim_that_shares_its_instance_goes_alone(world: World) -> None:
    claim = running_claim(world)
    second = twin(world, claim)
    world.run(30)
    world.cluster.delete("nodeclaims", current(world, second).metadata)
    assert world.run(60, until=lambda: [each.name for each in world.claims()] == [claim.name])
    world.run(15 * MINUTES)
    assert len(world.running_pods()) == 1
    assert not world.effects.select("cluster", "evict")
    assert not world.effects.select("ec2", "terminate")


def test_a_duplicate_ends_by_itself_when_it_was_not_registered_in_time(world: World) -> None:
    claim = running_claim(world)
    twin(world, claim)
    assert world.run(20 * MINUTES, until=lambda: [each.name for each in world.claims()] == [claim.name])
    assert len(world.running_pods()) == 1
    assert not world.effects.select("ec2", "terminate")


def test_a_second_node_of_a_claim_is_reported_and_goes_with_the_instance(world: World) -> None:
    claim = running_claim(world)
    first = node_of(world, claim)
    world.cluster.put(
        "nodes",
        msgspec.structs.replace(first, metadata=msgspec.structs.replace(first.metadata, name="renamed", uid="")),
    )
    assert world.run(2 * MINUTES, until=lambda: "DuplicateNodes" in {event.reason for event in world.cluster.events})
    world.forget_deployments()
    world.cluster.delete("nodeclaims", current(world, claim).metadata)
    assert world.run(15 * MINUTES, until=lambda: not world.claims() and not world.cluster.nodes())


def test_a_node_that_a_claim_of_another_instance_owns_is_a_second_one_of_the_instance_that_it_states(
    world: World,
) -> None:
    """A Node cannot change its provider id, but it may be made with any owner."""
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 2)
    assert world.run(60, until=lambda: len(world.running_pods()) == 2)
    world.run(90)
    claim, other = world.claims()
    owners = node_of(world, other).metadata.owner_references
    stated = second_node(world, claim, "stated")
    world.cluster.put(
        "nodes",
        msgspec.structs.replace(stated, metadata=msgspec.structs.replace(stated.metadata, owner_references=owners)),
    )
    lifecycle(world.ports, [Doorbell(world.cluster.name, "node", "stated")], now=world.clock.now())
    reported = {event.message for event in world.cluster.events if event.reason == "DuplicateNodes"}
    assert len(reported) == 1
    assert claim.node_name in reported.pop()


@pytest.mark.parametrize("name", ["aa-second", "zz-second"])
def test_a_node_that_shares_its_instance_is_not_disrupted_and_says_so(world: World, name: str) -> None:
    """The claim names the Node without pods."""
    world.cluster.update("nodepools", "default", consolidate_after_seconds=30)
    claim = running_claim(world)
    world.forget_deployments()
    move_pods(world, second_node(world, claim, name))
    world.run(15 * MINUTES)
    assert not is_deleted(world, claim)
    assert [pod.node_name for pod in world.running_pods()] == [name]
    blocked = {(event.kind, event.message) for event in world.cluster.events if event.reason == "DisruptionBlocked"}
    said = "Node shares its instance with another Node"
    assert {("nodeclaims", said), ("nodes", said)} <= blocked


@pytest.mark.parametrize("name", ["aa-second", "zz-second"])
@pytest.mark.parametrize("deletes_node", [False, True])
@pytest.mark.parametrize("is_old_ready", [False, True])
def test_all_nodes_of_an_instance_are_drained_before_it_is_terminated(
    world: World, name: str, deletes_node: bool, is_old_ready: bool
) -> None:
    claim = running_claim(world)
    world.forget_deployments()
    move_pods(world, second_node(world, claim, name))
    world.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget("keep", "inflate", max_unavailable=0))
    world.run(30)
    if not is_old_ready:
        silent = (Condition("Ready", "Unknown", last_transition_time=world.clock.now()),)
        world.cluster.update("nodes", claim.node_name, conditions=silent)
    if deletes_node:
        world.cluster.delete_node(node_of(world, claim))
    else:
        world.cluster.delete("nodeclaims", current(world, claim).metadata)
    world.run(10 * MINUTES)
    assert world.ec2.live_instances()
    assert [pod.node_name for pod in world.running_pods()] == [name], "its budget allows no eviction"
    world.cluster.remove("poddisruptionbudgets", "default/keep")
    assert world.run(5 * MINUTES, until=lambda: not world.claims())
    evicted = world.effects.select("cluster", "evict")[-1]
    assert evicted.number < world.effects.select("ec2", "terminate")[-1].number
    assert not world.cluster.nodes()


def test_a_second_node_whose_doorbell_was_lost_is_drained_all_the_same(world: World) -> None:
    claim = running_claim(world)
    world.forget_deployments()
    move_pods(world, second_node(world, claim, "second"))
    world.forget_changes()
    world.run(11 * MINUTES)
    world.cluster.delete("nodeclaims", current(world, claim).metadata)
    assert world.run(5 * MINUTES, until=lambda: not world.claims())
    assert world.effects.select("cluster", "evict")


@pytest.mark.parametrize("name", ["aa-second", "zz-second"])
def test_a_node_that_cannot_be_drained_does_not_keep_the_pods_of_the_other(
    world: World, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = running_claim(world)
    world.forget_deployments()
    second = second_node(world, claim, name)
    metadata = ObjectMeta("of-second", "default", labels={"app": "of-second"})
    (pod,) = world.running_pods()
    world.cluster.put("pods", msgspec.structs.replace(pod, metadata=metadata, node_name=second.name))
    evict = world.cluster.evict

    def deny(evicted: Pod) -> bool:
        if evicted.key == pod.key:
            raise Denied("an admission webhook denied the request", code="Forbidden")
        return evict(evicted)

    monkeypatch.setattr(world.cluster, "evict", deny)
    world.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget("keep", "of-second", max_unavailable=0))
    world.cluster.delete("nodeclaims", current(world, claim).metadata)
    world.run(MINUTES)
    world.cluster.remove("poddisruptionbudgets", "default/keep")
    assert world.run(2 * MINUTES, until=lambda: world.cluster.find("pods", "default/of-second") is None)


def test_a_deleted_node_that_states_anothers_instance_costs_its_claim_nothing(world: World) -> None:
    claim = running_claim(world)
    second_node(world, claim, "stranger", finalizers=("example.com/theirs",))
    world.run(20)
    stranger = world.cluster.node("stranger")
    assert stranger is not None
    world.cluster.delete_node(stranger)
    world.run(10 * MINUTES)
    assert not is_deleted(world, claim)
    assert len(world.running_pods()) == 1


def test_no_pod_is_planned_for_a_node_that_states_anothers_instance(world: World) -> None:
    """It is not registered, so that the room that the NodeClaim promises would count a second time."""
    claim = running_claim(world)
    ready = (Condition("Ready", "True", last_transition_time=world.clock.seconds()),)
    world.cluster.put("nodes", Node(ObjectMeta("liar"), provider_id=claim.provider_id, conditions=ready))
    world.deploy(builders.pod("more", cpu_millicores=1800), 1)
    assert world.run(2 * MINUTES, until=lambda: len(world.running_pods()) == 2)


def test_a_node_of_another_claim_that_states_an_instance_is_not_drained_with_it(world: World) -> None:
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 2)
    assert world.run(60, until=lambda: len(world.running_pods()) == 2)
    world.run(90)
    world.forget_deployments()
    victim, lying = world.claims()
    world.cluster.update("nodes", lying.node_name, provider_id=victim.provider_id)
    world.run(20)
    world.cluster.delete("nodeclaims", current(world, victim).metadata)
    assert world.run(5 * MINUTES, until=lambda: len(world.claims()) == 1)
    assert [pod.node_name for pod in world.running_pods()] == [lying.node_name]
    # The instance that it states has ended, and no NodeClaim has that: its own does not go with it.
    lifecycle(world, [Doorbell(world.cluster.name, "node", lying.node_name)], now=world.clock.now())
    world.run(10)
    assert [pod.node_name for pod in world.running_pods()] == [lying.node_name]
    assert len(world.effects.select("cluster", "evict")) == 1
    assert instance_id(lying.provider_id) in {instance.id for instance in world.ec2.live_instances()}


@pytest.mark.parametrize("owner_exists", [True, False])
def test_a_node_stays_for_its_own_nodeclaim_and_not_for_another_one_of_that_name(
    world: World, owner_exists: bool
) -> None:
    """A user may create a NodeClaim again under its name: what the former one left behind is removed."""
    claim = running_claim(world)
    owner = OwnerReference("NodeClaim", claim.name, claim.metadata.uid if owner_exists else "uid-of-the-former-one")
    metadata = ObjectMeta("left", finalizers=(labels.FINALIZER,), owner_references=(owner,))
    silent = Condition("Ready", "Unknown", last_transition_time=world.clock.now() - timedelta(minutes=5))
    node = Node(metadata, provider_id="aws:///ap-northeast-2a/i-0a0a0a0a0a0a0a0a0", conditions=(silent,))
    world.cluster.put("nodes", node)
    lifecycle(world.ports, [Doorbell(world.cluster.name, "node", "left")], now=world.clock.now())
    assert (world.cluster.node("left") is not None) is owner_exists


def test_a_node_of_two_claims_that_ec2_takes_back_is_drained_for_its_own_claim(world: World) -> None:
    claim = running_claim(world)
    twin(world, claim)
    began = len(world.effects.log)
    world.interrupt_spot(instance_id(claim.provider_id))
    assert world.run(180, until=lambda: claim.name not in {each.name for each in world.claims()})
    acts = [effect.action for effect in world.effects.log[began:]]
    assert acts.index("create_fleet") < acts.index("evict") < acts.index("terminate")


def test_a_notice_of_long_ago_costs_the_instance_of_two_claims_nothing(world: World) -> None:
    """EC2 left the instance where it was; somebody deletes one of its claims an hour later."""
    claim = running_claim(world)
    twin(world, claim)
    id, then = instance_id(claim.provider_id), world.clock.milliseconds() - 3_600_000
    world.state.create(NoticeRow(id, world.cluster.name, "spot_interrupted", deadline=then, created=then, phase="done"))
    world.cluster.delete("nodeclaims", claim.metadata)
    world.run(120)
    assert claim.name not in {each.name for each in world.claims()}
    assert [instance.id for instance in world.ec2.live_instances()] == [id]
