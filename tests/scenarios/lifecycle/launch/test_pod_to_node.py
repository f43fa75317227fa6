"""The life of a pending pod: decided, bought, joined, initialized, running; and what may go wrong on the way."""

import logging
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from spotwright.errors import Conflict, Denied, InvalidRequest, Throttled, Unavailable
from spotwright.model import labels
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.meta import ObjectMeta, find_condition
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod_constraints import PodAffinityTerm
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.simulation import builders
from spotwright.simulation.effects import Crash, Fault
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.planning.snapshot import gather_live
from spotwright.workflows.ports.doorbells import Doorbell
from tests.scenarios.lifecycle.conftest import are_initialized

ORDER = ("created nodeclaim", "launched nodeclaim", "registered nodeclaim", "initialized nodeclaim")


def test_a_pending_pod_runs_on_a_node_that_was_bought_for_it(world: World, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="spotwright.lifecycle"):
        world.deploy(builders.pod("inflate"), 3)
        assert world.run(60, until=lambda: len(world.running_pods()) == 3)
        assert world.run(10, until=lambda: are_initialized(world))
    (claim,) = world.claims()
    assert all(claim.is_condition_true(kind) for kind in ("Launched", "Registered", "Initialized", "Ready"))
    (instance,) = world.ec2.live_instances()
    assert claim.provider_id == f"aws:///{instance.zone}/{instance.id}"
    assert claim.image_id == "ami-amd64"
    world.run(10)
    (instance,) = world.ec2.live_instances()
    assert instance.tags["Name"] == claim.node_name
    assert instance.tags[labels.NODECLAIM] == claim.name
    said = [record.message for record in caplog.records]
    assert sorted(map(said.index, ORDER)) == [said.index(one) for one in ORDER]


def test_the_node_carries_what_its_claim_says(world: World) -> None:
    world.deploy(builders.pod("inflate"), 1)
    world.run(60, until=lambda: bool(world.running_pods()))
    assert world.run(10, until=lambda: are_initialized(world))
    (claim,) = world.claims()
    node = world.cluster.node(claim.node_name)
    assert node is not None
    assert claim.metadata.labels.items() <= node.metadata.labels.items()
    assert (node.is_registered, node.is_initialized, node.taints) == (True, True, ())
    assert node.metadata.finalizers == (labels.FINALIZER,)
    assert [owner.uid for owner in node.metadata.owner_references] == [claim.metadata.uid]
    assert claim.metadata.labels[labels.INSTANCE_TYPE] == "c5.large"
    assert claim.metadata.labels[labels.CAPACITY_TYPE] == "spot"


@pytest.mark.parametrize("action", ["commit", "create"])
def test_nodes_that_differ_in_what_their_pods_request_are_launched_by_one_call(world: World, action: str) -> None:
    """Each NodeClaim has the requests of its own pods, for a plan that counts on it before it is created, too."""
    apart = PodAffinityTerm(labels.HOSTNAME, (NodeSelectorRequirement("group", "In", ("apart",)),), ("default",))
    for name, cpu in (("small", 700), ("large", 900)):
        world.deploy(builders.pod(name, cpu_millicores=cpu, labels={"group": "apart"}, pod_anti_affinity=(apart,)), 1)
    world.effects.crash_at("state", action)
    with pytest.raises(Crash):
        world.run(60)
    snapshot = gather_live(world.ports, world.state.cluster(), now=world.clock.now())
    in_flight = [planned.nodeclaim.requests["cpu"] for planned in snapshot.in_flight]
    assert world.run(60, until=lambda: len(world.running_pods()) == 2)
    assert sum(effect.action == "create_fleet" for effect in world.effects.log) == 1
    assert sorted(in_flight) == sorted(claim.requests["cpu"] for claim in world.claims()) == [700, 900]


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_no_node_of_a_launch_is_of_a_type_that_turned_out_too_small_for_its_pods(world: World, order: str) -> None:
    """The catalog may learn between the decision and the launch that a type has less than it stated."""
    apart = PodAffinityTerm(labels.HOSTNAME, (NodeSelectorRequirement("group", "In", ("apart",)),), ("default",))
    for name, cpu in zip(order, (700, 1850), strict=True):
        world.deploy(builders.pod(name, cpu_millicores=cpu, labels={"group": "apart"}, pod_anti_affinity=(apart,)), 1)
    world.effects.crash_at("state", "commit")
    with pytest.raises(Crash):
        world.run(60)
    known = world.catalogs.catalog.instance_types("default")
    smaller = tuple(
        msgspec.structs.replace(known_type, allocatable=known_type.allocatable | {"cpu": 1800})
        if known_type.name == "c5.large"
        else known_type
        for known_type in known
    )
    world.catalogs.catalog = Catalog({"": smaller}, "smaller")
    assert world.run(60, until=lambda: len(world.running_pods()) == 2)
    assert "c5.large" not in {instance.instance_type for instance in world.ec2.live_instances()}


def test_the_claim_says_what_was_bought_and_why(world: World) -> None:
    """`kubectl describe nodeclaim` shows it twice: as a condition, and as an event."""
    world.deploy(builders.pod("inflate"), 1)
    world.run(60, until=lambda: bool(world.running_pods()))
    (claim,) = world.claims()
    launched = find_condition(claim.conditions, "Launched")
    assert launched is not None
    zone = claim.metadata.labels[labels.ZONE]
    assert launched.message.startswith(f"c5.large spot in {zone} at $0.0")
    assert "/h. Why: c5.large spot at $0.0" in launched.message
    told = [event for event in world.cluster.events if event.reason == "Launched" and event.name == claim.name]
    assert any(launched.message in event.message for event in told)


def test_the_same_messages_again_change_nothing(world: World) -> None:
    world.deploy(builders.pod("inflate"), 5)
    world.run(60, until=lambda: len(world.running_pods()) == 5)
    world.run(120)
    before = [effect for effect in world.effects.log if effect.port in ("cluster", "ec2")]
    name = world.cluster.name
    for _ in range(2):
        bells = [Doorbell(name, "decision"), Doorbell(name, "nodepools")]
        bells += [Doorbell(name, "launch", row.removeprefix("launch#")) for row in world.state.rows]
        bells += [Doorbell(name, "claim", claim.name) for claim in world.claims()]
        bells += [Doorbell(name, "node", claim.node_name) for claim in world.claims()]
        lifecycle(world, bells, now=world.clock.now())
    after = [effect for effect in world.effects.log if effect.port in ("cluster", "ec2")]
    assert after == before


def test_one_fleet_request_buys_all_equal_nodes(world: World) -> None:
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 4)
    world.run(60, until=lambda: len(world.running_pods()) == 4)
    (request,) = world.ec2.requests
    assert request["TargetCapacitySpecification"]["TotalTargetCapacity"] == 4
    assert len(world.claims()) == 4
    assert len({claim.provider_id for claim in world.claims()}) == 4


def test_create_fleet_does_not_wait_for_its_new_claims_to_be_read(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    create_fleet, read = world.ec2.create_fleet, list[int]()

    def count(request: Any) -> Any:
        read.append(world.effects.reads["cluster", "nodeclaim"])
        return create_fleet(request)

    monkeypatch.setattr(world.ec2, "create_fleet", count)
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 4)
    assert world.run(60, until=lambda: len(world.running_pods()) == 4)
    assert read == [0]


@pytest.mark.parametrize("error", [Unavailable("no answer"), Throttled("slow down", code="RequestLimitExceeded")])
@pytest.mark.parametrize("acted", [False, True])
def test_a_fleet_call_without_an_answer_is_repeated_and_buys_once(
    world: World, error: Unavailable | Throttled, acted: bool
) -> None:
    world.effects.inject(Fault("ec2", "create_fleet", error, times=3, after_change=acted))
    world.deploy(builders.pod("inflate"), 3)
    assert world.run(90, until=lambda: len(world.running_pods()) == 3)
    world.run(180)
    assert len(world.ec2.all_instances()) == len(world.claims()) == 1
    assert {request["ClientToken"] for request in world.ec2.requests} == {world.ec2.requests[0]["ClientToken"]}


def test_a_definite_refusal_is_said_and_tried_again_under_a_new_token(world: World) -> None:
    error = Denied("You are not authorized to perform this operation", code="UnauthorizedOperation")
    world.effects.inject(Fault("ec2", "create_fleet", error, times=2))
    world.deploy(builders.pod("inflate"), 3)
    assert world.run(5, until=lambda: bool(world.claims()) and _reason(world) == "Unauthorized")
    assert world.run(90, until=lambda: len(world.running_pods()) == 3)
    assert len(world.ec2.all_instances()) == 1
    assert world.ec2.requests[0]["ClientToken"].endswith("-2")


def _reason(world: World) -> str:
    launched = find_condition(world.claims()[0].conditions, "Launched")
    return launched.reason if launched else ""


def test_a_refusal_that_stays_ends_the_claim_after_five_minutes(world: World) -> None:
    error = InvalidRequest("x" * 500, code="InvalidParameterValue")
    world.effects.inject(Fault("ec2", "create_fleet", error, times=1000))
    world.deploy(builders.pod("inflate"), 1)
    world.run(30)
    first = world.claims()[0]
    launched = find_condition(first.conditions, "Launched")
    assert launched is not None
    assert (launched.status, launched.reason, len(launched.message)) == ("Unknown", "LaunchFailed", 303)
    world.run(269)
    assert first.name in {claim.name for claim in world.claims()}
    world.run(70)
    assert first.name not in {claim.name for claim in world.claims()}
    assert not world.ec2.all_instances()


def test_without_capacity_the_claim_ends_and_its_pods_are_planned_elsewhere(world: World) -> None:
    world.ec2.capacity[("spot", "*", "*")] = 0
    world.deploy(builders.pod("inflate"), 3)
    assert world.run(120, until=lambda: len(world.running_pods()) == 3)
    assert [instance.capacity_type for instance in world.ec2.live_instances()] == ["on-demand"] * len(
        world.ec2.live_instances()
    )
    assert "InsufficientCapacityError" in {event.reason for event in world.cluster.events}
    assert all(claim.metadata.deletion_timestamp is None for claim in world.claims())


def test_partial_capacity_keeps_what_came_and_plans_the_rest_again(world: World) -> None:
    for zone in builders.ZONES:
        world.ec2.capacity[("spot", "c5.large", zone)] = 1 if zone == builders.ZONES[0] else 0
        for name in ("m5.large", "m5.xlarge", "c5.2xlarge"):
            world.ec2.capacity[("spot", name, zone)] = 0
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 3)
    assert world.run(120, until=lambda: len(world.running_pods()) == 3)
    kinds = sorted(instance.capacity_type for instance in world.ec2.live_instances())
    assert kinds.count("spot") == 1
    assert {health.instance_type for health in world.state.health.values()} >= {"c5.large"}
    assert len(world.claims()) == len(world.ec2.live_instances())


def test_instances_beyond_the_claims_are_collected_after_a_minute(world: World) -> None:
    world.deploy(builders.pod("inflate"), 1)
    world.run(60, until=lambda: bool(world.running_pods()))
    (instance,) = world.ec2.live_instances()
    extra = msgspec.structs.replace(instance, id="i-0000000000000dead", private_dns_name="ip-10-9-9-9.internal")
    world.ec2.add_instance(extra, like=instance.id)
    world.run(150)
    assert [one.id for one in world.ec2.live_instances()] == [instance.id]


def test_a_machine_that_never_joins_is_replaced_after_a_quarter_of_an_hour(world: World) -> None:
    world.deploy(builders.pod("inflate"), 1)
    world.run(5, until=lambda: bool(world.ec2.live_instances()))
    world.kubelets.broken_instances.add(world.ec2.live_instances()[0].id)
    world.run(30)
    first = world.claims()[0]
    registered = find_condition(first.conditions, "Registered")
    assert registered is not None
    assert (registered.status, registered.reason) == ("Unknown", "NodeNotFound")
    world.run(860)
    assert world.claims()[0].name == first.name
    assert world.run(240, until=lambda: bool(world.running_pods()))
    assert world.run(30, until=lambda: first.name not in {claim.name for claim in world.claims()})


def make_by_hand(world: World) -> None:
    reference = NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default")
    about = ObjectMeta("by-hand", labels={labels.NODEPOOL: "default"})
    requirements = builders.capacity_types("on-demand")
    world.cluster.put("nodeclaims", NodeClaim(about, reference, requirements=requirements, requests={"cpu": 1500}))


def test_a_claim_made_by_hand_is_launched_too(world: World) -> None:
    make_by_hand(world)
    assert world.run(90, until=lambda: world.claims()[0].is_condition_true("Initialized"))
    (instance,) = world.ec2.live_instances()
    assert (instance.instance_type, instance.capacity_type) == ("c5.large", "on-demand")
    assert labels.FINALIZER in world.claims()[0].metadata.finalizers


def test_a_claim_made_by_hand_that_others_change_at_the_same_moment_is_launched_a_second_later(world: World) -> None:
    """The forwarder says once that there is one."""
    world.run(60 - world.clock.now().second + 2)
    world.effects.inject(Fault("cluster", "patch_metadata", Conflict("it has changed", code="Conflict")))
    make_by_hand(world)
    assert world.run(5, until=lambda: world.claims()[0].is_condition_true("Launched"))


def test_a_conflict_that_stays_is_not_met_again_each_second(world: World) -> None:
    """As where an admission webhook answers so. The polls look at the claim."""
    world.run(60 - world.clock.now().second + 2)
    world.effects.inject(Fault("cluster", "patch_metadata", Conflict("it has changed", code="Conflict"), times=10**6))
    make_by_hand(world)
    world.run(10)
    assert not world.doorbells.messages_of("lifecycle", "claim")


def test_a_claim_of_another_provider_is_left_alone(world: World) -> None:
    foreign = world.cluster.put(
        "nodeclaims", NodeClaim(ObjectMeta("foreign"), NodeClassReference("karpenter.azure.com", "AKSNodeClass", "x"))
    )
    world.run(700)
    assert world.claims() == (foreign,)
    assert not world.ec2.all_instances()


def test_a_node_that_joins_without_the_unregistered_taint_is_registered_with_an_event(world: World) -> None:
    world.kubelets.boot_seconds = 3600
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(60, until=lambda: any(claim.provider_id for claim in world.claims()))
    (claim,) = world.claims()
    world.cluster.put("nodes", builders.unmanaged_node("n1", provider_id=claim.provider_id))
    assert world.run(10, until=lambda: world.claims()[0].is_condition_true("Registered"))
    missing = {(event.kind, event.name) for event in world.cluster.events if event.reason == "UnregisteredTaintMissing"}
    assert missing == {("nodes", "n1"), ("nodeclaims", claim.name)}


def test_a_node_that_is_smaller_than_expected_is_said_and_kept(world: World) -> None:
    world.deploy(builders.pod("inflate", cpu_millicores=1800), 1)
    assert world.run(90, until=lambda: len(world.running_pods()) == 1)
    world.run(5)
    (claim,) = world.claims()
    assert claim.is_condition_true("ConsistentStateFound")
    capacity = world.cluster.find("nodes", claim.node_name).capacity
    world.cluster.update("nodes", claim.node_name, capacity=capacity | {"memory": capacity["memory"] // 2})
    world.run(5)
    (claim,) = world.claims()
    assert claim.metadata.deletion_timestamp is None
    assert not claim.is_condition_true("ConsistentStateFound")
    (event,) = (event for event in world.cluster.events if event.reason == "FailedConsistencyCheck")
    assert "(50.0% of expected)" in event.message


@pytest.mark.usefixtures("pods_differ")
def test_a_node_that_becomes_ready_while_it_is_registered_does_not_get_its_taints_back(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control plane took them off between two calls of the step; not-ready:NoExecute would evict its pods."""
    usual = world.cluster.set_taints
    written: list[tuple[Node, Node]] = []

    def set_taints(node: Node, taints: Sequence[Taint], **more: Any) -> Node:
        if more.get("metadata") and not node.is_ready:
            kept = tuple(taint for taint in node.taints if taint.key != labels.NOT_READY)
            world.cluster.update("nodes", node.name, taints=kept, conditions=(builders.READY,))
        after = usual(node, taints, **more)
        written.append((node, after))
        return after

    monkeypatch.setattr(world.cluster, "set_taints", set_taints)
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(120, until=lambda: len(world.running_pods()) == 1)
    registered = written[0][1]
    assert registered.is_registered
    assert registered.is_ready
    assert {taint.key for before, after in written for taint in after.taints if taint not in before.taints} == {
        labels.HELD
    }


def test_a_node_that_registers_while_a_lingering_taint_is_taken_off_is_labeled_as_initialized(world: World) -> None:
    """The taint of a node that was unreachable goes some seconds after the node is Ready again."""
    world.settings = msgspec.structs.replace(world.settings, follow_plan="Off")
    world.kubelets.boot_seconds = 3600
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(60, until=lambda: any(claim.provider_id for claim in world.claims()))
    (claim,) = world.claims()
    node = builders.unmanaged_node("n1", provider_id=claim.provider_id)
    taints = (Taint(labels.UNREGISTERED, "NoExecute"), Taint(labels.UNREACHABLE, "NoExecute"))
    world.cluster.put("nodes", msgspec.structs.replace(node, taints=taints))
    assert world.run(10, until=lambda: world.cluster.find("nodeclaims", claim.name).is_condition_true("Initialized"))
    assert world.cluster.find("nodes", "n1").is_initialized


def test_a_node_that_changed_while_its_doorbell_was_handled_is_looked_at_again_after_a_second(world: World) -> None:
    """A heartbeat of the kubelet between reading the node and writing it changes nothing that rings."""
    world.deploy(builders.pod("inflate"), 1)
    assert world.run(120, until=lambda: any(node.is_registered for node in world.cluster.nodes()))
    world.effects.inject(Fault("cluster", "set_taints", Conflict("the node has changed", code="Conflict")))
    assert world.run(60, until=lambda: any(node.is_open for node in world.cluster.nodes()))
    assert world.run(5, until=lambda: world.claims()[0].is_condition_true("Initialized"))
