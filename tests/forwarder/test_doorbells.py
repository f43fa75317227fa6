"""Which change rings what."""

from typing import Any

import pytest

from forwarder.doorbells import (
    NODEPOOLS,
    PODS,
    QueuedDoorbell,
    doorbells_at_start,
    doorbells_for_change,
    drain_event_node,
    pod_event_node,
)
from forwarder.kinds import ClusterObject
from spotwright.model.labels import (
    DISRUPTED,
    HELD,
    INITIALIZED,
    NOT_READY,
    REGISTERED,
    UNREGISTERED,
)
from spotwright.model.labels import EXCLUDE_FROM_LOAD_BALANCERS as EXCLUDE
from tests.forwarder import objects
from tests.forwarder.objects import decoded

NODE = QueuedDoorbell("lifecycle", "node", "n")
CLAIM = QueuedDoorbell("lifecycle", "claim", "c")
CLASS = QueuedDoorbell("catalog", "nodeclasses", "w")

READY = {"type": "Ready", "status": "True"}
SICK = {"type": "KernelReady", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}

waiting = decoded("Pod", objects.pod(unschedulable=True))
bound = decoded("Pod", objects.pod(node="n"))
kept = decoded("Pod", objects.pod(node="n", kept="true"))
ready_node = decoded("Node", objects.node())


def node_of(pool: str = "default", *, keys: tuple[str, ...] = (), taints: tuple[str, ...] = ()) -> ClusterObject:
    return decoded("Node", objects.node(pool=pool, further_labels=keys, taints=taints))


def starting(ready: bool, taints: tuple[str, ...] = ()) -> ClusterObject:
    """As the kubelet reports it, with the time from which it is not Ready."""
    found = objects.node(taints=taints)
    stated = {"type": "Ready", "status": str(ready), "lastTransitionTime": "2026-01-01T00:00:00Z"}
    found["status"]["conditions"] = [stated]
    return decoded("Node", found)


def stated(initialized: bool, part: str, **fields: object) -> ClusterObject:
    found = objects.node(further_labels=(INITIALIZED,) if initialized else ())
    found[part] = found.get(part, {}) | fields
    return decoded("Node", found)


def node_with(kind: str, status: str, since: str = "2026-01-01T00:00:00Z") -> ClusterObject:
    return decoded("Node", objects.node(reported=({"type": kind, "status": status, "lastTransitionTime": since},)))


def closed(**fields: Any) -> ClusterObject:
    return decoded("Node", objects.node(**{"further_labels": (INITIALIZED,), "taints": (DISRUPTED,)} | fields))


@pytest.mark.parametrize(("before", "after", "bells"), [
    (None, waiting, {PODS}),
    (decoded("Pod", objects.pod()), waiting, {PODS}),
    (waiting, waiting, set()),
    (waiting, bound, set()),
    (waiting, None, set()),
    (None, decoded("Pod", objects.pod()), set()),
    (None, decoded("Pod", objects.pod(unschedulable=True, nominated=True)), set()),
    (None, decoded("Pod", objects.pod(unschedulable=True, owner="DaemonSet")), set()),
    (None, decoded("Pod", objects.pod(unschedulable=True, deleting=True)), set()),
    (None, ready_node, {NODE}),
    (ready_node, ready_node, set()),
    (decoded("Node", objects.node(ready=False)), ready_node, {NODE}),
    (ready_node, decoded("Node", objects.node(taints=("a",))), {NODE}),
    (ready_node, None, set()),
    (node_of(keys=(INITIALIZED,)), node_of(keys=(INITIALIZED, "team")), {NODE}),
    (node_of(keys=(INITIALIZED,)), node_of(), {NODE}),
    (ready_node, node_of(keys=("team",)), set()),
    # What lifecycle writes while a node becomes ready.
    (node_of("", taints=(UNREGISTERED,)), node_of(keys=(REGISTERED,), taints=(UNREGISTERED,)), set()),
    (node_of(taints=(UNREGISTERED, "a")), node_of(taints=("a", HELD)), set()),
    (node_of(taints=(HELD,)), node_of(), set()),
    # A node that starts is looked at when it is Ready and open.
    (starting(False, (NOT_READY,)), starting(True, (NOT_READY,)), set()),
    (starting(True, (NOT_READY,)), starting(True), {NODE}),
    (starting(True, (NOT_READY, "a")), starting(True, (NOT_READY,)), {NODE}),
    (starting(True), starting(False), {NODE}),
    (node_of(keys=(INITIALIZED,)), node_of(keys=(INITIALIZED,), taints=(NOT_READY,)), {NODE}),
    (node_of(keys=(REGISTERED,)), node_of(keys=(REGISTERED, INITIALIZED)), set()),
    (node_of("", taints=(UNREGISTERED, "a")), node_of(keys=(REGISTERED,), taints=(UNREGISTERED,)), {NODE}),
    (node_of(keys=(REGISTERED,)), node_of(), {NODE}),
    # What lifecycle writes while a node is drained, and what becomes of the machine.
    (node_of(keys=(INITIALIZED,)), node_of(keys=(INITIALIZED, EXCLUDE), taints=(DISRUPTED,)), set()),
    (node_of(keys=(INITIALIZED, EXCLUDE), taints=(DISRUPTED,)), node_of(keys=(INITIALIZED, EXCLUDE)), {NODE}),
    (closed(), closed(ready=False), set()),
    (closed(), closed(further_labels=(INITIALIZED, "team")), set()),
    (closed(), closed(taints=(DISRUPTED, "a")), set()),
    (closed(), closed(deleting=True), {NODE}),
    (closed(), closed(reported=(SICK,)), {NODE}),
    # An instance is known late, or a device plugin registers its resource.
    (stated(False, "spec", providerID="aws:///a/i-1"), stated(False, "spec", providerID="aws:///a/i-2"), {NODE}),
    (stated(False, "status", allocatable={"cpu": "3"}), stated(False, "status", allocatable={"cpu": "4"}), {NODE}),
    (stated(False, "status", capacity={"cpu": "3"}), stated(False, "status", capacity={"cpu": "4"}), {NODE}),
    (stated(True, "status", conditions=[READY, SICK]), stated(True, "status", conditions=[READY]), {NODE}),
    (ready_node, node_with("KernelReady", "False"), {NODE}),
    (node_with("KernelReady", "False"), node_with("KernelReady", "False", "2026-01-01T01:00:00Z"), {NODE}),
    (node_with("KernelReady", "False"), node_with("KernelReady", "False"), set()),
    (ready_node, node_with("KernelReady", "True"), set()),
    (ready_node, node_with("MemoryPressure", "True"), set()),
    (None, decoded("NodeClaim", objects.claim()), {CLAIM}),
    (None, decoded("NodeClaim", objects.claim(decided=True)), set()),
    (
        decoded("NodeClaim", objects.claim(decided=True)),
        decoded("NodeClaim", objects.claim(decided=True, deleting=True)),
        {CLAIM},
    ),
    (decoded("NodeClaim", objects.claim()), decoded("NodeClaim", objects.claim(node_name="n")), set()),
    (decoded("NodeClaim", objects.claim(deleting=True)), None, set()),
    (None, decoded("NodePool", objects.wish()), {NODEPOOLS, PODS}),
    (decoded("NodePool", objects.wish()), decoded("NodePool", objects.wish()), set()),
    (None, decoded("NodeOverlay", objects.wish()), {NODEPOOLS, PODS}),
    (decoded("NodeOverlay", objects.wish()), decoded("NodeOverlay", objects.wish(ready="True")), set()),
    (decoded("NodeOverlay", objects.wish()), decoded("NodeOverlay", objects.wish(generation=2)), {NODEPOOLS, PODS}),
    (decoded("NodeOverlay", objects.wish()), None, {NODEPOOLS, PODS}),
    (decoded("NodePool", objects.wish()), decoded("NodePool", objects.wish(generation=2)), {NODEPOOLS, PODS}),
    (decoded("NodePool", objects.wish()), decoded("NodePool", objects.wish(ready="True")), {NODEPOOLS, PODS}),
    (decoded("NodePool", objects.wish()), None, {NODEPOOLS}),
    (None, decoded("EC2NodeClass", objects.wish()), {CLASS, NODEPOOLS}),
    (decoded("EC2NodeClass", objects.wish()), decoded("EC2NodeClass", objects.wish(generation=2)), {CLASS, NODEPOOLS}),
    (decoded("EC2NodeClass", objects.wish()), decoded("EC2NodeClass", objects.wish(ready="True")), {NODEPOOLS, PODS}),
    (decoded("EC2NodeClass", objects.wish()), None, {CLASS, NODEPOOLS}),
])  # fmt: skip
def test_a_change_rings(before: ClusterObject | None, after: ClusterObject | None, bells: set[QueuedDoorbell]) -> None:
    assert doorbells_for_change(before, after) == bells


@pytest.mark.parametrize(("before", "after", "node"), [
    (waiting, bound, "n"),
    (None, bound, "n"),
    (bound, bound, ""),
    (bound, decoded("Pod", objects.pod(node="n", ready=True)), ""),
    (bound, decoded("Pod", objects.pod(node="n", deleting=True)), "n"),
    (bound, decoded("Pod", objects.pod(node="n", phase="Succeeded")), "n"),
    (bound, None, "n"),
    (bound, kept, "n"),
    (kept, bound, "n"),
    (kept, kept, ""),
    (waiting, None, ""),
    (None, decoded("Pod", objects.pod(node="n", owner="DaemonSet")), ""),
    (ready_node, None, ""),
])  # fmt: skip
def test_a_pod_that_comes_or_goes_names_its_node(
    before: ClusterObject | None, after: ClusterObject | None, node: str
) -> None:
    assert pod_event_node(before, after) == node


@pytest.mark.parametrize(("before", "after", "node"), [
    (None, bound, ""),
    (bound, decoded("Pod", objects.pod(node="n", deleting=True)), ""),
    (bound, decoded("Pod", objects.pod(node="n", ready=True)), ""),
    (bound, decoded("Pod", objects.pod(node="n", phase="Succeeded")), "n"),
    (bound, None, "n"),
    (decoded("Pod", objects.pod(node="n", owner="DaemonSet")), None, "n"),
    (decoded("Pod", objects.pod(node="n", phase="Succeeded")), None, ""),
    (kept, bound, "n"),
    (waiting, bound, ""),
    (waiting, None, ""),
])  # fmt: skip
def test_a_drain_goes_on_when_a_pod_has_ended_or_may_be_evicted(
    before: ClusterObject | None, after: ClusterObject | None, node: str
) -> None:
    assert drain_event_node(before, after) == node


def test_a_change_that_nobody_looks_at_rings_nothing() -> None:
    """A kubelet's status update every few seconds must not wake anybody."""
    later = objects.node()
    later["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-01T00:00:00Z"
    later["metadata"]["resourceVersion"] = "2"
    assert doorbells_for_change(ready_node, decoded("Node", later)) == frozenset()


def test_at_the_start_bound_pods_ring_nothing() -> None:
    assert doorbells_at_start({"Pod": {"a": bound}, "Node": {"n": ready_node}}) == frozenset()


def test_at_the_start_what_is_unfinished_is_looked_at() -> None:
    found: dict[str, dict[str, ClusterObject]] = {
        "Pod": {"a": waiting},
        "Node": {"a": decoded("Node", objects.node(ready=False))},
        "NodeClaim": {
            "a": decoded("NodeClaim", objects.claim(decided=True)),
            "b": decoded("NodeClaim", objects.claim(node_name="n")),
        },
        "NodePool": {"a": decoded("NodePool", objects.wish())},
        "EC2NodeClass": {"a": decoded("EC2NodeClass", objects.wish())},
    }
    assert doorbells_at_start(found) == {PODS, NODE, CLAIM, NODEPOOLS, CLASS}


@pytest.mark.parametrize(("node", "rings"), [
    (node_of(keys=(REGISTERED,)), True),
    (node_of(keys=(REGISTERED, INITIALIZED)), False),
    (node_of(keys=()), False),
    (decoded("Node", objects.node(pool="", further_labels=(REGISTERED,))), False),
])  # fmt: skip
def test_at_the_start_a_node_that_is_only_to_be_initialized_is_looked_at(node: ClusterObject, rings: bool) -> None:
    assert doorbells_at_start({"Node": {"n": node}}) == ({NODE} if rings else frozenset())
