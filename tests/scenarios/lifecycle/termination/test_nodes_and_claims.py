"""Nodes and NodeClaims that do not belong together as they should: drained first, reported, and nothing lost."""

from collections.abc import Collection
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from spotwright.errors import Conflict, Denied
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.eviction import DISRUPTED_TAINT
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, OwnerReference, find_condition
from spotwright.model.kubernetes.node import Node, instance_id
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.taints import Taint
from spotwright.simulation import builders
from spotwright.simulation.effects import Crash
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.ports.rows import NoticeRow

MINUTES = 60


def running_claim(world: World) -> NodeClaim:
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 1)
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)
    world.run(90)
    (claim,) = world.claims()
    return claim


def current(world: World, claim: NodeClaim) -> NodeClaim:
    found = world.cluster.nodeclaim(claim.name)
    assert found is not None
    return found


def node_of(world: World, claim: NodeClaim) -> Node:
    node = world.cluster.node(claim.node_name)
    assert node is not None
    return node


def test_a_deleted_node_whose_doorbell_was_lost_goes_with_its_claim_and_instance(world: World) -> None:
    claim = running_claim(world)
    world.forget_deployments()
    world.cluster.delete_node(node_of(world, claim))
    world.forget_changes()
    assert world.run(12 * MINUTES, until=lambda: not world.claims())
    assert not world.ec2.live_instances()
    assert not world.cluster.nodes()
    assert world.effects.select("cluster", "evict")


def test_a_deleted_node_ends_its_claim_though_neither_names_the_other(world: World) -> None:
    """The claim has no label of its instance, and somebody took the owner off the Node."""
    claim = running_claim(world)
    kept = {key: value for key, value in claim.metadata.labels.items() if key != labels.INSTANCE_ID}
    metadata = msgspec.structs.replace(current(world, claim).metadata, labels=kept)
    world.cluster.put("nodeclaims", msgspec.structs.replace(current(world, claim), metadata=metadata))
    node = node_of(world, claim)
    metadata = msgspec.structs.replace(node.metadata, owner_references=())
    world.cluster.put("nodes", msgspec.structs.replace(node, metadata=metadata))
    world.cluster.delete_node(node_of(world, claim))
    lifecycle(world.ports, [Doorbell(world.cluster.name, "node", node.name)], now=world.clock.now())
    assert current(world, claim).metadata.deletion_timestamp is not None


def test_a_claim_whose_node_is_gone_with_its_finalizer_goes_and_its_pod_runs_elsewhere(world: World) -> None:
    """Somebody took the finalizer off; the instance runs on, and its kubelet does not make the Node anew."""
    claim = running_claim(world)
    world.cluster.remove("nodes", claim.node_name)
    assert world.run(11 * MINUTES, until=lambda: len(world.running_pods()) == 1)
    world.run(MINUTES)
    assert claim.name not in {each.name for each in world.claims()}
    assert instance_id(claim.provider_id) not in {instance.id for instance in world.ec2.live_instances()}


def test_a_node_that_cannot_be_read_is_not_gone(world: World) -> None:
    """Nobody knows which instance it has; its pods run on."""
    claim = running_claim(world)
    node = node_of(world, claim)
    world.cluster.put("nodes", Node(node.metadata, read_error="status.capacity: x is no quantity"))
    world.run(21 * MINUTES)
    assert not is_deleted(world, claim)
    assert instance_id(claim.provider_id) in {instance.id for instance in world.ec2.live_instances()}


def test_a_claim_whose_node_is_gone_stays_while_another_node_has_its_instance(world: World) -> None:
    """Its kubelet registered under another name, and the Node of the first one was removed."""
    claim = running_claim(world)
    world.forget_deployments()
    move_pods(world, second_node(world, claim, "zz-second"))
    world.run(MINUTES)
    world.cluster.remove("nodes", claim.node_name)
    world.run(21 * MINUTES)
    assert not is_deleted(world, claim)
    assert [pod.node_name for pod in world.running_pods()] == ["zz-second"]


def test_a_claim_whose_kubelet_registered_under_another_name_later_stays(world: World) -> None:
    """The claim does not know that name."""
    claim = running_claim(world)
    world.forget_deployments()
    first = node_of(world, claim)
    (pod,) = world.running_pods()
    world.cluster.remove("nodes", first.name)
    world.cluster.put("nodes", msgspec.structs.replace(first, metadata=ObjectMeta("renamed")))
    world.cluster.put("pods", msgspec.structs.replace(pod, node_name="renamed"))
    world.run(21 * MINUTES)
    assert not is_deleted(world, claim)
    assert instance_id(claim.provider_id) in {instance.id for instance in world.ec2.live_instances()}


def test_a_node_that_goes_while_it_is_registered_takes_its_claim_along(world: World) -> None:
    usual = world.cluster.set_taints

    def vanishes(node: Node, *arguments: Any, **more: Any) -> Any:
        world.cluster.remove("nodes", node.name)
        world.cluster.set_taints = usual  # type: ignore[method-assign]
        raise Conflict("nodes has been modified", code="Conflict")

    world.cluster.set_taints = vanishes  # type: ignore[method-assign]
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 1)
    assert world.run(60, until=lambda: any(claim.is_condition_true("Registered") for claim in world.claims()))
    (claim,) = world.claims()
    assert world.run(11 * MINUTES, until=lambda: len(world.running_pods()) == 1)
    assert claim.name not in {each.name for each in world.claims() if each.metadata.deletion_timestamp is None}


def test_a_node_that_somebody_tainted_as_disrupted_takes_pods_again_a_minute_later(world: World) -> None:
    """The forwarder does not ring for that taint; the poll finds it in the cluster state."""
    world.cluster_state.lag_seconds = 10.0
    claim = running_claim(world)
    world.run(80 - world.clock.now().second)
    node = node_of(world, claim)
    world.cluster.put("nodes", msgspec.structs.replace(node, taints=(*node.taints, DISRUPTED_TAINT)))
    world.forget_changes()
    assert world.run(MINUTES + 5, until=lambda: DISRUPTED_TAINT not in node_of(world, claim).taints)


def unclaimed_node(world: World) -> NodeClaim:
    """Somebody removed the claim with its finalizer; its Node and its instance are left."""
    claim = running_claim(world)
    world.cluster.remove("nodeclaims", claim.name)
    return claim


def test_a_node_without_a_claim_is_drained_before_it_goes(world: World) -> None:
    claim = unclaimed_node(world)
    world.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget("keep", "inflate", max_unavailable=0))
    world.cluster.delete_node(node_of(world, claim))
    world.run(15 * MINUTES)
    assert [pod.node_name for pod in world.running_pods()] == [claim.node_name], "its budget allows no eviction"
    assert instance_id(claim.provider_id) in {instance.id for instance in world.ec2.live_instances()}
    world.cluster.remove("poddisruptionbudgets", "default/keep")
    assert world.run(3 * MINUTES, until=lambda: world.cluster.node(claim.node_name) is None)
    assert instance_id(claim.provider_id) not in {instance.id for instance in world.ec2.live_instances()}
    evicted = world.effects.select("cluster", "evict")[-1]
    assert evicted.number < world.effects.select("ec2", "terminate")[-1].number


def test_a_node_that_is_drained_keeps_its_instance_whatever_its_name(world: World) -> None:
    """An AMI may name nodes otherwise than EC2 names their instances."""
    claim = unclaimed_node(world)
    world.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget("keep", "inflate", max_unavailable=0))
    world.cluster.delete_node(node_of(world, claim))
    world.run(15 * MINUTES)
    id = instance_id(claim.provider_id)
    world.ec2.instances[id] = msgspec.structs.replace(world.ec2.instances[id], private_dns_name="another-name")
    lifecycle(world.ports, [Doorbell(world.cluster.name, "instance", id)], now=world.clock.now())
    assert id in {instance.id for instance in world.ec2.live_instances()}
    assert claim.node_name in {message.doorbell.key for message in world.doorbells.messages_of("lifecycle", "node")}


def test_a_node_without_a_claim_whose_instance_is_not_ours_is_drained_and_let_go(world: World) -> None:
    claim = unclaimed_node(world)
    world.forget_deployments()
    instance = world.ec2.instances[instance_id(claim.provider_id)]
    world.ec2.instances[instance.id] = msgspec.structs.replace(instance, tags={})
    world.cluster.delete_node(node_of(world, claim))
    assert world.run(3 * MINUTES, until=lambda: world.cluster.node(claim.node_name) is None)
    assert world.effects.select("cluster", "evict")
    assert not world.effects.select("ec2", "terminate")


def step_node(world: World, claim: NodeClaim) -> None:
    lifecycle(world.ports, [Doorbell(world.cluster.name, "node", claim.node_name)], now=world.clock.now())


def test_a_ready_node_without_a_claim_stays_when_ec2_only_does_not_find_its_instance(world: World) -> None:
    claim = unclaimed_node(world)
    del world.ec2.instances[instance_id(claim.provider_id)]
    for since in (timedelta(hours=1), timedelta(0)):
        ready = (Condition("Ready", "True", last_transition_time=world.clock.now() - since),)
        node = msgspec.structs.replace(node_of(world, claim), conditions=ready)
        world.cluster.put("nodes", node)
        step_node(world, claim)
        assert world.cluster.node(claim.node_name) is not None


@pytest.mark.parametrize(("seconds", "goes"), [(59, False), (60, True)])
def test_a_node_without_claim_and_instance_goes_when_its_kubelet_was_silent_for_a_minute(
    world: World, seconds: int, goes: bool
) -> None:
    claim = unclaimed_node(world)
    del world.ec2.instances[instance_id(claim.provider_id)]
    since = world.clock.now() - timedelta(seconds=seconds)
    silent = (Condition("Ready", "Unknown", last_transition_time=since),)
    world.cluster.put("nodes", msgspec.structs.replace(node_of(world, claim), conditions=silent))
    step_node(world, claim)
    assert (world.cluster.node(claim.node_name) is None) == goes


def test_while_karpenter_runs_a_node_without_a_claim_is_left_to_it(world: World) -> None:
    """The sweep has not seen it yet."""
    claim = unclaimed_node(world)
    world.ec2.instances[instance_id(claim.provider_id)] = msgspec.structs.replace(
        world.ec2.instances[instance_id(claim.provider_id)], state="terminated"
    )
    world.cluster.karpenter = "Deployment karpenter/karpenter"
    step_node(world, claim)
    assert world.cluster.node(claim.node_name) is not None
    world.cluster.karpenter = ""
    world.state.set_other_provisioner("")
    step_node(world, claim)
    assert world.cluster.node(claim.node_name) is None


def test_an_instance_whose_claim_lacks_its_label_is_no_orphan(world: World) -> None:
    claim = running_claim(world)
    kept = {key: value for key, value in claim.metadata.labels.items() if key != labels.INSTANCE_ID}
    metadata = msgspec.structs.replace(current(world, claim).metadata, labels=kept)
    world.cluster.put("nodeclaims", msgspec.structs.replace(current(world, claim), metadata=metadata))
    id = instance_id(claim.provider_id)
    lifecycle(world.ports, [Doorbell(world.cluster.name, "instance", id)], now=world.clock.now())
    assert id in {instance.id for instance in world.ec2.live_instances()}


def test_an_instance_that_is_being_written_to_its_claim_is_no_orphan(world: World) -> None:
    """Its label is there, its provider id is not yet, and its launch row is lost."""
    claim = running_claim(world)
    world.cluster.update("nodeclaims", claim.name, provider_id="")
    world.state.rows.clear()
    id = instance_id(claim.provider_id)
    world.clock.advance(3600)
    lifecycle(world.ports, [Doorbell(world.cluster.name, "instance", id)], now=world.clock.now())
    assert id in {instance.id for instance in world.ec2.live_instances()}


@pytest.mark.parametrize(("seconds", "stays"), [(10, True), (61, False)])
def test_an_instance_that_was_just_launched_is_no_orphan_yet(world: World, seconds: int, stays: bool) -> None:
    """A claim or a row that names it may be written in this moment."""
    claim = unclaimed_node(world)
    world.forget_deployments()
    world.cluster.remove("nodes", claim.node_name)
    id = instance_id(claim.provider_id)
    launched = world.clock.now() - timedelta(seconds=seconds)
    world.ec2.instances[id] = msgspec.structs.replace(world.ec2.instances[id], launch_time=launched)
    for row in world.state.launches():
        assert id not in row.instances.values()
    lifecycle(world.ports, [Doorbell(world.cluster.name, "instance", id)], now=world.clock.now())
    assert (id in {instance.id for instance in world.ec2.live_instances()}) == stays


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


def second_node(world: World, claim: NodeClaim, name: str, *, finalizers: tuple[str, ...] = ()) -> Node:
    """A kubelet that registered under another name left the old Node behind; or somebody states another's instance."""
    first = node_of(world, claim)
    metadata = ObjectMeta(name, labels={"kubernetes.io/hostname": name}, finalizers=finalizers)
    stored: Node = world.cluster.put("nodes", msgspec.structs.replace(first, metadata=metadata))
    return stored


def move_pods(world: World, node: Node) -> None:
    for pod in world.running_pods():
        world.cluster.update("pods", pod.key, node_name=node.name)


def is_deleted(world: World, claim: NodeClaim) -> bool:
    found = world.cluster.nodeclaim(claim.name)
    return found is None or found.metadata.deletion_timestamp is not None


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


def launched_claim(world: World) -> NodeClaim:
    world.kubelets.boot_seconds = 30
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 1)
    assert world.run(60, until=lambda: bool(world.claims() and world.claims()[0].provider_id))
    return world.claims()[0]


def two_nodes_join(world: World) -> Node:
    """The Node of the instance; another of the name ``second`` has its provider id."""
    while not world.cluster.nodes():
        world.pass_second()
        world.kubelets.reconcile()
    (own,) = world.cluster.nodes()
    metadata = msgspec.structs.replace(own.metadata, name="second", uid="")
    world.cluster.put("nodes", msgspec.structs.replace(own, metadata=metadata))
    return own


def test_neither_of_two_nodes_with_the_provider_id_of_a_claim_is_registered(world: World) -> None:
    """Neither has the name of the instance, and the claim knows both."""
    claim = launched_claim(world)
    first = two_nodes_join(world)
    annotations = {labels.EXPECTED_NODE: "another-name", labels.OTHER_NODES: f"{first.name},second"}
    world.cluster.patch_nodeclaim(claim, {"annotations": annotations})
    for name in ("second", first.name, "second"):
        lifecycle(world.ports, [Doorbell(world.cluster.name, "node", name)], now=world.clock.now())
        registered = find_condition(current(world, claim).conditions, "Registered")
        assert registered is not None
        assert (registered.status, registered.reason) == ("False", "MultipleNodesFound")
        assert registered.message.endswith(f"{first.name}, second")
    assert not any(node.is_registered for node in world.cluster.nodes())
    world.cluster.remove("nodes", "second")
    assert world.run(60, until=lambda: current(world, claim).node_name == first.name)


def test_of_two_nodes_the_one_with_the_name_of_the_instance_is_registered(world: World) -> None:
    """EKS lets no other kubelet write it."""
    claim = launched_claim(world)
    own = two_nodes_join(world)
    for name in ("second", own.name, "second"):
        lifecycle(world.ports, [Doorbell(world.cluster.name, "node", name)], now=world.clock.now())
        assert current(world, claim).node_name == own.name
    assert [node.name for node in world.cluster.nodes() if node.is_registered] == [own.name]


def lying_node_joins(
    world: World, claim: NodeClaim, *, is_ready: bool = True, taints: tuple[Taint, ...] = (), **metadata: Any
) -> None:
    """A kubelet states the provider id of the claim before that of its instance does, and is registered."""
    ready = Condition("Ready", "True" if is_ready else "False", last_transition_time=world.clock.seconds())
    size = {"cpu": 1900, "memory": 3758096384, "pods": 58}
    about = ObjectMeta("lying", **metadata)
    lying = Node(about, claim.provider_id, taints, conditions=(ready,), allocatable=size, capacity=size)
    world.cluster.put("nodes", lying)
    world.run(10)
    assert current(world, claim).node_name == "lying"


def own_node_joins(world: World) -> str:
    """Nobody has looked yet. The name of the Node."""
    own = ""
    while not own:
        world.pass_second()
        world.kubelets.reconcile()
        own = next((node.name for node in world.cluster.nodes() if node.name != "lying"), "")
    return own


def lying_node(world: World) -> Node:
    node = world.cluster.node("lying")
    assert node is not None
    return node


@pytest.mark.parametrize("is_ready", [True, False], ids=["is Ready", "is not Ready"])
@pytest.mark.parametrize("is_doorbell_lost", [True, False], ids=["its doorbell is lost", "it rings"])
def test_the_node_of_an_instance_takes_the_place_of_one_that_stated_its_provider_id_first(
    world: World, is_ready: bool, is_doorbell_lost: bool
) -> None:
    claim = launched_claim(world)
    lying_node_joins(world, claim, is_ready=is_ready)
    assert current(world, claim).is_condition_true("Initialized") is is_ready
    own = own_node_joins(world)
    if is_doorbell_lost:
        world.forget_changes()
    assert world.run(11 * MINUTES, until=lambda: current(world, claim).node_name == own)
    world.run(30)
    registered = current(world, claim)
    node = node_of(world, registered)
    assert node.name == own
    assert node.is_initialized
    assert not {labels.UNREGISTERED, labels.HELD} & {taint.key for taint in node.taints}
    assert registered.is_condition_true("Ready")
    assert "DuplicateNodes" in {event.reason for event in world.cluster.events}
    world.forget_deployments()
    world.cluster.delete("nodeclaims", registered.metadata)
    assert world.run(5 * MINUTES, until=lambda: not world.claims() and not world.cluster.nodes())


def test_what_a_node_got_that_stated_anothers_provider_id_is_taken_back_when_that_one_joins(world: World) -> None:
    """Pods may be let run where a label is, and the Node would go with the claim. Its pods run on, and what it had by
    itself stays."""
    pool = world.cluster.find("nodepools", "default")
    world.cluster.put("nodepools", msgspec.structs.replace(pool, labels={"example.com/secrets": "true"}))
    claim = launched_claim(world)
    owner = OwnerReference("Machine", "theirs", "their-uid")
    lying_node_joins(
        world, claim, labels={labels.ZONE: "its-own", "team": "a"}, annotations={"note": "b"},
        finalizers=("example.com/theirs",), owner_references=(owner,),
    )  # fmt: skip
    given = lying_node(world).metadata
    assert {"example.com/secrets", labels.NODEPOOL, labels.INITIALIZED} <= given.labels.keys()
    assert labels.FINALIZER in given.finalizers
    assert len(given.owner_references) == 2
    assert world.run(20, until=lambda: [pod.node_name for pod in world.running_pods()] == ["lying"])
    own = own_node_joins(world)
    assert world.run(60, until=lambda: current(world, claim).node_name == own)
    world.run(5)
    left = lying_node(world).metadata
    of_any_node = {labels.ZONE, labels.INSTANCE_TYPE, labels.ARCH, labels.OS, labels.REGION}
    assert left.labels.keys() - {"team"} <= of_any_node
    assert {labels.ZONE, "team"} <= left.labels.keys()
    assert left.annotations == {"note": "b"}
    assert (left.finalizers, left.owner_references) == (("example.com/theirs",), (owner,))
    assert [pod.node_name for pod in world.running_pods()] == ["lying"]
    assert "lying" in current(world, claim).metadata.annotations[labels.OTHER_NODES]


@pytest.mark.parametrize("changes", range(1, 14))
def test_what_such_a_node_got_is_taken_back_after_an_invocation_that_ended_in_between(
    world: World, changes: int
) -> None:
    claim = launched_claim(world)
    lying_node_joins(world, claim)
    own = own_node_joins(world)
    world.effects.crash_after(changes)
    try:
        world.run(120)
    except Crash:
        world.run(180)
    world.effects.crash_after(None)
    assert current(world, claim).node_name == own
    assert node_of(world, current(world, claim)).is_initialized
    assert labels.FINALIZER not in lying_node(world).metadata.finalizers


def test_a_node_that_another_worker_registers_as_the_instances_own_one_joins_gives_back_what_it_got(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker read the claim before its own Node was there."""
    claim = launched_claim(world)
    usual = world.cluster.set_taints
    own = list[str]()

    def set_taints(node: Node, *arguments: Any, **more: Any) -> Node:
        if node.name == "lying" and not own:
            own.append(own_node_joins(world))
            lifecycle(world.ports, [Doorbell(world.cluster.name, "node", own[0])], now=world.clock.now())
            assert current(world, claim).node_name == own[0]
        return usual(node, *arguments, **more)

    monkeypatch.setattr(world.cluster, "set_taints", set_taints)
    lying = Node(ObjectMeta("lying"), claim.provider_id, conditions=(Condition("Ready", "True"),))
    world.cluster.put("nodes", lying)
    lifecycle(world.ports, [Doorbell(world.cluster.name, "node", "lying")], now=world.clock.now())
    assert labels.FINALIZER in lying_node(world).metadata.finalizers
    world.run(60)
    assert current(world, claim).node_name == own[0]
    assert labels.FINALIZER not in lying_node(world).metadata.finalizers


def test_pods_that_are_nominated_for_such_a_node_are_nominated_for_the_instances_own(world: World) -> None:
    """The node does not admit them after all."""
    claim = launched_claim(world)
    world.kubelets.boot_seconds, world.kubelets.ready_seconds = 15, 0
    lying_node_joins(world, claim, taints=(Taint("example.com/not-yet", "NoSchedule"),))
    own = own_node_joins(world)
    world.kubelets.reconcile()
    (row,), (pod,) = world.state.nominations(), world.cluster.pods(pending=True)
    assert row.node == "lying"
    world.cluster.update("pods", pod.key, nominated_node_name="lying")
    for _ in range(3):
        lifecycle(world.ports, [Doorbell(world.cluster.name, "node", own)], now=world.clock.now())
    (pod,) = world.cluster.pods(pending=True)
    assert pod.nominated_node_name == own
    assert world.run(60, until=lambda: [pod.node_name for pod in world.running_pods()] == [own])


def test_a_node_that_anothers_finalizer_keeps_keeps_its_claim_and_not_its_instance(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """As in Karpenter, whose NodeClaim stays until its Nodes are gone."""
    claim = running_claim(world)
    world.forget_deployments()
    node = node_of(world, claim)
    theirs = msgspec.structs.replace(node.metadata, finalizers=(*node.metadata.finalizers, "example.com/theirs"))
    world.cluster.put("nodes", msgspec.structs.replace(node, metadata=theirs))
    with caplog.at_level("INFO", "spotwright"):
        world.cluster.delete("nodeclaims", current(world, claim).metadata)
        world.run(5 * MINUTES)
        assert not world.ec2.live_instances()
        assert node_of(world, claim).metadata.finalizers == ("example.com/theirs",)
        assert labels.FINALIZER in current(world, claim).metadata.finalizers
        world.cluster.patch_metadata("nodes", node_of(world, claim).metadata, {"finalizers": []})
        assert world.run(2 * MINUTES, until=lambda: not world.claims())
    assert not world.cluster.nodes()
    said = [vars(record)["node"] for record in caplog.records if record.message == "deleted node"]
    assert said.count(node.name) == 1


def test_a_node_that_anothers_finalizer_keeps_does_not_keep_a_claim_that_was_not_registered(world: World) -> None:
    """As in Karpenter: the Node has nothing of it."""
    claim = launched_claim(world)
    world.forget_deployments()
    name = claim.metadata.annotations[labels.EXPECTED_NODE]
    world.cluster.put("nodes", Node(ObjectMeta(name, finalizers=("example.com/theirs",)), claim.provider_id))
    world.cluster.delete("nodeclaims", current(world, claim).metadata)
    assert world.run(2 * MINUTES, until=lambda: claim.name not in {each.name for each in world.claims()})
    assert world.cluster.find("nodes", name).metadata.finalizers == ("example.com/theirs",)
    assert not world.ec2.live_instances()


def with_provider_id(world: World, provider_id: str) -> NodeClaim:
    """A claim of which somebody wrote that it is Initialized, without a node of that provider id."""
    metadata = ObjectMeta(
        "written",
        labels={labels.NODEPOOL: "default"},
        finalizers=(labels.FINALIZER,),
        creation_timestamp=world.clock.now(),
    )
    ready = tuple(Condition(kind, "True", kind) for kind in ("Launched", "Registered", "Initialized", "Ready"))
    reference = builders.nodepool().node_class_ref
    stored: NodeClaim = world.cluster.put(
        "nodeclaims", NodeClaim(metadata, reference, provider_id=provider_id, conditions=ready)
    )
    return stored


def test_a_claim_whose_instance_never_was_goes_whoever_wrote_its_provider_id(world: World) -> None:
    """Karpenter takes the last part of a provider id, whatever stands before it."""
    with_provider_id(world, "Provider:///AZ/i-01234567890123456")
    assert world.run(5 * MINUTES, until=lambda: not world.claims())


@pytest.mark.parametrize("provider_id", ["somewhere", "aws:///us-east-1a/mi-0123", "aws:///us-east-1a/i-", "i-"])
def test_a_deleted_claim_whose_provider_id_names_no_instance_goes(world: World, provider_id: str) -> None:
    claim = with_provider_id(world, provider_id)
    world.run(5 * MINUTES)
    assert current(world, claim).metadata.deletion_timestamp is None
    world.cluster.delete("nodeclaims", current(world, claim).metadata)
    assert world.run(2 * MINUTES, until=lambda: not world.claims())


def test_a_provider_id_that_was_overwritten_does_not_keep_the_instance(world: World) -> None:
    claim = running_claim(world)
    world.forget_deployments()
    for pod in world.running_pods():
        world.cluster.remove("pods", pod.key)
    world.cluster.put("nodeclaims", msgspec.structs.replace(current(world, claim), provider_id="somewhere"))
    world.cluster.delete("nodeclaims", current(world, claim).metadata)
    assert world.run(5 * MINUTES, until=lambda: not world.claims())
    assert not world.ec2.live_instances()


def test_a_node_that_its_claim_and_its_instance_left_behind_goes(world: World) -> None:
    claim = unclaimed_node(world)
    world.forget_deployments()
    world.ec2.forget_instance(instance_id(claim.provider_id))
    assert world.run(2 * MINUTES, until=lambda: not world.cluster.nodes())


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
