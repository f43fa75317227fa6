"""Capacity that is reserved: it is used up first, never promised twice, and what comes when it is gone."""

import json
from collections import Counter
from datetime import timedelta

import msgspec

from spotwright.model import labels
from spotwright.model.ec2.instance_type import Catalog, InstanceType, Offering
from spotwright.model.karpenter.nodeclass import CapacityReservation, CapacityReservationSelectorTerm
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.requirements import NodeSelectorRequirement, Requirement, Requirements, from_labels
from spotwright.simulation import builders
from spotwright.simulation.world import World
from tests.real_forwarder import RealForwarder

ZONE = builders.ZONES[1]
TOLD = {labels.RESERVATION_ID: "cr-1", labels.RESERVATION_TYPE: "default", labels.RESERVATION_INTERRUPTIBLE: "false"}


def reserving(available: int, *, described: int | None = None) -> World:
    """m5.large is reserved so often in one zone; the catalog says ``described``. Nodes with pods stay."""
    shown = available if described is None else described
    offering = Offering(ZONE, labels.RESERVED, 11_800, shown > 0, from_labels(TOLD), shown)
    types = builders.small_catalog().instance_types("")
    world = World(
        forwarder=RealForwarder,
        catalog=Catalog(
            {
                "": tuple(
                    _with(instance_type, offering) if instance_type.name == "m5.large" else instance_type
                    for instance_type in types
                )
            }
        ),
    )
    world.cluster.put("ec2nodeclasses", builders.nodeclass())
    world.cluster.put("nodepools", builders.nodepool(budgets=(Budget("0", reasons=("Drifted", "Underutilized")),)))
    world.ec2.reservations["cr-1"] = available
    return world


def _with(instance_type: InstanceType, offering: Offering) -> InstanceType:
    kinds = frozenset((labels.ON_DEMAND, labels.SPOT, labels.RESERVED))
    said = from_labels(TOLD).by_key | {labels.CAPACITY_TYPE: Requirement(labels.CAPACITY_TYPE, False, kinds)}
    stated = Requirements(instance_type.requirements.by_key | said)
    return msgspec.structs.replace(instance_type, requirements=stated, offerings=(*instance_type.offerings, offering))


def one_to_a_node(world: World, count: int) -> None:
    world.deploy(builders.pod("inflate", cpu_millicores=1500), count)
    assert world.run(120, until=lambda: len(world.running_pods()) == count)


def kinds(world: World) -> Counter[str]:
    return Counter(claim.metadata.labels[labels.CAPACITY_TYPE] for claim in world.claims())


def test_a_node_in_a_reservation_says_so() -> None:
    world = reserving(1)
    one_to_a_node(world, 1)
    (claim,) = world.claims()
    wanted = TOLD | {labels.CAPACITY_TYPE: labels.RESERVED, labels.ZONE: ZONE, labels.INSTANCE_TYPE: "m5.large"}
    assert wanted.items() <= claim.metadata.labels.items()
    (node,) = world.cluster.nodes()
    assert wanted.items() <= node.metadata.labels.items()
    (instance,) = world.ec2.live_instances()
    stated = world.ec2.template_data(instance.id)["CapacityReservationSpecification"]
    assert stated["CapacityReservationTarget"] == {"CapacityReservationId": "cr-1"}


def test_what_is_reserved_is_used_up_and_the_rest_is_bought() -> None:
    world = reserving(2)
    one_to_a_node(world, 3)
    assert kinds(world) == {labels.RESERVED: 2, labels.SPOT: 1}
    (request,) = (one for one in world.ec2.requests if "SpotOptions" not in one)
    assert request["TargetCapacitySpecification"]["TotalTargetCapacity"] == 2


def test_a_static_pool_uses_up_what_is_reserved_in_one_go() -> None:
    world = reserving(2)
    world.settings = msgspec.structs.replace(world.settings, feature_gates=("ReservedCapacity", "StaticCapacity"))
    small = (NodeSelectorRequirement(labels.INSTANCE_TYPE, "In", ("m5.large",)),)
    world.cluster.put("nodepools", builders.nodepool("fixed", replicas=3, requirements=small))
    assert world.run(
        120,
        until=lambda: len(world.claims()) == 3
        and all(nodeclaim.is_condition_true("Ready") for nodeclaim in world.claims()),
    )
    assert kinds(world) == {labels.RESERVED: 2, labels.SPOT: 1}
    assert len(world.ec2.requests) == 2
    assert not any(row.code for row in world.state.health.values())


def test_what_was_launched_counts_until_the_catalog_knows_of_it() -> None:
    world = reserving(2)
    one_to_a_node(world, 2)
    world.deploy(builders.pod("more", cpu_millicores=1500), 1)
    assert world.run(120, until=lambda: len(world.running_pods()) == 3)
    assert kinds(world) == {labels.RESERVED: 2, labels.SPOT: 1}
    # The pool that was full was not even asked.
    assert "ReservationCapacityExceeded" not in {row.code for row in world.state.health.values()}


def test_a_reservation_that_others_used_up_is_left_alone_and_the_pods_are_bought_for() -> None:
    world = reserving(1, described=3)
    one_to_a_node(world, 3)
    assert kinds(world) == {labels.RESERVED: 1, labels.SPOT: 2}
    (row,) = (health for health in world.state.health.values() if health.code)
    assert (row.capacity_type, row.instance_type, row.code) == ("reserved", "cr-1", "ReservationCapacityExceeded")


def test_without_the_gate_nothing_is_launched_into_a_reservation() -> None:
    world = reserving(2)
    world.settings = msgspec.structs.replace(world.settings, feature_gates=())
    one_to_a_node(world, 2)
    assert kinds(world) == {labels.SPOT: 2}
    (instance, *_) = world.ec2.live_instances()
    assert "CapacityReservationSpecification" not in world.ec2.template_data(instance.id)


def test_a_relaxed_claim_has_no_context() -> None:
    world = reserving(0)
    world.settings = msgspec.structs.replace(world.settings, min_values_policy="BestEffort")
    world.cluster.put("ec2nodeclasses", builders.nodeclass(context="ctx"))
    few = builders.capacity_types(labels.SPOT)
    many = msgspec.structs.replace(few[0], key=labels.INSTANCE_TYPE, operator="Exists", values=(), min_values=9)
    world.cluster.put("nodepools", builders.nodepool(requirements=(*few, many)))
    one_to_a_node(world, 1)
    (claim,) = world.claims()
    assert claim.metadata.annotations[labels.MIN_VALUES_RELAXED] == "true"
    row = world.state.launch(claim.metadata.annotations[labels.LAUNCH])
    assert row is not None
    assert "Context" not in json.loads(row.request)


def selecting(world: World, *shown: CapacityReservation) -> None:
    """The class selects reservations; its status shows these."""
    terms = (CapacityReservationSelectorTerm(id="cr-1"),)
    world.cluster.put(
        "ec2nodeclasses",
        builders.nodeclass(capacity_reservation_selector_terms=terms, capacity_reservations=shown),
    )


def test_a_node_whose_reservation_ended_runs_on_as_on_demand() -> None:
    world = reserving(1)
    selecting(world, CapacityReservation("cr-1", "m5.large", ZONE))
    one_to_a_node(world, 1)
    (before,) = world.claims()
    world.ec2.end_reservation("cr-1")
    selecting(world)
    assert world.run(120, until=lambda: kinds(world) == {labels.ON_DEMAND: 1})
    (claim,), (node,) = world.claims(), world.cluster.nodes()
    assert claim.name == before.name
    for told in (claim.metadata.labels, node.metadata.labels):
        assert told[labels.CAPACITY_TYPE] == labels.ON_DEMAND
        assert not set(TOLD) & set(told)


def test_a_node_stays_reserved_while_ec2_says_so() -> None:
    world = reserving(1)
    one_to_a_node(world, 1)
    selecting(world)
    world.run(200)
    assert kinds(world) == {labels.RESERVED: 1}


def test_nodes_of_a_capacity_block_leave_before_it_ends() -> None:
    world = reserving(1)
    block = CapacityReservation("cr-1", "m5.large", ZONE, reservation_type="capacity-block")
    selecting(world, block)
    one_to_a_node(world, 1)
    selecting(world, msgspec.structs.replace(block, state="expiring"))
    (before,) = world.claims()
    assert world.run(300, until=lambda: before.name not in {nodeclaim.name for nodeclaim in world.claims()})
    assert world.run(120, until=lambda: len(world.running_pods()) == 1)
    assert kinds(world) == {labels.SPOT: 1}


def test_an_instance_that_is_gone_is_to_be_had_again() -> None:
    world = reserving(1)
    one_to_a_node(world, 1)
    world.forget_deployments()
    for pod in world.running_pods():
        world.cluster.delete("pods", pod.metadata)
    world.cluster.delete("nodeclaims", world.claims()[0].metadata)
    assert world.run(300, until=lambda: not world.claims())
    one_to_a_node(world, 1)
    assert kinds(world) == {labels.RESERVED: 1}


def test_a_reservation_that_takes_an_instance_back_is_left_alone() -> None:
    world = reserving(2)
    one_to_a_node(world, 1)
    (before,) = world.claims()
    instance = before.provider_id.rpartition("/")[2]
    world.deliver_event(
        "EC2 Capacity Reservation Instance Interruption Warning",
        {"instance-id": instance, "instance-action": "terminate"},
    )
    world.ec2.stop(instance, after_seconds=120)
    assert world.run(300, until=lambda: {nodeclaim.name for nodeclaim in world.claims()}.isdisjoint({before.name}))
    assert world.run(60, until=lambda: len(world.running_pods()) == 1)
    # One instance is left of it, but nobody is launched into what is being taken back.
    assert kinds(world) == {labels.SPOT: 1}
    assert "CapacityReservationInstanceInterrupted" in {event.reason for event in world.cluster.events}
    (row,) = (health for health in world.state.health.values() if health.instance_type == "cr-1")
    assert row.interruptions == 1


def test_a_cluster_survives_the_end_of_its_capacity_block() -> None:
    """EC2 ends a block's instances half an hour before the block; its nodes are left ten minutes before that."""
    world = reserving(2)
    end = world.clock.now() + timedelta(minutes=41)
    block = CapacityReservation("cr-1", "m5.large", ZONE, reservation_type="capacity-block", end_time=end)
    selecting(world, block)
    one_to_a_node(world, 2)
    assert kinds(world) == {labels.RESERVED: 2}
    ours = {instance.id for instance in world.ec2.live_instances()}
    world.run(int((end - timedelta(minutes=40) - world.clock.now()).total_seconds()))
    selecting(world, msgspec.structs.replace(block, state="expiring"))
    world.run(int((end - timedelta(minutes=30) - world.clock.now()).total_seconds()))
    # Nothing is left for EC2 to end, and nobody waits.
    assert not ours & {instance.id for instance in world.ec2.live_instances()}
    assert len(world.running_pods()) == 2
    assert kinds(world) == {labels.SPOT: 2}
