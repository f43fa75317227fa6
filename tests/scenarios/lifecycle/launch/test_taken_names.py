"""A NodeClaim of somebody else has a name that a launch was going to use: one place is lost and planned again."""

from typing import Any

import msgspec
import pytest

from spotwright.decisions.decision import claim_names, decode_decision
from spotwright.errors import Unavailable
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.node import instance_id
from spotwright.simulation import builders
from spotwright.simulation.effects import Crash
from spotwright.simulation.world import World

POD = builders.pod("inflate", cpu_millicores=1800)


def committed(world: World, pods: int) -> tuple[str, ...]:
    """Deploy, and end the function right after the commit; the names that the decision gives its NodeClaims."""
    world.deploy(POD, pods)
    world.effects.crash_at("state", "commit")
    with pytest.raises(Crash):
        world.run(10)
    (key,) = world.state.cluster_row.pending_decisions
    return tuple(name for launch in decode_decision(world.blobs.bodies[key]).launches for name in launch.claims)


def foreign_claim(name: str, **fields: Any) -> NodeClaim:
    """A claim that another controller manages: its class is of no group that is handled here."""
    usual = NodeClaim(
        metadata=ObjectMeta(name, labels={labels.NODEPOOL: "default"}),
        node_class_ref=msgspec.structs.replace(builders.nodepool().node_class_ref, group="example.com"),
    )
    return msgspec.structs.replace(usual, **fields)


def every_pod_runs(world: World, pods: int) -> bool:
    return world.run(200, until=lambda: len(world.running_pods()) == pods)


def own_claims(world: World) -> dict[str, str]:
    return {claim.name: instance_id(claim.provider_id) for claim in world.claims() if claim.is_managed}


@pytest.mark.parametrize("taken", [0, 1, 4])
def test_a_taken_name_costs_one_place_which_is_planned_again(world: World, taken: int) -> None:
    name = committed(world, 5)[taken]
    world.cluster.put("nodeclaims", foreign_claim(name))
    assert every_pod_runs(world, 5)
    world.run(120)
    assert name not in own_claims(world)
    assert sorted(own_claims(world).values()) == sorted(instance.id for instance in world.ec2.all_instances())
    assert len(world.ec2.all_instances()) == 5
    assert not world.state.launches()
    foreign = world.cluster.nodeclaim(name)
    assert foreign is not None
    assert not foreign.provider_id


def test_when_every_name_is_taken_the_launch_ends(world: World) -> None:
    for name in committed(world, 3):
        world.cluster.put("nodeclaims", foreign_claim(name))
    assert every_pod_runs(world, 3)
    assert len(world.ec2.all_instances()) == 3


def test_a_taken_name_is_not_asked_for_again_and_again(world: World) -> None:
    world.cluster.put("nodeclaims", foreign_claim(committed(world, 3)[1]))
    assert every_pod_runs(world, 3)
    world.run(600)
    rows = [effect for effect in world.effects.select("state", "save") if effect.subject.startswith("launch#")]
    assert len(rows) < 30


def test_names_that_repeat_within_a_stored_launch_make_a_node_each_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As versions with shorter names could commit it: the pods of the second one are planned again."""

    def twice(pool: str, launch: str, count: int) -> tuple[str, ...]:
        names = claim_names(pool, launch, count)
        return (*names[:-1], names[0])

    with monkeypatch.context() as patched:
        patched.setattr("spotwright.decisions.decision.claim_names", twice)
        committed(world, 3)
    assert every_pod_runs(world, 3)
    assert len(world.claims()) == 3


@pytest.mark.parametrize("created", [0, 2])
def test_a_launch_that_cannot_go_on_ends_by_its_age(world: World, created: int) -> None:
    """The API server refuses to create the rest for longer than ten minutes, whatever was created before."""
    committed(world, 4)
    usual, made = world.cluster.create_nodeclaim, list[str]()

    def create(claim: NodeClaim) -> NodeClaim:
        if len(made) >= created:
            raise Unavailable("no answer")
        made.append(claim.name)
        return usual(claim)

    world.cluster.create_nodeclaim = create  # type: ignore[method-assign]
    (launch,) = decode_decision(world.blobs.bodies[world.state.cluster_row.pending_decisions[0]]).launches
    world.run(720)
    row = world.state.launch(launch.id)
    assert row is not None
    assert row.phase in ("done", "failed")
    world.cluster.create_nodeclaim = usual  # type: ignore[method-assign]
    assert every_pod_runs(world, 4)
    world.run(120)
    assert not world.state.launches()
    assert len(world.claims()) == 4 == len(world.ec2.live_instances())


def test_a_replacement_whose_name_is_taken_is_no_replacement(world: World) -> None:
    """The foreign claim is Initialized, so that the interrupted node would be drained on its account."""
    world.deploy(POD, 1)
    assert every_pod_runs(world, 1)
    world.run(60)
    (claim,) = world.claims()
    world.effects.crash_at("state", "commit")
    world.interrupt_spot(instance_id(claim.provider_id))
    with pytest.raises(Crash):
        world.run(5)
    (key,) = world.state.cluster_row.pending_decisions
    (launch,) = decode_decision(world.blobs.bodies[key]).launches
    ready = Condition("Initialized", "True", "Initialized")
    world.cluster.put("nodeclaims", foreign_claim(launch.claims[0], conditions=(ready,)))
    assert world.run(200, until=lambda: bool(world.effects.select("cluster", "evict")))
    own = [other for other in world.claims() if other.is_managed and other.name != claim.name]
    assert [other.is_condition_true("Initialized") for other in own] == [True]
