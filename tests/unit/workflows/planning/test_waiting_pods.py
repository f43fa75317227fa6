"""Which pods count as waiting, and when they are alike."""

from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest

from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.snapshot import InFlightNodeClaim, Snapshot
from spotwright.simulation import builders
from spotwright.workflows.planning.waiting_pods import are_waiting_pods_alike

NOW = datetime(2026, 1, 1, tzinfo=UTC)
PROVIDER_ID = "aws:///ap-northeast-2a/i-1"
LARGE = builders.pod("large", cpu_millicores=4000)
SMALL = builders.pod("small", cpu_millicores=100)
INITIALIZED = (Condition("Initialized", "True"),)


def snapshot(*pods: Pod, **fields: Any) -> Snapshot:
    return Snapshot(cluster="c", now=NOW, pods=pods, **fields)


def on(pod: Pod, node: str, **fields: Any) -> Pod:
    return msgspec.structs.replace(pod, node_name=node, phase="Running", **fields)


def claim(name: str, *conditions: Condition) -> NodeClaim:
    about = ObjectMeta(name, labels={labels.NODEPOOL: "default"})
    return NodeClaim(
        about,
        NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default"),
        provider_id=PROVIDER_ID,
        conditions=conditions,
    )


def renamed(pod: Pod, name: str) -> Pod:
    return msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, name=name))


def test_pods_are_alike_that_differ_in_their_names() -> None:
    assert are_waiting_pods_alike(snapshot())
    assert are_waiting_pods_alike(snapshot(SMALL))
    assert are_waiting_pods_alike(snapshot(SMALL, renamed(SMALL, "other")))


def test_pods_are_alike_that_say_the_same_in_another_order() -> None:
    one = msgspec.structs.replace(SMALL, node_selector={"team": "a", "tier": "b"})
    other = msgspec.structs.replace(renamed(SMALL, "other"), node_selector={"tier": "b", "team": "a"})
    assert are_waiting_pods_alike(snapshot(one, other))


@pytest.mark.parametrize(
    "other",
    [
        {"priority": 10},
        {"requests": {"cpu": 200, "memory": builders.GIB, "pods": 1}},
        {"node_selector": {"team": "a"}},
        {"volume_claim_names": ("data",)},
    ],
)
def test_pods_that_ask_for_something_else_are_not(other: dict[str, Any]) -> None:
    assert not are_waiting_pods_alike(snapshot(SMALL, msgspec.structs.replace(renamed(SMALL, "other"), **other)))


def test_pods_that_run_are_of_no_account() -> None:
    """Neither on nodes that are initialized nor on those of others."""
    node = Node(ObjectMeta("node-1"), PROVIDER_ID)
    mine = claim("default-1", *INITIALIZED)
    assert are_waiting_pods_alike(
        snapshot(SMALL, on(LARGE, "node-1"), on(LARGE, "theirs"), nodes=(node,), nodeclaims=(mine,))
    )


def test_a_node_without_a_provider_id_is_of_no_nodeclaim() -> None:
    launching = msgspec.structs.replace(claim("default-1"), provider_id="")
    theirs = Node(ObjectMeta("theirs"))
    assert are_waiting_pods_alike(snapshot(SMALL, on(LARGE, "theirs"), nodes=(theirs,), nodeclaims=(launching,)))


@pytest.mark.parametrize("place", ["default-1", "node-1"])
def test_pods_that_were_planned_for_a_node_that_comes_up_count(place: str) -> None:
    """By the name of its NodeClaim or, once that is there, of its Node."""
    node = Node(ObjectMeta("node-1"), PROVIDER_ID)
    coming = {"nodes": (node,), "nodeclaims": (claim("default-1"),)}
    planned = msgspec.structs.replace(LARGE, node_name=place)
    assert not are_waiting_pods_alike(snapshot(SMALL, planned, **coming))
    assert are_waiting_pods_alike(snapshot(LARGE, renamed(planned, "other"), **coming))


def test_pods_that_were_planned_for_a_nodeclaim_that_is_not_there_yet_count() -> None:
    in_flight = (InFlightNodeClaim(claim("default-1"), ("c5.large",)),)
    planned = msgspec.structs.replace(LARGE, node_name="default-1")
    assert not are_waiting_pods_alike(snapshot(SMALL, planned, in_flight=in_flight))


@pytest.mark.parametrize("goes", ["its NodeClaim", "the Node alone"])
def test_pods_of_nodes_on_their_way_out_count(goes: str) -> None:
    """They are planned for new nodes as well, and wait for these when they are evicted."""
    mine, node = claim("default-1", *INITIALIZED), Node(ObjectMeta("node-1"), PROVIDER_ID)
    going = (node if goes == "the Node alone" else mine).metadata
    going = msgspec.structs.replace(going, deletion_timestamp=NOW)
    if goes == "the Node alone":
        there = {"nodes": (msgspec.structs.replace(node, metadata=going),), "nodeclaims": (mine,)}
    else:
        there = {"nodes": (node,), "nodeclaims": (msgspec.structs.replace(mine, metadata=going),)}
    assert not are_waiting_pods_alike(snapshot(SMALL, on(LARGE, "node-1"), **there))
    assert are_waiting_pods_alike(snapshot(LARGE, on(renamed(LARGE, "other"), "node-1"), **there))


def test_pods_that_have_ended_and_those_of_daemonsets_are_of_no_account() -> None:
    ended = msgspec.structs.replace(LARGE, phase="Succeeded")
    agent = msgspec.structs.replace(builders.daemonset_pod("agent", ""), phase="Pending")
    assert are_waiting_pods_alike(snapshot(SMALL, ended, agent))
