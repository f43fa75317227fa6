"""What is reserved counts with its gate alone, and only as often as EC2 has it left."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from spotwright.model import labels
from spotwright.model.ec2.instance_type import Catalog, InstanceType
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference, NodePool
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import NodeSelectorRequirement, from_expressions
from spotwright.model.snapshot import InFlightNodeClaim, Settings, Snapshot
from spotwright.scheduling import planner
from spotwright.scheduling.offerings import reservations
from spotwright.scheduling.plan import Plan
from spotwright.scheduling.pod_planner import plan_pods
from tests.unit.scheduling.builders import MEDIUM, NOW, SMALL, pod, pods, pool, reserving

WITH, WITHOUT = Settings(), Settings(feature_gates=())
INTO = (NodeSelectorRequirement(labels.RESERVATION_ID, "In", ("cr-1",)),)


def planned(capacity: int, settings: Settings = WITH, **fields: Any) -> Plan:
    """Four pods that need a node each, with a reservation of so many instances."""
    snapshot = Snapshot("test", NOW, pods(4, cpu="1500m"), nodepools=(pool(),), settings=settings, **fields)
    return plan_pods(snapshot, Catalog({"": (reserving(SMALL, capacity),)}))


def bought(plan: Plan) -> list[str]:
    return sorted(node.capacity_type for node in plan.new_nodes)


def test_what_is_reserved_is_used_up_before_anything_is_bought() -> None:
    plan = planned(3)
    assert bought(plan) == ["reserved"] * 3 + ["spot"]
    reserved = next(new_node for new_node in plan.new_nodes if new_node.capacity_type == "reserved")
    assert {expression.key: expression.values for expression in reserved.requirements}[labels.RESERVATION_ID] == (
        "cr-1",
    )


def test_without_the_gate_nothing_is_reserved() -> None:
    assert bought(planned(3, WITHOUT)) == ["spot"] * 4


def test_without_the_gate_a_pod_that_wants_reserved_capacity_waits() -> None:
    wanting = pod(node_selector={labels.CAPACITY_TYPE: labels.RESERVED})
    snapshot = Snapshot("test", NOW, (wanting,), nodepools=(pool(),), settings=WITHOUT)
    assert not plan_pods(snapshot, Catalog({"": (reserving(SMALL, 3),)})).new_nodes


def test_without_the_gate_a_catalog_without_reservations_is_the_same_object() -> None:
    catalog = Catalog({"": (SMALL, MEDIUM)})
    assert reservations.apply_feature_gate(catalog, ()) is catalog
    mixed = reservations.apply_feature_gate(Catalog({"": (SMALL, reserving(MEDIUM, 1))}), ())
    assert mixed.instance_types("")[0] is SMALL


CLASS = NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default")
CLAIM = NodeClaim(ObjectMeta("claim"), CLASS, requirements=INTO, taints=(Taint("full", "NoSchedule"),))


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        ({"nodeclaims": (CLAIM,)}, 2),
        ({"in_flight": (InFlightNodeClaim(CLAIM, ("small",)),)}, 2),
        ({"in_flight": (InFlightNodeClaim(CLAIM, ("small",)),), "nodeclaims": (CLAIM,)}, 2),
        ({"nodeclaims": (msgspec.structs.replace(CLAIM, provider_id="aws:///z1/i-1"),)}, 3),
        ({"nodeclaims": (msgspec.structs.replace(CLAIM, requirements=()),)}, 3),
    ],
)
def test_nodes_on_their_way_into_a_reservation_count_until_they_have_an_instance(
    fields: dict[str, Any], left: int
) -> None:
    assert bought(planned(3, **fields)).count("reserved") == left


STATIC = Settings(feature_gates=("ReservedCapacity", "StaticCapacity"))


def kept(capacity: int, *pools: NodePool, types: Sequence[InstanceType] = (), settings: Settings = STATIC) -> Plan:
    """Static pools with a reservation of so many instances, and four pods that need a node each."""
    snapshot = Snapshot("test", NOW, pods(4, cpu="1500m"), nodepools=(pool(), *pools), settings=settings)
    return planner.plan(snapshot, Catalog({"": (reserving(SMALL, capacity), *types)}))


def of_pool(plan: Plan, name: str) -> Plan:
    return msgspec.structs.replace(
        plan, new_nodes=tuple(new_node for new_node in plan.new_nodes if new_node.nodepool == name)
    )


def test_static_pools_use_up_what_is_reserved_before_they_buy_and_leave_none_to_pods() -> None:
    plan = kept(3, pool("a", replicas=2), pool("b", replicas=4))
    assert bought(of_pool(plan, "a")) == ["reserved"] * 2
    assert bought(of_pool(plan, "b")) == ["reserved"] + ["spot"] * 3
    assert bought(plan).count("reserved") == 3
    reserved, other_new_node = (
        next(new_node for new_node in plan.new_nodes if new_node.nodepool == "b" and new_node.capacity_type == kind)
        for kind in ("reserved", "spot")
    )
    said = {expression.key: expression.values for expression in reserved.requirements}
    assert (said[labels.RESERVATION_ID], said[labels.CAPACITY_TYPE]) == (("cr-1",), ("reserved",))
    assert reserved.zones == ("z1",)
    # A launch tries what is reserved first, unless it may not.
    assert not from_expressions(other_new_node.requirements).get(labels.CAPACITY_TYPE).has("reserved")


def test_what_static_pools_leave_is_for_pods() -> None:
    plan = kept(
        3, pool("a", NodeSelectorRequirement(labels.INSTANCE_TYPE, "In", ("small",)), replicas=1, taints=CLAIM.taints)
    )
    assert bought(of_pool(plan, "default")) == ["reserved"] * 2 + ["spot"] * 2


def test_a_static_pool_of_reserved_capacity_alone_makes_what_there_is_and_says_why() -> None:
    plan = kept(1, pool("a", NodeSelectorRequirement(labels.CAPACITY_TYPE, "In", ("reserved",)), replicas=3))
    assert bought(of_pool(plan, "a")) == ["reserved"]
    assert any("has 0; 1 can be made: no instance type" in note for note in plan.notes)
    assert "a" not in plan.nodepools_without_offerings


def test_a_reservation_of_one_type_is_not_for_a_static_pool_that_demands_several() -> None:
    nodepool = pool("a", NodeSelectorRequirement(labels.INSTANCE_TYPE, "Exists", (), 2), replicas=2)
    plan = kept(2, nodepool, types=(MEDIUM,))
    assert bought(of_pool(plan, "a")) == ["spot"] * 2


def test_without_the_gate_static_pools_reserve_nothing() -> None:
    assert "reserved" not in bought(
        kept(3, pool("a", replicas=2), settings=Settings(feature_gates=("StaticCapacity",)))
    )
