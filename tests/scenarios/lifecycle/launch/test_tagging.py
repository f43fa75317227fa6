"""An instance is named after its node and claim: once, and only what it does not say yet."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from spotwright.errors import ApiError, Denied, InvalidRequest, NotFound, OutOfTime, Throttled, Unavailable
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.eviction import DISRUPTED_TAINT
from spotwright.model.kubernetes.taints import Taint, TaintEffect
from spotwright.simulation import builders
from spotwright.simulation.effects import Fault
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.joining.tagging import tag_instance
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell

DONE = {labels.INSTANCE_TAGGED: "true", labels.CLUSTER_NAME_TAGGED: "true"}


def tagging(world: World) -> list[Mapping[str, str]]:
    """The tags of every CreateTags from now on."""
    usual, sent = world.ec2.tag, list[Mapping[str, str]]()

    def noted(instance_id: str, tags: Mapping[str, str]) -> None:
        sent.append(tags)
        usual(instance_id, tags)

    world.ec2.tag = noted  # type: ignore[method-assign]
    return sent


def running(world: World) -> NodeClaim:
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(90, until=lambda: len(world.running_pods()) == 1)
    world.run(10)
    return world.claims()[0]


def looked_at(world: World, claim: NodeClaim) -> None:
    lifecycle(world, [Doorbell(world.cluster.name, "claim", claim.name)], now=world.clock.now())


def test_an_instance_is_named_once(world: World) -> None:
    sent = tagging(world)
    claim = running(world)
    # The cluster's name was there from birth.
    assert sent == [{"Name": claim.node_name, labels.NODECLAIM: claim.name}]
    assert DONE.items() <= world.claims()[0].metadata.annotations.items()
    looked_at(world, world.claims()[0])
    assert len(sent) == 1


def test_no_pod_waits_for_tags(world: World) -> None:
    """They are set when the pods are bound, and the same write says so and which pods there are."""
    usual, written = world.cluster.patch_nodeclaim, list[set[str]]()

    def noted(claim: NodeClaim, change: Mapping[str, Any]) -> NodeClaim:
        written.append(set(change.get("annotations", ())))
        return usual(claim, change)

    sent = tagging(world)
    world.cluster.patch_nodeclaim = noted  # type: ignore[method-assign]
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(90, until=lambda: bool(sent) or any(pod.node_name for pod in world.cluster.pods()))
    assert any(pod.node_name for pod in world.cluster.pods())
    world.run(20)
    assert len(sent) == 1
    assert [change for change in written if labels.INSTANCE_TAGGED in change] == [{*DONE, labels.PODS_SEEN}]


def test_a_node_that_does_not_become_ready_is_tagged_all_the_same(world: World) -> None:
    """As Karpenter does, which tags what is registered."""
    taint = Taint("node.cilium.io/agent-not-ready", TaintEffect.NO_SCHEDULE)
    world.cluster.put("nodepools", builders.nodepool("default", startup_taints=(taint,)))
    sent = tagging(world)
    world.deploy(builders.pod("inflate"), 1)
    world.run(120)
    (claim,) = world.claims()
    assert claim.is_condition_true("Registered")
    assert not claim.is_condition_true("Initialized")
    assert sent == [{"Name": claim.node_name, labels.NODECLAIM: claim.name}]
    assert DONE.items() <= claim.metadata.annotations.items()


def test_a_node_that_was_registered_by_a_wrong_clock_is_tagged_before_that_time(world: World) -> None:
    taint = Taint("node.cilium.io/agent-not-ready", TaintEffect.NO_SCHEDULE)
    world.cluster.put("nodepools", builders.nodepool("default", startup_taints=(taint,)))
    sent = tagging(world)
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(60, until=lambda: any(claim.is_condition_true("Registered") for claim in world.claims()))
    assert sent == []
    (claim,) = world.claims()
    ahead = world.clock.now() + timedelta(hours=1)
    conditions = tuple(
        msgspec.structs.replace(condition, last_transition_time=ahead) if condition.type == "Registered" else condition
        for condition in claim.conditions
    )
    world.cluster.update("nodeclaims", claim.name, conditions=conditions)
    looked_at(world, claim)
    assert sent == [{"Name": claim.node_name, labels.NODECLAIM: claim.name}]


def test_a_name_that_the_class_gave_stays(world: World) -> None:
    world.cluster.put("ec2nodeclasses", builders.nodeclass(tags={"Name": "theirs"}))
    sent = tagging(world)
    claim = running(world)
    assert sent == [{labels.NODECLAIM: claim.name}]
    assert world.ec2.live_instances()[0].tags["Name"] == "theirs"


@pytest.mark.parametrize(("left", "asked"), [(set(DONE), False), ({labels.INSTANCE_TAGGED}, True), (set(), True)])
def test_a_claim_that_says_so_is_not_tagged_again(world: World, left: set[str], asked: bool) -> None:
    """A claim of an older Karpenter may lack the cluster's name on its instance and the second annotation."""
    claim = running(world)
    (instance,) = world.ec2.live_instances()
    tags = {key: value for key, value in instance.tags.items() if key != labels.CLUSTER_NAME_TAG}
    world.ec2.instances[instance.id] = msgspec.structs.replace(world.ec2.instances[instance.id], tags=tags)
    gone = dict.fromkeys(set(DONE) - left)
    world.cluster.patch_metadata("nodeclaims", claim.metadata, {"annotations": gone})
    sent = tagging(world)
    looked_at(world, claim)
    assert sent == ([{labels.CLUSTER_NAME_TAG: builders.CLUSTER}] if asked else [])


def test_a_claim_on_its_way_out_or_without_a_node_is_not_tagged(world: World) -> None:
    sent = tagging(world)
    world.deploy(builders.pod("inflate"), 1)
    world.run(2)
    (claim,) = world.claims()
    assert not claim.node_name
    looked_at(world, claim)
    world.cluster.delete("nodeclaims", claim.metadata)
    world.forget_deployments()
    world.run(10)
    assert sent == []


def test_a_provider_id_that_is_none_names_nothing(world: World) -> None:
    claim = running(world)
    gone = dict.fromkeys(DONE)
    world.cluster.patch_metadata("nodeclaims", claim.metadata, {"annotations": gone})
    sent = tagging(world)

    def refuses(instance_id: str) -> None:
        raise InvalidRequest(f"Invalid id: {instance_id!r}", code="InvalidInstanceID.Malformed")

    world.ec2.instance = refuses  # type: ignore[method-assign]
    made_up = msgspec.structs.replace(world.claims()[0], provider_id="nonsense")
    assert tag_instance(world, made_up, claim.node_name, world.clock.now()) == ({}, None)
    assert sent == []


@pytest.mark.parametrize(
    ("port", "action", "error"),
    [
        ("ec2", "tag", Denied("an explicit deny", code="UnauthorizedOperation")),
        ("ec2", "tag", Unavailable("no answer", code="InternalError")),
        ("ec2", "tag", NotFound("not visible yet", code="InvalidInstanceID.NotFound")),
        ("ec2", "instance", Throttled("too many", code="RequestLimitExceeded")),
        ("state", "save_call_rate", Unavailable("no answer", code="InternalServerError")),
    ],
    ids=["denied", "unavailable", "not visible", "throttled read", "no state"],
)
def test_nothing_else_of_a_claim_waits_for_tags_that_fail(
    world: World, port: str, action: str, error: ApiError
) -> None:
    """Its node would have kept a taint that nobody needs, and would never have become consolidatable."""
    claim = untagged(world)
    node = world.cluster.nodes()[0]
    world.cluster.set_taints(node, (*node.taints, DISRUPTED_TAINT))
    world.effects.inject(Fault(port, action, error))
    looked_at(world, claim)
    assert DISRUPTED_TAINT not in world.cluster.nodes()[0].taints
    assert not DONE.items() & world.claims()[0].metadata.annotations.items()
    looked_at(world, claim)
    assert DONE.items() <= world.claims()[0].metadata.annotations.items()


def test_a_step_that_has_no_time_for_tags_is_taken_again(world: World) -> None:
    claim = untagged(world)
    world.effects.inject(Fault("ec2", "tag", OutOfTime("the invocation ends soon", code="OutOfTime")))
    looked_at(world, claim)
    world.run(10)
    assert DONE.items() <= world.claims()[0].metadata.annotations.items()


def untagged(world: World) -> NodeClaim:
    """A running claim whose instance has no name yet."""
    claim = running(world)
    (instance,) = world.ec2.live_instances()
    tags = {key: value for key, value in instance.tags.items() if key != "Name"}
    world.ec2.instances[instance.id] = msgspec.structs.replace(world.ec2.instances[instance.id], tags=tags)
    world.cluster.patch_metadata("nodeclaims", claim.metadata, {"annotations": dict.fromkeys(DONE)})
    return world.claims()[0]
