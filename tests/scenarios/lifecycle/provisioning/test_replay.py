"""Every decision of a life can be decided again, and comes out the same."""

import msgspec
import pytest

from spotwright.decisions.decision import Decision, decode_decision, encode_decision
from spotwright.errors import InvalidRequest
from spotwright.model import labels
from spotwright.model.karpenter.nodeoverlay import NodeOverlay
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.model.snapshot import Snapshot
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.planning.replay import ReplayResult, replay

POD = builders.pod("inflate", cpu_millicores=1800)


def decided(world: World, kind: str) -> dict[str, Decision]:
    """The stored decisions of a kind, by key."""
    every = {key: decode_decision(body) for key, body in world.blobs.bodies.items() if key.startswith("decisions/")}
    return {key: decision for key, decision in every.items() if decision.kind == kind}


def again(world: World, key: str) -> ReplayResult:
    return replay(key, blobs=world.blobs, catalogs=world.catalogs)


@pytest.fixture
def lived(world: World) -> World:
    """Two nodes bought, one interrupted and replaced, then all of them empty and gone."""
    world.deploy(POD, 2)
    assert world.run(90, until=lambda: len(world.running_pods()) == 2)
    victim = world.ec2.live_instances()[0].id
    world.interrupt_spot(victim)
    assert world.run(200, until=lambda: victim not in {instance.id for instance in world.ec2.live_instances()})
    world.run(60)
    world.deploy(POD, 0)
    assert world.run(400, until=lambda: not world.ec2.live_instances())
    return world


@pytest.mark.parametrize("kind", ["provision", "interrupt", "disrupt"])
def test_the_same_answer_comes_out(lived: World, kind: str) -> None:
    found = decided(lived, kind)
    assert found
    for key in found:
        replayed = again(lived, key)
        assert replayed.agrees
        assert replayed.same_code


def test_an_interruption_was_decided_for_the_snapshot_without_its_node(lived: World) -> None:
    (decision,) = decided(lived, "interrupt").values()
    assert decision.plan.new_nodes


def test_a_disruption_of_a_node_that_should_have_stayed_is_found_out(lived: World) -> None:
    (decision, *_) = decided(lived, "disrupt").values()
    snapshot = msgspec.json.decode(lived.blobs.get(decision.snapshot_key), type=Snapshot)
    keeping = {labels.DO_NOT_DISRUPT: "true"}
    nodes = tuple(
        msgspec.structs.replace(node, metadata=msgspec.structs.replace(node.metadata, annotations=keeping))
        for node in snapshot.nodes
    )
    body = msgspec.json.encode(msgspec.structs.replace(snapshot, nodes=nodes))
    forged = msgspec.structs.replace(decision, snapshot_key=lived.blobs.put("snapshots", body))
    replayed = again(lived, lived.blobs.put("decisions", encode_decision(forged)))
    assert replayed.kept_claims == decision.candidates
    assert not replayed.agrees


def test_a_kind_that_nobody_knows_is_refused(lived: World) -> None:
    odd = msgspec.structs.replace(next(iter(decided(lived, "provision").values())), kind="wish")
    with pytest.raises(InvalidRequest, match="kind 'wish' is not one of"):
        again(lived, lived.blobs.put("decisions", encode_decision(odd)))


def test_what_was_decided_under_an_overlay_comes_out_again(world: World) -> None:
    world.settings = msgspec.structs.replace(world.settings, feature_gates=("NodeOverlay", "ReservedCapacity"))
    here = (NodeSelectorRequirement(labels.ZONE, "In", (builders.ZONES[2],)),)
    world.cluster.put("nodeoverlays", NodeOverlay(ObjectMeta("fuse"), here, capacity={"example.com/fuse": 1}))
    world.deploy(msgspec.structs.replace(POD, requests=dict(POD.requests) | {"example.com/fuse": 1}), 2)
    assert world.run(60, until=lambda: len(world.ec2.live_instances()) == 2)
    found = decided(world, "provision")
    assert found
    assert {new_node.zones for decision in found.values() for new_node in decision.plan.new_nodes} == {
        (builders.ZONES[2],)
    }
    assert all(again(world, key).agrees for key in found)
