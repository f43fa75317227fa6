"""Nodes that are no longer what their pool and class ask for: the claim says so, and stops saying so."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from spotwright.errors import Conflict, Unavailable
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodeclass import AMI
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, find_condition
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import NodeSelectorRequirement, Operator
from spotwright.simulation import builders
from spotwright.simulation.effects import Crash, Fault
from spotwright.simulation.world import World
from spotwright.workflows.lifecycle.status import drift
from spotwright.workflows.lifecycle.workflow import lifecycle
from spotwright.workflows.ports.doorbells import Doorbell
from spotwright.workflows.provision.workflow import provision
from spotwright.workflows.sweep.full import DRIFT_SECONDS
from tests.scenarios.lifecycle.conftest import are_initialized
from tests.scenarios.lifecycle.disruption.edits import edit, look, stamp

NEWER = AMI("ami-newer", requirements=(NodeSelectorRequirement(labels.ARCH, Operator.IN, ("amd64",)),))


def with_nodes(world: World, count: int) -> None:
    """So many nodes with a pod each, of a pool and a class with their hashes; drifted nodes are not replaced."""
    world.cluster.update("nodepools", "default", budgets=(Budget("0"),))
    stamp(world)
    look(world, "nodepools")
    world.deploy(builders.pod("inflate", cpu_millicores=5000), count)
    assert world.run(180, until=lambda: len(world.running_pods()) == count == len(world.claims()))
    assert world.run(10, until=lambda: are_initialized(world))


@pytest.fixture
def node(world: World) -> None:
    with_nodes(world, 1)
    assert world.run(10, until=lambda: world.claims()[0].is_condition_true("Consolidatable"))


def drifted(claim: NodeClaim) -> Condition | None:
    return find_condition(claim.conditions, "Drifted")


def reasons(world: World) -> list[str]:
    """Of every claim, by name; "" = it does not drift."""
    return [condition.reason if (condition := drifted(claim)) else "" for claim in world.claims()]


def pool(**fields: Any) -> Callable[[World], None]:
    def change(world: World) -> None:
        edit(world, "nodepools", **fields)
        look(world, "nodepools")

    return change


def nodeclass(**fields: Any) -> Callable[[World], None]:
    def change(world: World) -> None:
        edit(world, "ec2nodeclasses", **fields)
        stamp(world)
        look(world)

    return change


def machine(**fields: Any) -> Callable[[World], None]:
    """Somebody changes the instance behind our back."""

    def change(world: World) -> None:
        (instance,) = world.ec2.live_instances()
        world.ec2.instances[instance.id] = msgspec.structs.replace(instance, **fields)
        look(world)

    return change


CHANGES = {
    "NodePoolDrifted": (pool(taints=(Taint("dedicated", "NoSchedule", "gpu"),)), pool(taints=())),
    "RequirementsDrifted": (pool(requirements=builders.capacity_types(labels.ON_DEMAND)), pool(requirements=())),
    "NodeClassDrift": (nodeclass(user_data="echo hello"), nodeclass(user_data="")),
    "AMIDrift": (nodeclass(amis=(NEWER,)), nodeclass(amis=builders.nodeclass().amis)),
    "SecurityGroupDrift": (machine(security_groups=("sg-9",)), machine(security_groups=("sg-1",))),
    "SubnetDrift": (
        nodeclass(subnets=builders.nodeclass().subnets[1:]),
        nodeclass(subnets=builders.nodeclass().subnets),
    ),
}


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("reason", CHANGES)
def test_a_claim_says_that_it_drifts_and_why_until_it_does_not(world: World, reason: str) -> None:
    change, back = CHANGES[reason]
    (before,) = world.claims()
    change(world)
    (claim,) = world.claims()
    condition = drifted(claim)
    assert condition is not None
    assert (condition.status, condition.reason) == ("True", reason)
    (recorded_event,) = [event for event in world.cluster.events if event.reason == "Drifted"]
    assert recorded_event.message == (
        f"Status condition transitioned, Type: Drifted, Status: Unknown -> True, Reason: {reason},"
        f" Message: {condition.message}"
    )
    back(world)
    (after,) = world.claims()
    assert after.conditions == before.conditions


@pytest.mark.usefixtures("node")
def test_looking_again_writes_nothing(world: World) -> None:
    edit(world, "ec2nodeclasses", amis=(NEWER,))
    look(world)
    first = world.effects.select("cluster", "*")
    look(world)
    assert world.effects.select("cluster", "*") == first
    assert reasons(world) == ["AMIDrift"]


@pytest.mark.usefixtures("node")
def test_another_reason_keeps_the_time_since_when_it_drifts(world: World) -> None:
    CHANGES["AMIDrift"][0](world)
    (claim,) = world.claims()
    first = drifted(claim)
    world.run(60)
    CHANGES["NodeClassDrift"][0](world)
    (claim,) = world.claims()
    second = drifted(claim)
    assert first is not None
    assert second is not None
    assert (first.reason, second.reason) == ("AMIDrift", "NodeClassDrift")
    assert first.last_transition_time == second.last_transition_time


@pytest.mark.usefixtures("node")
def test_without_any_message_the_sweep_finds_it_within_ten_minutes(world: World) -> None:
    (instance,) = world.ec2.live_instances()
    world.ec2.instances[instance.id] = msgspec.structs.replace(instance, security_groups=("sg-9",))
    assert world.run(2 * DRIFT_SECONDS + 5, until=lambda: reasons(world) == ["SecurityGroupDrift"])


@pytest.mark.usefixtures("node")
def test_a_change_of_the_pool_is_noticed_by_whoever_reads_the_pools(world: World) -> None:
    edit(world, "nodepools", requirements=builders.capacity_types(labels.ON_DEMAND))
    world.doorbells.ring("lifecycle", [Doorbell(builders.CLUSTER, "nodepools")])
    assert world.run(2, until=lambda: reasons(world) == ["RequirementsDrifted"])


def test_many_claims_are_told_a_part_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drift, "CLAIMS_AT_ONCE", 2)
    with_nodes(world, 5)
    edit(world, "ec2nodeclasses", amis=(NEWER,))
    lifecycle(world.ports, [Doorbell(builders.CLUSTER, "drift")], now=world.clock.now())
    assert reasons(world) == ["AMIDrift", "AMIDrift", "", "", ""]
    world.settle()
    assert reasons(world) == ["AMIDrift"] * 5


def test_one_that_is_in_other_hands_does_not_keep_the_others(world: World) -> None:
    with_nodes(world, 2)
    edit(world, "ec2nodeclasses", amis=(NEWER,))
    world.effects.inject(Fault("cluster", "write_nodeclaim_status", Conflict("modified", code="Conflict")))
    lifecycle(world.ports, [Doorbell(builders.CLUSTER, "drift")], now=world.clock.now())
    assert reasons(world) == ["", "AMIDrift"]
    look(world)
    assert reasons(world) == ["AMIDrift", "AMIDrift"]


def test_a_crash_in_between_is_made_good(world: World) -> None:
    with_nodes(world, 2)
    edit(world, "ec2nodeclasses", amis=(NEWER,))
    world.effects.crash_at("cluster", "write_nodeclaim_status")
    with pytest.raises(Crash):
        lifecycle(world.ports, [Doorbell(builders.CLUSTER, "drift")], now=world.clock.now())
    look(world)
    assert reasons(world) == ["AMIDrift", "AMIDrift"]


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize("silent", ["ec2", "catalog", "list"])
def test_what_is_not_known_changes_nothing(world: World, silent: str) -> None:
    CHANGES["SubnetDrift"][0](world)
    (before,) = world.claims()
    match silent:
        case "ec2":
            world.effects.inject(Fault("ec2", "instances_by_id", Unavailable("no answer")))
            with pytest.raises(Unavailable):
                look(world)
        case "catalog":
            world.catalogs.catalog = msgspec.structs.replace(world.catalogs.catalog, by_nodeclass={})
            look(world)
        case _:
            world.ec2.listed_ids = frozenset()
            look(world)
    assert world.claims() == (before,)


@pytest.mark.usefixtures("node")
def test_nothing_happens_to_a_node_that_drifts(world: World) -> None:
    CHANGES["NodePoolDrifted"][0](world)
    (before,) = world.claims()
    world.run(1200)
    assert [claim.name for claim in world.claims()] == [before.name]
    assert reasons(world) == ["NodePoolDrifted"]


@pytest.mark.usefixtures("node")
def test_a_claim_that_is_not_launched_or_is_leaving_is_left_alone(world: World) -> None:
    (claim,) = world.claims()
    about = ObjectMeta("fresh", labels=claim.metadata.labels, annotations=claim.metadata.annotations)
    fresh = NodeClaim(about, claim.node_class_ref, conditions=(Condition("Drifted", "True"),))
    leaving = msgspec.structs.replace(about, name="leaving", deletion_timestamp=world.clock.now(), finalizers=("x",))
    world.cluster.put("nodeclaims", fresh)
    world.cluster.put("nodeclaims", msgspec.structs.replace(claim, metadata=leaving))
    edit(world, "ec2nodeclasses", amis=(NEWER,))
    lifecycle(world.ports, [Doorbell(builders.CLUSTER, "drift")], now=world.clock.now())
    assert {nodeclaim.name: drifted(nodeclaim) is not None for nodeclaim in world.claims()} == {
        claim.name: True, "fresh": False, "leaving": False,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "change", "reason"),
    [
        ("nodepools", {"taints": (Taint("dedicated", "PreferNoSchedule", "gpu"),)}, "NodePoolDrifted"),
        ("nodepools", {"labels": {"shop": "b"}}, "NodePoolDrifted"),
        ("ec2nodeclasses", {"user_data": "echo hello"}, "NodeClassDrift"),
    ],
)
def test_a_change_while_a_node_is_being_made_is_not_missed(
    world: World, kind: str, change: dict[str, Any], reason: str
) -> None:
    """Its pool changes between decision and claim, or its class between request and answer."""
    edit(world, "nodepools", labels={"shop": "a"})
    stamp(world)
    world.deploy(builders.pod("inflate"), 1)
    world.kubelets.reconcile()
    provision(world, clock=world.clock.now)
    if kind == "ec2nodeclasses":
        world.effects.crash_at("ec2", "create_fleet")
        with pytest.raises(Crash):
            lifecycle(world.ports, [Doorbell(builders.CLUSTER, "decision")], now=world.clock.now())
    edit(world, kind, **change)
    stamp(world)
    assert world.run(200, until=lambda: bool(world.running_pods()))
    look(world, "nodepools")
    assert reasons(world) == [reason]
