"""The volumes of a node that is drained: waited for until they are detached, or until the deadline."""

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from spotwright.lifecycle import retry
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.kubernetes.eviction import DISRUPTED_TAINT
from spotwright.model.kubernetes.meta import ObjectMeta, find_condition
from spotwright.model.kubernetes.node import Node, NodeWithVolumes
from spotwright.model.kubernetes.taints import Taint, Toleration
from spotwright.model.kubernetes.volumes import PersistentVolumeClaim
from spotwright.simulation import builders
from spotwright.simulation.world import World
from tests.scenarios.lifecycle.termination.running_nodes import delete, gone, running_node


def test_volumes_are_waited_for(world: World) -> None:
    claim = running_node(world)
    world.cluster.attachments[claim.node_name] = ("pv-1",)
    delete(world, claim)
    world.run(60)
    assert world.ec2.live_instances()
    waiting = find_condition(world.claims()[0].conditions, "VolumesDetached")
    assert waiting is not None
    assert waiting.reason == "AwaitingVolumeDetachment"
    world.cluster.attachments.clear()
    assert world.run(60, until=lambda: gone(world, claim))


def put_staying_pod(world: World, name: str, claim: NodeClaim, *volume_claims: str) -> None:
    stays = builders.pod(
        name, node_name=claim.node_name, phase="Running", volume_claim_names=volume_claims,
        tolerations=(Toleration(labels.DISRUPTED, "Exists"),),
    )  # fmt: skip
    world.cluster.put("pods", stays)


def put_volume_claim(world: World, name: str, volume: str) -> None:
    metadata = ObjectMeta(name, namespace="default")
    world.cluster.put("persistentvolumeclaims", PersistentVolumeClaim(metadata, volume, bind_completed=True))


def test_volumes_of_pods_that_stay_to_the_end_are_not_waited_for(world: World) -> None:
    claim = running_node(world)
    put_staying_pod(world, "stays", claim, "data")
    put_volume_claim(world, "data", "pv-1")
    world.cluster.attachments[claim.node_name] = ("pv-1",)
    delete(world, claim)
    assert world.run(90, until=lambda: gone(world, claim))


def test_a_staying_pod_without_an_attachment_does_not_stand_for_the_volume_of_another_pod(world: World) -> None:
    """The volume of an EFS claim has no VolumeAttachment; a claim that does not exist has no volume."""
    claim = running_node(world)
    put_staying_pod(world, "stays", claim, "shared", "missing")
    put_volume_claim(world, "shared", "pv-efs")
    world.cluster.attachments[claim.node_name] = ("pv-1",)
    delete(world, claim)
    world.run(60)
    assert world.ec2.live_instances()
    world.cluster.attachments.clear()
    assert world.run(60, until=lambda: gone(world, claim))


def test_a_volume_that_two_staying_pods_share_counts_once(world: World) -> None:
    claim = running_node(world)
    for name in ("stays-1", "stays-2"):
        put_staying_pod(world, name, claim, "data")
    put_volume_claim(world, "data", "pv-1")
    world.cluster.attachments[claim.node_name] = ("pv-1", "pv-2")
    delete(world, claim)
    world.run(60)
    assert world.ec2.live_instances()
    waiting = find_condition(world.claims()[0].conditions, "VolumesDetached")
    assert waiting is not None
    assert "pv-2" in waiting.message
    assert "pv-1" not in waiting.message


def test_the_volume_of_a_pod_that_ended_is_waited_for(world: World) -> None:
    claim = running_node(world)
    ended = builders.pod("ended", node_name=claim.node_name, phase="Succeeded", volume_claim_names=("data",))
    world.cluster.put("pods", ended)
    put_volume_claim(world, "data", "pv-1")
    world.cluster.attachments[claim.node_name] = ("pv-1",)
    delete(world, claim)
    world.run(60)
    assert world.ec2.live_instances()


def test_a_claim_of_the_same_name_in_another_namespace_is_another_volume(world: World) -> None:
    claim = running_node(world)
    put_staying_pod(world, "stays", claim, "data")
    stays = next(pod for pod in world.cluster.pods(node=claim.node_name) if pod.metadata.name == "stays")
    world.cluster.delete("pods", stays.metadata)
    other = msgspec.structs.replace(stays, metadata=msgspec.structs.replace(stays.metadata, namespace="other"))
    world.cluster.put("pods", other)
    put_volume_claim(world, "data", "pv-1")
    metadata = ObjectMeta("data", namespace="other")
    world.cluster.put("persistentvolumeclaims", PersistentVolumeClaim(metadata, "pv-2", bind_completed=True))
    world.cluster.attachments[claim.node_name] = ("pv-1",)
    delete(world, claim)
    world.run(60)
    assert world.ec2.live_instances()


def test_volumes_are_waited_for_until_the_termination_grace_period_ends(world: World) -> None:
    world.cluster.update("nodepools", "default", termination_grace_period_seconds=300)
    claim = running_node(world)
    world.cluster.attachments[claim.node_name] = ("pv-1",)
    delete(world, claim)
    world.run(290)
    assert world.ec2.live_instances()
    assert world.run(120, until=lambda: gone(world, claim))


def test_a_volume_is_waited_for_until_a_deadline_that_comes_after_the_last_tick_and_no_longer(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retry, "MAXIMUM_TICKS", 20)
    world.cluster.update("nodepools", "default", termination_grace_period_seconds=900 + 37)
    claim = running_node(world)
    world.cluster.attachments[claim.node_name] = ("pv-1",)
    delete(world, claim)
    world.run(900 + 30)
    assert world.ec2.live_instances()
    assert world.run(10, until=lambda: not world.ec2.live_instances())


def test_volumes_of_a_node_that_is_found_among_those_that_join_are_waited_for(world: World) -> None:
    """It has not registered, and has another name than expected: lists do not say which volumes a node has."""
    claim = running_node(world)
    world.run(60)
    node = world.cluster.find("nodes", claim.node_name)
    joining = {key: value for key, value in node.metadata.labels.items() if key != labels.REGISTERED}
    world.cluster.put("nodes", msgspec.structs.replace(node, metadata=relabeled(node.metadata, joining)))
    conditions = tuple(condition for condition in claim.conditions if condition.type != "Registered")
    world.cluster.update(
        "nodeclaims", claim.name, node_name="", conditions=conditions, annotations={labels.EXPECTED_NODE: "another"}
    )
    delete(world, claim)
    world.run(2)
    assert world.cluster.find("nodes", node.name).taints
    world.cluster.attachments[node.name] = ("pv-1",)
    world.run(60)
    assert world.ec2.live_instances()
    world.cluster.attachments.clear()
    assert world.run(60, until=lambda: gone(world, claim))


def relabeled(metadata: ObjectMeta, labels: dict[str, str]) -> ObjectMeta:
    return msgspec.structs.replace(metadata, labels=labels)


def test_a_volume_that_begins_to_detach_after_the_first_step_is_waited_for(world: World) -> None:
    """What the cordon's write answers is all that says of it."""
    claim = running_node(world)
    world.cluster.attachments[claim.node_name] = ("pv-1",)
    usual = world.cluster.set_taints

    def set_taints(node: Node, taints: Sequence[Taint], **more: Any) -> NodeWithVolumes:
        after = usual(node, taints, **more)
        if DISRUPTED_TAINT in after.taints:
            world.cluster.detaching.add("pv-1")
        return after

    world.cluster.set_taints = set_taints  # type: ignore[method-assign]
    delete(world, claim)
    world.run(60)
    assert world.ec2.live_instances()
    world.cluster.attachments.clear()
    assert world.run(60, until=lambda: gone(world, claim))
