"""Nodes that stay unhealthy are replaced (gate NodeRepair): what is not proven sick stays."""

from collections.abc import Iterable
from datetime import timedelta

import msgspec
import pytest

from spotwright.errors import Unavailable
from spotwright.model import labels
from spotwright.model.ec2.instance_status import Impairment, InstanceStatus, StatusCheck
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.karpenter.repair_policies import unhealthy_condition
from spotwright.model.kubernetes.meta import Condition
from spotwright.model.kubernetes.node import Node, instance_id
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.repairs import repair_nodes
from spotwright.workflows.ports.doorbells import Doorbell
from tests.scenarios.lifecycle.disruption.sick_nodes import MINUTES, is_deleted, reasons, with_nodes


@pytest.fixture
def repaired(world: World) -> World:
    """The gate is on, and six nodes run a pod each."""
    return with_nodes(world, 6)


def fall_ill(world: World, claim: NodeClaim, kind: str = "KernelReady", *, status: str = "False") -> None:
    """The node monitoring agent, or the kubelet, reports the condition from now on."""
    node = world.cluster.find("nodes", claim.node_name)
    others = tuple(condition for condition in node.conditions if condition.type != kind)
    condition = Condition(kind, status, "Found", last_transition_time=world.clock.seconds())
    world.cluster.update("nodes", node.name, conditions=(*others, condition))


@pytest.mark.parametrize(("kind", "minutes"), [("KernelReady", 30), ("AcceleratedHardwareReady", 10)])
def test_k1_a_node_is_replaced_when_its_toleration_ends_and_not_before(
    repaired: World, kind: str, minutes: int
) -> None:
    sick = repaired.claims()[0]
    fall_ill(repaired, sick, kind)
    assert not repaired.run(minutes * MINUTES - 2, until=lambda: is_deleted(repaired, sick))
    assert repaired.run(5, until=lambda: is_deleted(repaired, sick)), "at the second, give or take"
    assert repaired.run(5 * MINUTES, until=lambda: len(repaired.running_pods()) == 6 and len(repaired.claims()) == 6)
    assert sick.name not in {claim.name for claim in repaired.claims()}
    assert "Unhealthy" in reasons(repaired, sick.node_name) & reasons(repaired, sick.name)


def test_a_kubelet_that_falls_silent_is_replaced_with_the_pods_that_it_cannot_stop(repaired: World) -> None:
    sick = repaired.claims()[0]
    repaired.kubelets.broken_instances.add(sick.provider_id.rpartition("/")[2])
    repaired.cluster.put("poddisruptionbudgets", builders.pod_disruption_budget("all", "inflate", min_available="100%"))
    assert repaired.run(35 * MINUTES, until=lambda: repaired.cluster.find("nodeclaims", sick.name) is None)
    assert repaired.run(5 * MINUTES, until=lambda: len(repaired.running_pods()) == 6)


def test_without_the_gate_nothing_is_repaired(world: World) -> None:
    with_nodes(world, 2, gates=())
    sick = world.claims()[0]
    fall_ill(world, sick)
    assert not world.run(40 * MINUTES, until=lambda: is_deleted(world, sick))


def test_a_condition_that_clears_begins_anew(repaired: World) -> None:
    sick = repaired.claims()[0]
    for _ in range(3):
        fall_ill(repaired, sick)
        assert not repaired.run(29 * MINUTES, until=lambda: is_deleted(repaired, sick))
        fall_ill(repaired, sick, status="True")
        assert not repaired.run(5 * MINUTES, until=lambda: is_deleted(repaired, sick))


def test_too_many_unhealthy_nodes_are_all_kept_and_it_is_said_until_fewer_are(repaired: World) -> None:
    first, second, third, *_ = repaired.claims()
    for claim in (first, second, third):
        fall_ill(repaired, claim)
    assert not repaired.run(40 * MINUTES, until=lambda: any(is_deleted(repaired, claim) for claim in repaired.claims()))
    assert "NodeRepairBlocked" in reasons(repaired, first.node_name) & reasons(repaired, "default")
    told = [
        event for event in repaired.cluster.events if (event.name, event.reason) == ("default", "NodeRepairBlocked")
    ]
    assert len(told) == 1
    assert "3 of 6" in told[0].message
    fall_ill(repaired, third, status="True")
    assert repaired.run(2 * MINUTES, until=lambda: is_deleted(repaired, first) and is_deleted(repaired, second))
    assert not is_deleted(repaired, third)


def test_stale_conditions_after_an_outage_of_the_api_server_repair_nothing(repaired: World) -> None:
    """The kubelet recovered while nobody could write so; it corrects its condition seconds after the outage."""
    sick = repaired.claims()[0]
    fall_ill(repaired, sick, "Ready")
    repaired.run(28 * MINUTES)
    repaired.outages["cluster"] = Unavailable("no answer", code="Timeout")
    repaired.run(10 * MINUTES)
    repaired.outages.clear()
    repaired.doorbells.ring("lifecycle", [Doorbell(repaired.cluster.name, "repair")])
    repaired.run(10)
    assert not is_deleted(repaired, sick)
    fall_ill(repaired, sick, "Ready", status="True")
    assert not repaired.run(5 * MINUTES, until=lambda: is_deleted(repaired, sick))


def test_a_node_that_states_the_instance_of_another_does_no_harm(repaired: World) -> None:
    victim, *_ = repaired.claims()
    liar = msgspec.structs.replace(
        builders.unmanaged_node("liar"),
        provider_id=victim.provider_id,
        conditions=(Condition("Ready", "Unknown", last_transition_time=repaired.clock.seconds()),),
    )
    repaired.cluster.put("nodes", liar)
    assert not repaired.run(40 * MINUTES, until=lambda: is_deleted(repaired, victim))


def test_nothing_is_repaired_while_the_cluster_is_paused(repaired: World) -> None:
    sick = repaired.claims()[0]
    fall_ill(repaired, sick)
    repaired.state.cluster_row = msgspec.structs.replace(repaired.state.cluster_row, paused=True)
    assert not repaired.run(40 * MINUTES, until=lambda: is_deleted(repaired, sick))


@pytest.mark.parametrize("forwarder", [True, False])
def test_lost_doorbells_are_made_up_for_within_a_minute(repaired: World, *, forwarder: bool) -> None:
    repaired.forwarder_runs = forwarder
    sick = repaired.claims()[0]
    fall_ill(repaired, sick)
    repaired.run(30 * MINUTES - 5)
    repaired.doorbells.receive("lifecycle")
    repaired.forget_changes()
    assert repaired.run(100, until=lambda: is_deleted(repaired, sick))


def test_a_sick_node_found_late_takes_a_second_look(repaired: World) -> None:
    """A condition that says that it is old: the Node's doorbell rings, and the node goes well within a minute."""
    sick = repaired.claims()[0]
    repaired.run(45 * MINUTES)
    report(repaired, sick, minutes_ago=40)
    assert not repaired.run(15, until=lambda: is_deleted(repaired, sick))
    assert repaired.run(15, until=lambda: is_deleted(repaired, sick))


def report(world: World, claim: NodeClaim, *, minutes_ago: int, kind: str = "NetworkingReady") -> None:
    """The condition is written now, with a transition of some minutes ago."""
    node = world.cluster.find("nodes", claim.node_name)
    since = world.clock.seconds() - timedelta(minutes=minutes_ago)
    others = tuple(condition for condition in node.conditions if condition.type != kind)
    reported = Condition(kind, "False", "Found", last_transition_time=since)
    world.cluster.update("nodes", node.name, conditions=(*others, reported))


def join_with_slow_clock(world: World, claim: NodeClaim, *, minutes: int) -> None:
    """What the kubelet wrote about the Node until now, it wrote by a slow clock."""
    node = world.cluster.find("nodes", claim.node_name)
    back = timedelta(minutes=minutes)
    conditions = tuple(
        msgspec.structs.replace(condition, last_transition_time=condition.last_transition_time - back)
        for condition in node.conditions
        if condition.last_transition_time is not None
    )
    assert conditions
    world.cluster.update("nodes", node.name, conditions=conditions)


def test_one_condition_that_is_dated_back_is_believed(repaired: World) -> None:
    """Karpenter's own tests report sick nodes so: the clock that wrote the Node's other conditions is right."""
    sick = repaired.claims()[0]
    report(repaired, sick, minutes_ago=31)
    assert repaired.run(30, until=lambda: is_deleted(repaired, sick))


def test_the_only_condition_of_a_node_proves_nothing_when_it_is_older_than_the_node(repaired: World) -> None:
    sick = repaired.claims()[0]
    repaired.cluster.update("nodes", sick.node_name, conditions=())
    report(repaired, sick, minutes_ago=31, kind="Ready")
    found = unhealthy_condition(repaired.cluster.find("nodes", sick.node_name))
    assert found is not None
    assert not found.is_timely


@pytest.mark.parametrize("kind", ["NetworkingReady", "KernelReady"])
def test_a_condition_by_a_slow_clock_is_tolerated_from_when_it_is_seen(repaired: World, kind: str) -> None:
    """The clock of the node is 40 minutes slow."""
    sick = repaired.claims()[0]
    join_with_slow_clock(repaired, sick, minutes=40)
    report(repaired, sick, minutes_ago=40, kind=kind)
    assert not repaired.run(30 * MINUTES - 2, until=lambda: is_deleted(repaired, sick))
    assert repaired.run(MINUTES, until=lambda: is_deleted(repaired, sick))
    (said,) = [event for event in repaired.cluster.events if (event.name, event.reason) == (sick.name, "Unhealthy")]
    assert said.message.endswith(f"condition {kind} is False and was seen so for 30 minutes, for which it is tolerated")


def test_a_condition_by_a_slow_clock_that_clears_repairs_nothing(repaired: World) -> None:
    sick = repaired.claims()[0]
    join_with_slow_clock(repaired, sick, minutes=40)
    report(repaired, sick, minutes_ago=40)
    repaired.run(25 * MINUTES)
    fall_ill(repaired, sick, "NetworkingReady", status="True")
    assert not repaired.run(10 * MINUTES, until=lambda: is_deleted(repaired, sick))
    report(repaired, sick, minutes_ago=40)
    assert not repaired.run(29 * MINUTES, until=lambda: is_deleted(repaired, sick))


def test_a_clock_that_was_slow_when_the_node_joined_proves_nothing_later(repaired: World) -> None:
    """An hour later its conditions are not older than the Node; one that never changed still is."""
    sick = repaired.claims()[0]
    report(repaired, sick, minutes_ago=40, kind="ClockTeller")
    repaired.run(60 * MINUTES)
    report(repaired, sick, minutes_ago=40)
    assert not repaired.run(29 * MINUTES, until=lambda: is_deleted(repaired, sick))


@pytest.mark.parametrize(("stated", "kept"), [("2024-04-01T12:00:00Z", True), ("2099-04-01T12:00:00Z", False)])
def test_k4_a_termination_that_was_to_end_later_ends_now(repaired: World, stated: str, *, kept: bool) -> None:
    sick = repaired.claims()[0]
    fall_ill(repaired, sick)
    repaired.run(29 * MINUTES)
    repaired.cluster.update("nodeclaims", sick.name, annotations={labels.TERMINATION_TIMESTAMP: stated})
    seen: list[str] = []

    def is_gone() -> bool:
        current = repaired.cluster.find("nodeclaims", sick.name)
        if current is not None and current.metadata.deletion_timestamp is not None:
            seen.append(current.metadata.annotations[labels.TERMINATION_TIMESTAMP])
        return current is None

    assert repaired.run(5 * MINUTES, until=is_gone)
    assert (seen[0] == stated) == kept


LONG = 60 * MINUTES

# A Node whose claim may be another's, or which is not what was listed


def sick_for_long(world: World, claim: NodeClaim) -> Node:
    """The node is sick for longer than is tolerated; the Node as it is stored."""
    node: Node = world.cluster.find("nodes", claim.node_name)
    since = world.clock.seconds()
    world.clock.advance(LONG)
    condition = Condition("KernelReady", "False", "Found", last_transition_time=since)
    stored: Node = world.cluster.update("nodes", node.name, conditions=(*node.conditions, condition))
    return stored


def looked_at_twice(world: World) -> None:
    """Nothing else happens meanwhile."""
    for _ in range(3):
        repair_nodes(world.ports, now=world.clock.now())
        world.clock.advance(30)


def deleted(world: World, claims: Iterable[NodeClaim]) -> list[str]:
    return [claim.name for claim in claims if is_deleted(world, claim)]


def test_a_sick_node_of_a_single_claim_is_replaced_after_two_looks(repaired: World) -> None:
    """What the following tests differ from."""
    sick = repaired.claims()[0]
    sick_for_long(repaired, sick)
    looked_at_twice(repaired)
    assert deleted(repaired, repaired.claims()) == [sick.name]


@pytest.mark.parametrize("name", ["aa-twin", "zz-twin"])
@pytest.mark.parametrize("owned", [True, False])
def test_of_two_claims_of_a_sick_node_neither_goes(repaired: World, name: str, *, owned: bool) -> None:
    """ADR 23. ``owned``: the Node names the claim that it was registered with."""
    sick = repaired.claims()[0]
    metadata = msgspec.structs.replace(sick.metadata, name=name, uid="", resource_version="")
    repaired.cluster.put("nodeclaims", msgspec.structs.replace(sick, metadata=metadata))
    node = sick_for_long(repaired, sick)
    if not owned:
        without_owner(repaired, node)
    looked_at_twice(repaired)
    assert not deleted(repaired, repaired.claims())


def without_owner(world: World, node: Node) -> None:
    """Whoever made the Node anew left its owner out: all claims with its instance are found."""
    metadata = msgspec.structs.replace(node.metadata, owner_references=())
    world.cluster.put("nodes", msgspec.structs.replace(node, metadata=metadata))


def test_a_lone_node_that_states_the_instance_of_a_claim_of_another_node_costs_nobody(repaired: World) -> None:
    """The claim's own Node is gone for a moment."""
    victim = repaired.claims()[0]
    own = sick_for_long(repaired, victim)
    # As old as the other one: or else its condition would count from now on.
    metadata = msgspec.structs.replace(own.metadata, name="liar", uid="", resource_version="", owner_references=())
    repaired.cluster.put("nodes", msgspec.structs.replace(own, metadata=metadata))
    repaired.cluster.remove("nodes", own.name)
    looked_at_twice(repaired)
    assert not deleted(repaired, repaired.claims())


def test_a_sick_node_of_a_claim_of_another_provider_is_left_alone(repaired: World) -> None:
    sick = repaired.claims()[0]
    sick_for_long(repaired, sick)
    foreign = NodeClassReference("karpenter.azure.com", "AKSNodeClass", "default")
    repaired.cluster.update("nodeclaims", sick.name, node_class_ref=foreign)
    looked_at_twice(repaired)
    assert not deleted(repaired, repaired.claims())


def listed_before(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The list of Nodes stays as it is now; a Node that is read by its name is as it is then."""
    nodes = world.cluster.nodes()
    monkeypatch.setattr(world.cluster, "nodes", lambda: nodes)


def test_a_node_that_was_made_anew_since_the_list_is_not_repaired(
    repaired: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """EC2 says the same of its instance; the new Node is to be looked at anew."""
    sick = repaired.claims()[0]
    id = instance_id(sick.provider_id)
    repaired.ec2.statuses[id] = InstanceStatus(id, (Impairment(StatusCheck.SYSTEM, repaired.clock.seconds()),))
    repaired.clock.advance(LONG)
    listed_before(repaired, monkeypatch)
    node = repaired.cluster.find("nodes", sick.node_name)
    metadata = msgspec.structs.replace(node.metadata, uid="another")
    repaired.cluster.put("nodes", msgspec.structs.replace(node, metadata=metadata))
    looked_at_twice(repaired)
    assert not deleted(repaired, repaired.claims())


def test_a_condition_that_cleared_since_the_list_repairs_nothing(
    repaired: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sick = repaired.claims()[0]
    sick_for_long(repaired, sick)
    listed_before(repaired, monkeypatch)
    fall_ill(repaired, sick, status="True")
    looked_at_twice(repaired)
    assert not deleted(repaired, repaired.claims())


def test_a_condition_that_began_anew_since_the_list_is_not_looked_at_yet(
    repaired: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sick = repaired.claims()[0]
    sick_for_long(repaired, sick)
    listed_before(repaired, monkeypatch)
    fall_ill(repaired, sick)
    looked_at_twice(repaired)
    current = repaired.cluster.find("nodeclaims", sick.name)
    assert labels.SEEN_UNHEALTHY not in current.metadata.annotations
