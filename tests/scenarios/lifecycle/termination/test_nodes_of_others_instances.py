"""Nodes that join with the provider id of another one's instance: the instance's own is registered."""

from typing import Any

import msgspec
import pytest

from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, OwnerReference, find_condition
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.taints import Taint
from spotwright.simulation import builders
from spotwright.simulation.effects import Crash
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell
from tests.scenarios.lifecycle.termination.nodes_and_claims import MINUTES, current, node_of, running_claim


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
        # Its doorbell is lost with it: the sweep finds it.
        world.run(11 * MINUTES)
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


@pytest.mark.usefixtures("pods_differ")
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
