"""Which drifted nodes are replaced first, and which never keep the others."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from spotwright.disruption.drift import replace_drifted
from spotwright.disruption.rollouts import Phase, Rollout
from spotwright.model import labels
from spotwright.model.karpenter.nodepool import Budget
from spotwright.model.kubernetes.meta import Condition
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.model.snapshot import Settings, Snapshot
from spotwright.scheduling.plan import Plan
from spotwright.simulation import builders
from tests.unit.disruption.builders import LONG_AGO, NOBODY, NOW, claim, on, snapshot
from tests.unit.disruption.drifted_nodes import TYPES, drifted


def test_nodes_without_a_replacement_never_keep_all_others() -> None:
    """However many have drifted before: within as many minutes as there are nodes, each of the others has its turn."""
    replaced = set()
    for minute in range(12):
        found = replace_drifted(drifted(8, 4, minute), Plan(), TYPES, locked=NOBODY)
        replaced |= {candidate.name for candidate in found.candidates}
    assert replaced == {"n08", "n09", "n10", "n11"}


def test_without_time_no_further_trial_is_begun() -> None:
    found = replace_drifted(drifted(1, 1, 0), Plan(), TYPES, locked=NOBODY, has_time=lambda: False)
    assert not found.candidates
    assert [blocked.claim for blocked in found.blocked] == ["n00"]
    assert replace_drifted(drifted(1, 1, 0), Plan(), TYPES, locked=NOBODY).candidates


@pytest.mark.parametrize(("seconds", "expected"), [(1, ["n02", "n00"]), (301, ["n00", "n01"])])
def test_nodes_that_drifted_together_go_zone_by_zone_and_others_in_the_order_of_time(
    seconds: int, expected: list[str]
) -> None:
    """F19 of Karpenter's behavior: what drifted first goes first. ``seconds``: between them."""
    observed = drifted(0, 3, 0)
    claims = []
    for number, (nodeclaim, zone) in enumerate(zip(observed.nodeclaims, ("b", "b", "a"), strict=True)):
        about = msgspec.structs.replace(nodeclaim.metadata, labels=nodeclaim.metadata.labels | {labels.ZONE: zone})
        *others, _ = nodeclaim.conditions
        condition = Condition("Drifted", "True", last_transition_time=LONG_AGO + timedelta(seconds=seconds * number))
        claims.append(msgspec.structs.replace(nodeclaim, metadata=about, conditions=(*others, condition)))
    pools = (builders.nodepool(budgets=(Budget("2"),)),)
    observed = msgspec.structs.replace(observed, nodeclaims=tuple(claims), nodepools=pools)
    found = replace_drifted(observed, Plan(), TYPES, locked=NOBODY)
    assert [candidate.name for candidate in found.candidates] == expected


def with_budget(observed: Snapshot, nodes: str) -> Snapshot:
    return msgspec.structs.replace(observed, nodepools=(builders.nodepool(budgets=(Budget(nodes),)),))


def test_a_node_that_a_command_holds_or_that_is_being_deleted_does_not_go_again() -> None:
    observed = with_budget(drifted(0, 4, 0), "100%")
    first, *others = observed.nodeclaims
    going = msgspec.structs.replace(first, metadata=msgspec.structs.replace(first.metadata, deletion_timestamp=NOW))
    observed = msgspec.structs.replace(observed, nodeclaims=(going, *others))
    found = replace_drifted(observed, Plan(), TYPES, locked=frozenset({"n01"}))
    assert [candidate.name for candidate in found.candidates] == ["n02", "n03"]


def test_a_node_without_pods_goes_before_those_that_drifted_earlier() -> None:
    observed = with_budget(drifted(0, 3, 0), "1")
    found = replace_drifted(msgspec.structs.replace(observed, pods=observed.pods[:-1]), Plan(), TYPES, locked=NOBODY)
    assert [candidate.name for candidate in found.candidates] == ["n02"]


def test_nodes_without_pods_go_beside_the_canary() -> None:
    """They need no new node, on which anything could fail."""
    observed = with_budget(drifted(0, 4, 0), "100%")
    observed = msgspec.structs.replace(observed, pods=observed.pods[2:])
    rollouts = {"default": Rollout(Phase.CANARY, "")}
    found = replace_drifted(observed, Plan(), TYPES, locked=NOBODY, rollouts=rollouts)
    assert [candidate.name for candidate in found.candidates] == ["n00", "n01", "n02"]


def test_pods_of_drifted_nodes_go_to_nodes_that_run_and_to_none_that_failed_to_start() -> None:
    """However long ago they were made."""
    *going, staying = (observed := with_budget(drifted(0, 3, 0), "1")).nodeclaims
    (initialized, *_) = staying.conditions
    ready = msgspec.structs.replace(staying, conditions=(initialized,))
    node_of = observed.nodes[-1]
    room = msgspec.structs.replace(node_of, allocatable={"cpu": 8000, "memory": 32 << 30, "pods": 58})
    observed = msgspec.structs.replace(
        observed, nodeclaims=(*going, ready), nodes=(*observed.nodes[:-1], room), pods=observed.pods[:-1]
    )
    assert replace_drifted(observed, Plan(), TYPES, locked=NOBODY).plan.new_nodes == ()
    late = msgspec.structs.replace(observed, nodeclaims=(*going, msgspec.structs.replace(ready, conditions=())))
    assert len(replace_drifted(late, Plan(), TYPES, locked=NOBODY).plan.new_nodes) == 1


def test_a_node_of_nobody_takes_pods_though_a_nodeclaim_without_an_instance_is_late() -> None:
    """Neither has a provider id."""
    observed = with_budget(drifted(0, 1, 0), "1")
    late = msgspec.structs.replace(claim("late"), provider_id="", node_name="", conditions=())
    observed = msgspec.structs.replace(
        observed,
        nodeclaims=(*observed.nodeclaims, late),
        nodes=(*observed.nodes, builders.unmanaged_node("room")),
    )
    found = replace_drifted(observed, Plan(), TYPES, locked=NOBODY)
    assert [candidate.name for candidate in found.candidates] == ["n00"]
    assert found.plan.new_nodes == ()


def static(count: int, *, drifted_count: int, gates: tuple[str, ...] = ("StaticCapacity",), **fields: Any) -> Snapshot:
    """A static NodePool with so many nodes, of which the first ones have drifted; any number may go at once."""
    pool = builders.nodepool(replicas=fields.pop("replicas", count), budgets=(Budget("100%"),), **fields)
    observed = snapshot(
        *(f"n{number:02}" for number in range(count)),
        nodepools=(pool,),
        nodeclasses=(builders.nodeclass(),),
        settings=Settings(feature_gates=gates),
    )
    claims = [
        msgspec.structs.replace(claim, conditions=(*claim.conditions, Condition("Drifted", "True")))
        if number < drifted_count
        else claim
        for number, claim in enumerate(observed.nodeclaims)
    ]
    return msgspec.structs.replace(observed, nodeclaims=tuple(claims))


@pytest.mark.parametrize(("limits", "expected"), [({}, 5), ({"nodes": 7}, 2), ({"nodes": 6}, 1), ({"nodes": 5}, 0)])
def test_drifted_nodes_of_a_static_pool_go_as_far_as_its_node_limit_has_room(
    limits: dict[str, int], expected: int
) -> None:
    """F21, F22 and F25 of Karpenter's behavior."""
    found = replace_drifted(static(5, drifted_count=5, limits=limits), Plan(), TYPES, locked=NOBODY)
    assert len(found.candidates) == expected
    assert [node.nodepool for node in found.plan.new_nodes] == ["default"] * expected
    said = {blocked.reason for blocked in found.blocked}
    assert all("leaves no room for a replacement beside its 5 nodes" in reason for reason in said)
    assert bool(said) is not bool(expected)


def test_nodes_on_their_way_out_take_the_room_of_the_limit_until_they_are_gone() -> None:
    observed = static(6, drifted_count=5, replicas=5, limits={"nodes": 7})
    *staying, last = observed.nodeclaims
    going = msgspec.structs.replace(last, metadata=msgspec.structs.replace(last.metadata, deletion_timestamp=NOW))
    observed = msgspec.structs.replace(observed, nodeclaims=(*staying, going))
    assert len(replace_drifted(observed, Plan(), TYPES, locked=NOBODY).candidates) == 1


def test_a_static_pool_with_too_many_nodes_loses_them_before_any_is_replaced() -> None:
    """F24 of Karpenter's behavior."""
    found = replace_drifted(static(2, drifted_count=2, replicas=1), Plan(), TYPES, locked=NOBODY)
    assert not found.candidates
    assert {blocked.reason for blocked in found.blocked} == {
        "NodePool default has 2 nodes, more than spec.replicas (1): some go first"
    }


def test_without_the_feature_gate_nodes_of_a_static_pool_stay_and_it_is_said_why() -> None:
    found = replace_drifted(static(2, drifted_count=2, gates=()), Plan(), TYPES, locked=NOBODY)
    assert not found.candidates
    assert all("needs the feature gate StaticCapacity" in blocked.reason for blocked in found.blocked)


def test_nodes_of_a_static_pool_stay_while_no_replacement_can_be_made() -> None:
    """However little can be bought; other NodePools' nodes go meanwhile."""
    nothing = (NodeSelectorRequirement("karpenter.sh/capacity-type", "In", ("spot",)),)
    observed = static(2, drifted_count=2)
    fixed = builders.nodepool("fixed", replicas=2, requirements=nothing, budgets=(Budget("100%"),))
    first, second = observed.nodeclaims
    about = msgspec.structs.replace(first.metadata, labels=first.metadata.labels | {labels.NODEPOOL: "fixed"})
    observed = msgspec.structs.replace(
        observed,
        nodepools=(builders.nodepool(budgets=(Budget("100%"),)), msgspec.structs.replace(fixed, replicas=1)),
        nodeclaims=(msgspec.structs.replace(first, metadata=about), second),
    )
    found = replace_drifted(observed, Plan(), TYPES, locked=NOBODY)
    assert [candidate.name for candidate in found.candidates] == ["n01"]
    (blocked,) = found.blocked
    assert blocked.claim == "n00"
    assert "its replacement cannot be made" in blocked.reason


def test_pods_of_a_static_pool_need_no_other_place() -> None:
    observed = static(1, drifted_count=1)
    large = on("n00", builders.pod("large", cpu_millicores=64_000))
    found = replace_drifted(msgspec.structs.replace(observed, pods=(large,)), Plan(), TYPES, locked=NOBODY)
    assert [candidate.name for candidate in found.candidates] == ["n00"]
