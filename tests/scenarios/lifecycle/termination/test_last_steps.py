"""The last steps of many NodeClaims at once: few requests each, and what others write meanwhile keeps nothing."""

from collections.abc import Collection, Sequence
from typing import Any

import msgspec
import pytest

from spotwright.errors import ApiError, Throttled, Unavailable
from spotwright.lifecycle.retry import NODE_TICK_SECONDS
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.node import Node, instance_id
from spotwright.simulation.ec2 import SHUTDOWN_SECONDS
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.account import offering_health_store
from spotwright.workflows.lifecycle.actions import other_claims
from spotwright.workflows.lifecycle.termination.instances import InstanceTermination, terminate_all
from spotwright.workflows.lifecycle.workflow import ONCE_MORE_SECONDS, lifecycle
from spotwright.workflows.ports.doorbells import Doorbell
from tests.scenarios.lifecycle.termination.running_nodes import delete, gone, running_node

TERMINATION = ("Drained", "VolumesDetached", "InstanceTerminating")


def ended(world: World, *, is_node_deleted: bool = False) -> NodeClaim:
    """A NodeClaim whose node is drained and whose instance is terminated; nobody has looked since. The control plane
    may have deleted the Node.
    """
    claim = running_node(world)
    delete(world, claim)
    assert world.run(40, until=lambda: bool(world.effects.select("ec2", "terminate")))
    world.settle()
    for _ in range(60):
        world.pass_second()
    assert world.ec2.all_instances()[0].state == "terminated"
    node = world.cluster.node(claim.node_name)
    assert node is not None
    deleted = world.clock.now() if is_node_deleted else None
    about = msgspec.structs.replace(node.metadata, deletion_timestamp=deleted)
    world.cluster.put("nodes", msgspec.structs.replace(node, metadata=about))
    return claim


def step(world: World, claim: NodeClaim) -> None:
    lifecycle(world.ports, [Doorbell(world.cluster.name, "claim", claim.name)], now=world.clock.now())


@pytest.mark.parametrize("is_deleted", [False, True], ids=["stays", "deleted"])
def test_controllers_that_write_a_node_as_it_goes_do_not_keep_it(
    world: World, monkeypatch: pytest.MonkeyPatch, is_deleted: bool
) -> None:
    """The control plane's write taints and annotations of a Node whose kubelet stops; each cost it two seconds."""
    claim = ended(world, is_node_deleted=is_deleted)
    usual, versions = world.cluster.node, iter(range(10))

    def written_meanwhile(name: str) -> Any:
        found = usual(name)
        if found is not None:
            world.cluster.patch_metadata("nodes", found.metadata, {"annotations": {"ttl": str(next(versions))}})
        return found

    monkeypatch.setattr(world.cluster, "node", written_meanwhile)
    step(world, claim)
    assert gone(world, claim)
    assert not world.cluster.all("nodes")


def test_a_finalizer_that_came_as_the_node_went_keeps_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = ended(world)
    usual, added = world.cluster.set_taints, list[str]()

    def finalizer_added(node: Node, *arguments: Any, **options: Any) -> Node:
        if not added:
            added.append("example.com/keep")
            change = {"finalizers": [*node.metadata.finalizers, *added]}
            world.cluster.patch_metadata("nodes", ObjectMeta(node.name, uid=node.metadata.uid), change)
        return usual(node, *arguments, **options)

    monkeypatch.setattr(world.cluster, "set_taints", finalizer_added)
    step(world, claim)
    assert not gone(world, claim)
    step(world, claim)
    node = world.cluster.node(claim.node_name)
    assert node is not None
    assert node.metadata.finalizers == ("example.com/keep",)
    assert node.metadata.deletion_timestamp is not None
    assert not gone(world, claim)
    world.cluster.patch_metadata("nodes", node.metadata, {"finalizers": []})
    step(world, claim)
    assert gone(world, claim)


@pytest.mark.parametrize("is_deleted", [False, True], ids=["stays", "deleted"])
def test_a_node_is_let_go_by_two_requests_and_is_deleted_last(world: World, is_deleted: bool) -> None:
    """Whoever watches sees it go, and not that it is being deleted, for which its claim would take a step in vain."""
    claim = ended(world, is_node_deleted=is_deleted)
    began, reads = len(world.effects.log), world.effects.reads["cluster", "node"]
    step(world, claim)
    assert gone(world, claim)
    of_node = [effect.action for effect in world.effects.log[began:] if claim.node_name in effect.subject]
    assert of_node == ["set_taints", *([] if is_deleted else ["delete"])]
    # The step of the claim reads it.
    assert world.effects.reads["cluster", "node"] - reads == 1


def test_a_drained_node_ends_with_one_write_and_no_look_at_an_instance_that_its_kubelet_shows(world: World) -> None:
    claim = running_node(world)
    looks = world.effects.reads["ec2", "instance"]
    written = len(world.effects.select("cluster", "write_nodeclaim_status"))
    delete(world, claim)
    assert world.run(40, until=lambda: bool(world.effects.select("ec2", "terminate")))
    assert world.effects.reads["ec2", "instance"] == looks
    conditions = {one.type: one.status for one in world.claims()[0].conditions}
    assert [conditions[type] for type in TERMINATION] == ["True"] * 3
    assert len(world.effects.select("cluster", "write_nodeclaim_status")) - written == 2, "Draining, and the rest"


@pytest.mark.parametrize("refusal", [Throttled("too many", code="RequestLimitExceeded"), Unavailable("no answer")])
def test_a_node_counts_as_drained_while_its_instance_waits_to_be_terminated(world: World, refusal: ApiError) -> None:
    claim = running_node(world)
    world.effects.inject(Fault("ec2", "terminate", refusal))
    delete(world, claim)

    def is_drained() -> bool:
        return world.claims()[0].is_condition_true("Drained")

    assert world.run(40, until=is_drained)
    conditions = {one.type: one.status for one in world.claims()[0].conditions}
    assert conditions["VolumesDetached"] == "True"
    assert "InstanceTerminating" not in conditions
    assert world.run(10, until=lambda: bool(world.effects.select("ec2", "terminate")))
    assert world.claims()[0].is_condition_true("InstanceTerminating")


def ended_while_drained(world: World) -> NodeClaim:
    """A claim whose instance had ended when it was to be terminated, which is seen by its next step; its kubelet seems
    to be Ready, and EC2 tells nothing of the end again.
    """
    claim = running_node(world)
    id = instance_id(claim.provider_id)
    delete(world, claim)
    world.run(3)
    kubelet = world.cluster.node(claim.node_name)
    world.ec2.stop(id, after_seconds=0)
    for _ in range(60):
        world.pass_second()
    world.cluster.put("nodes", kubelet)
    for pod in world.cluster.all("pods"):
        world.cluster.remove("pods", pod.key)
    world.doorbells.messages.clear()
    return claim


def test_a_claim_whose_instance_had_ended_when_it_was_to_be_terminated_goes_at_once(world: World) -> None:
    claim = ended_while_drained(world)
    lifecycle(world.ports, [Doorbell(world.cluster.name, "node", claim.node_name)], now=world.clock.now())
    assert len(world.effects.select("ec2", "terminate")) == 1
    assert gone(world, claim)


def test_an_instance_that_has_ended_and_is_shown_as_it_was_is_not_terminated_again_and_again(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EC2 says so of each call, and shows it later: a step that rang for the next one took all calls of the account."""
    claim = ended_while_drained(world)
    (current,) = world.claims()
    about = msgspec.structs.replace(current.metadata, finalizers=(*current.metadata.finalizers, "example.com/keep"))
    world.cluster.put("nodeclaims", msgspec.structs.replace(current, metadata=about))
    shown = msgspec.structs.replace(world.ec2.all_instances()[0], state="running")
    monkeypatch.setattr(world.ec2, "instance", lambda _: shown)
    lifecycle(world.ports, [Doorbell(world.cluster.name, "node", claim.node_name)], now=world.clock.now())
    for _ in range(10):
        lifecycle(world.ports, world.doorbells.receive("lifecycle"), now=world.clock.now())
    assert len(world.effects.select("ec2", "terminate")) == 2
    monkeypatch.undo()
    assert world.run(60, until=lambda: not world.cluster.all("nodes"))
    assert world.claims()[0].metadata.finalizers == ("example.com/keep",)


def conditions_of(world: World) -> list[str]:
    statuses = {one.type: one.status for one in world.claims()[0].conditions}
    return [statuses.get(type, "") for type in TERMINATION]


def test_a_node_whose_kubelet_is_silent_counts_as_drained_when_its_instance_is_terminated(world: World) -> None:
    claim = running_node(world)
    world.kubelets.broken_instances.add(instance_id(claim.provider_id))
    world.run(3)
    delete(world, claim)
    assert world.run(40, until=lambda: bool(world.effects.select("ec2", "terminate")))
    assert conditions_of(world) == ["True"] * 3


def test_a_node_counts_as_drained_whose_instance_shuts_down_already(world: World) -> None:
    claim = running_node(world)
    delete(world, claim)
    world.run(4)
    world.ec2.stop(instance_id(claim.provider_id), after_seconds=0)
    assert world.run(25, until=lambda: world.claims()[0].is_condition_true("Drained"))
    assert conditions_of(world) == ["True"] * 3
    assert not world.effects.select("ec2", "terminate")


@pytest.mark.parametrize("left", [[], ["True", "False"]], ids=["none", "one of two"])
def test_ec2_is_asked_about_an_instance_that_kubelets_do_not_show(world: World, left: list[str]) -> None:
    """What has ended is not terminated again."""
    claim = running_node(world)
    node = world.cluster.node(claim.node_name)
    assert node is not None
    world.ec2.stop(instance_id(claim.provider_id), after_seconds=0)
    for _ in range(60):
        world.pass_second()
    world.cluster.remove("nodes", node.name)
    for number, status in enumerate(left):
        about = ObjectMeta(node.name if number == 0 else "renamed")
        conditions = (Condition("Ready", status),)
        world.cluster.put("nodes", msgspec.structs.replace(node, metadata=about, conditions=conditions))
    noted = {labels.OTHER_NODES: "renamed"}
    world.cluster.patch_metadata("nodeclaims", ObjectMeta(claim.name), {"annotations": noted})
    for pod in world.cluster.all("pods"):
        world.cluster.remove("pods", pod.key)
    delete(world, claim)
    for _ in range(10):
        step(world, claim)
        world.pass_second()
    assert gone(world, claim)
    assert not world.effects.select("ec2", "terminate")


def test_a_provider_id_that_names_no_instance_terminates_none(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = running_node(world)
    node = world.cluster.node(claim.node_name)
    assert node is not None
    world.cluster.put("nodes", msgspec.structs.replace(node, provider_id="other://node"))
    world.cluster.update("nodeclaims", claim.name, provider_id="other://node")
    asked = list[str]()
    usual = world.ec2.terminate

    def terminate(ids: Sequence[str]) -> frozenset[str]:
        asked.extend(ids)
        return usual(ids)

    monkeypatch.setattr(world.ec2, "terminate", terminate)
    delete(world, claim)
    world.run(30)
    assert "" not in asked


def test_a_node_that_is_gone_by_the_time_that_it_is_let_go_keeps_no_claim(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = ended(world)
    usual = world.cluster.set_taints

    def removed_meanwhile(node: Node, *arguments: Any, **options: Any) -> Node:
        world.cluster.remove("nodes", node.name)
        return usual(node, *arguments, **options)

    monkeypatch.setattr(world.cluster, "set_taints", removed_meanwhile)
    step(world, claim)
    assert gone(world, claim)


def test_a_disrupted_claim_counts_for_its_budget_until_its_instance_is_terminated(world: World) -> None:
    claim = running_node(world)
    reason = Condition("DisruptionReason", "True", "Drifted")
    world.cluster.update("nodeclaims", claim.name, conditions=(*claim.conditions, reason))
    (claim,) = world.claims()
    world.doorbells.messages.clear()
    one = InstanceTermination(instance_id(claim.provider_id), "", claim)
    world.effects.inject(Fault("ec2", "terminate", Throttled("too many", code="RequestLimitExceeded")))
    terminate_all(world.ports, [one], world.clock.now())
    assert not world.doorbells.messages_of("disrupt", "evaluate")
    world.clock.advance(60)
    terminate_all(world.ports, [one], world.clock.now())
    assert world.doorbells.messages_of("disrupt", "evaluate")


def test_no_list_of_claims_that_must_be_the_newest_is_waited_for(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    claim = running_node(world)
    usual, newest = world.cluster.nodeclaims_of_instances, list[bool]()

    def listed(instances: Collection[str], *, cached: bool = False) -> tuple[NodeClaim, ...]:
        newest.append(not cached)
        return usual(instances, cached=cached)

    monkeypatch.setattr(world.cluster, "nodeclaims_of_instances", listed)
    delete(world, claim)
    assert world.run(40, until=lambda: bool(world.effects.select("ec2", "terminate")))
    assert newest
    assert not any(newest)


def test_a_claim_to_which_an_instance_is_being_written_does_not_have_it_yet(world: World) -> None:
    claim = running_node(world)
    twin = ObjectMeta("twin", labels=claim.metadata.labels)
    made = msgspec.structs.replace(claim, metadata=twin, provider_id="")
    world.cluster.put("nodeclaims", made)
    assert not other_claims(world.ports, claim)
    world.cluster.put("nodeclaims", msgspec.structs.replace(made, provider_id=claim.provider_id))
    assert [other.name for other in other_claims(world.ports, claim)] == ["twin"]


def test_of_two_steps_that_take_the_last_one_a_single_one_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim may stay for a finalizer of another; what the account's reservations count is counted once."""
    claim = ended(world)
    current = world.cluster.nodeclaim(claim.name)
    assert current is not None
    about = msgspec.structs.replace(
        current.metadata,
        finalizers=(*current.metadata.finalizers, "example.com/keep"),
        labels={**current.metadata.labels, labels.CAPACITY_TYPE: labels.RESERVED},
    )
    world.cluster.put("nodeclaims", msgspec.structs.replace(current, metadata=about))
    usual, others, uses = world.cluster.delete, [claim], list[int]()

    def meanwhile(*arguments: Any, **options: Any) -> None:
        usual(*arguments, **options)
        if others:
            step(world, others.pop())

    def used(_: object, reservation: str, change: int, **__: object) -> None:
        uses.append(change)

    monkeypatch.setattr(world.cluster, "delete", meanwhile)
    monkeypatch.setattr(offering_health_store, "record_reservation_use", used)
    step(world, claim)
    assert uses == [-1]
    found = world.cluster.nodeclaim(claim.name)
    assert found is not None
    assert found.metadata.finalizers == ("example.com/keep",)


@pytest.mark.parametrize("is_told", [True, False], ids=["EC2 tells", "its message is lost"])
def test_an_instance_that_shuts_down_is_looked_at_now_and_then_alone(world: World, is_told: bool) -> None:
    """EC2 takes half a minute and more; a hundred claims that look each three seconds would meet its limits."""
    claim = running_node(world)
    delete(world, claim)
    assert world.run(40, until=lambda: bool(world.effects.select("ec2", "terminate")))
    looks = world.effects.reads["ec2", "instance"]
    id = instance_id(claim.provider_id)
    world.run(SHUTDOWN_SECONDS - 1)
    by_ticks, further = SHUTDOWN_SECONDS // NODE_TICK_SECONDS, 2
    assert world.effects.reads["ec2", "instance"] - looks <= by_ticks + further
    world.run(1)
    if is_told:
        world.deliver_event("EC2 Instance State-change Notification", {"instance-id": id, "state": "terminated"})
    assert world.run(1 if is_told else NODE_TICK_SECONDS, until=lambda: gone(world, claim))


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("failure", [Throttled("too many"), Unavailable("no answer")])
def test_an_instance_that_could_not_be_terminated_without_the_table_is_soon(
    world: World, failure: ApiError, times: int
) -> None:
    """The next tick is twenty seconds away, and messages come back after three minutes."""
    claim = running_node(world)
    world.run(60)
    delete(world, claim)
    fault = Fault("state", "save_call_rates", failure, times=times)
    usual, failed = world.ports.state.save_call_rates, list[int]()

    def save(*arguments: Any, **options: Any) -> Any:
        failed.append(world.clock.milliseconds())
        return usual(*arguments, **options)

    world.state.save_call_rates = save  # type: ignore[method-assign]
    world.effects.inject(fault)
    assert world.run(60, until=lambda: bool(world.effects.select("ec2", "terminate")))
    assert fault.times == 0
    assert world.clock.milliseconds() - failed[0] <= times * ONCE_MORE_SECONDS * 1000
    assert not world.failures or times > 1
    assert world.run(SHUTDOWN_SECONDS + NODE_TICK_SECONDS, until=lambda: gone(world, claim))
