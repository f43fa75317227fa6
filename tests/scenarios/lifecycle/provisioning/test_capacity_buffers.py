"""Capacity buffers in a cluster: room is there before its pods are, and stays there when they come."""

from typing import Any

import pytest

from spotwright.decisions.decision import decode_decision
from spotwright.model.karpenter.capacity_buffer import CapacityBuffer, CapacityBufferStatus
from spotwright.model.kubernetes.meta import ObjectMeta, find_condition
from spotwright.model.snapshot import Settings
from spotwright.simulation import builders
from spotwright.simulation.world import World
from spotwright.workflows.planning.replay import replay
from tests.scenarios.lifecycle.conftest import are_initialized

ON = Settings(feature_gates=("CapacityBuffer", "ReservedCapacity"))


def keep(world: World, **fields: Any) -> None:
    fields.setdefault("template_pod", builders.pod("template", cpu_millicores=1500))
    world.cluster.put(
        "capacitybuffers", CapacityBuffer(ObjectMeta("spare", "default"), pod_template_ref="web", **fields)
    )


def told(world: World) -> tuple[str, str]:
    """Reasons of ReadyForProvisioning and Provisioning."""
    (buffer,) = world.cluster.capacity_buffers()
    conditions = [find_condition(buffer.conditions, kind) for kind in ("ReadyForProvisioning", "Provisioning")]
    ready, provisioning = (condition.reason if condition else "" for condition in conditions)
    return ready, provisioning


@pytest.fixture
def buffered(world: World) -> World:
    """Room for two pods, each of which fills a node of two cpu."""
    world.settings = ON
    keep(world, replicas=2)
    assert world.run(300, until=lambda: told(world)[1] == "FitsExistingCapacity")
    assert world.run(60, until=lambda: are_initialized(world))
    return world


def decided(world: World) -> int:
    return sum(key.startswith("decisions/") for key in world.blobs.bodies)


def test_without_the_gate_nothing_is_bought_or_said(world: World) -> None:
    keep(world, replicas=2)
    world.run(180)
    assert not world.claims()
    assert told(world) == ("", "")


def test_room_is_bought_before_there_are_pods_and_stays(buffered: World) -> None:
    nodes = {nodeclaim.name for nodeclaim in buffered.claims()}
    assert nodes
    buffered.run(900)
    assert {nodeclaim.name for nodeclaim in buffered.claims()} == nodes
    assert decided(buffered) == 1
    (buffer,) = buffered.cluster.capacity_buffers()
    assert buffer.status == CapacityBufferStatus(2, "web", 0, "buffer.x-k8s.io/active-capacity")
    assert told(buffered) == ("Resolved", "FitsExistingCapacity")
    reasons = {event.reason for event in buffered.cluster.events}
    assert not reasons & {"Nominated", "FailedScheduling"}
    assert any("has buffer pods" in event.message for event in buffered.cluster.events)
    assert not buffered.state.nominations()


def test_pods_start_at_once_and_their_room_is_bought_anew(buffered: World) -> None:
    before = {nodeclaim.node_name for nodeclaim in buffered.claims()}
    buffered.deploy(builders.pod("web", cpu_millicores=1500), 1)
    assert buffered.run(5, until=lambda: bool(buffered.running_pods()))
    assert {pod.node_name for pod in buffered.running_pods()} < before
    assert buffered.run(180, until=lambda: len(buffered.claims()) > len(before))
    assert buffered.run(180, until=lambda: told(buffered)[1] == "FitsExistingCapacity")


def test_a_smaller_buffer_gives_its_nodes_back(buffered: World) -> None:
    buffered.cluster.update("capacitybuffers", "default/spare", replicas=0)
    assert buffered.run(300, until=lambda: not buffered.claims())
    assert told(buffered) == ("Resolved", "BufferEmpty")


def test_an_unresolved_buffer_says_why(world: World) -> None:
    world.settings = ON
    keep(
        world,
        template_pod=None,
        not_ready_reason="PodTemplateNotFound",
        not_ready_message="PodTemplate default/web does not exist",
    )
    world.run(61)
    assert told(world) == ("PodTemplateNotFound", "NotReadyForProvisioning")
    assert not world.claims()


def test_what_was_decided_is_decided_again(buffered: World) -> None:
    (key,) = [body for body in buffered.blobs.bodies if body.startswith("decisions/")]
    assert replay(key, blobs=buffered.blobs, catalogs=buffered.catalogs).agrees
    why = decode_decision(buffered.blobs.get(key)).message
    assert why.startswith("static NodePools and CapacityBuffers need")


def test_a_buffer_with_a_very_long_reason_says_so_once(world: World) -> None:
    """The API server takes messages of 32,768 characters."""
    world.settings = ON
    why = f"spec.podTemplateRef: {'x' * 40_000}"
    keep(world, template_pod=None, not_ready_reason="PodTemplateNotFound", not_ready_message=why)
    world.run(130)
    (buffer,) = world.cluster.capacity_buffers()
    for kind in ("ReadyForProvisioning", "Provisioning"):
        found = find_condition(buffer.conditions, kind)
        assert found is not None
        assert found.message == f"{why[:32_765]}..."
    assert len(world.effects.select("cluster", "set_conditions")) == len(
        {effect.subject for effect in world.effects.select("cluster", "set_conditions")}
    )
