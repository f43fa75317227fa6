"""Which change rings what."""

import pytest

from forwarder.doorbells import (
    NODEPOOLS,
    PODS,
    QueuedDoorbell,
    doorbells_at_start,
    doorbells_for_change,
    pod_event_node,
)
from forwarder.views import View, node_view, nodeclaim_view, nodeclass_view, nodepool_view, pod_view
from tests.forwarder import objects

NODE = QueuedDoorbell("lifecycle", "node", "n")
CLAIM = QueuedDoorbell("lifecycle", "claim", "c")
CLASS = QueuedDoorbell("catalog", "nodeclasses", "w")

waiting = pod_view(objects.pod(unschedulable=True))
bound = pod_view(objects.pod(node="n"))
ready_node = node_view(objects.node())


@pytest.mark.parametrize(("before", "after", "bells"), [
    (None, waiting, {PODS}),
    (pod_view(objects.pod()), waiting, {PODS}),
    (waiting, waiting, set()),
    (waiting, bound, set()),
    (waiting, None, set()),
    (None, pod_view(objects.pod()), set()),
    (None, pod_view(objects.pod(unschedulable=True, nominated=True)), set()),
    (None, pod_view(objects.pod(unschedulable=True, owner="DaemonSet")), set()),
    (None, pod_view(objects.pod(unschedulable=True, deleting=True)), set()),
    (None, ready_node, {NODE}),
    (ready_node, ready_node, set()),
    (node_view(objects.node(ready=False)), ready_node, {NODE}),
    (ready_node, node_view(objects.node(taints=("a",))), {NODE}),
    (ready_node, None, {NODE}),
    (None, nodeclaim_view(objects.claim()), {CLAIM}),
    (None, nodeclaim_view(objects.claim(decided=True)), set()),
    (nodeclaim_view(objects.claim(decided=True)), nodeclaim_view(objects.claim(decided=True, deleting=True)), {CLAIM}),
    (nodeclaim_view(objects.claim()), nodeclaim_view(objects.claim(node_name="n")), set()),
    (nodeclaim_view(objects.claim(deleting=True)), None, {CLAIM}),
    (None, nodepool_view(objects.wish()), {NODEPOOLS, PODS}),
    (nodepool_view(objects.wish()), nodepool_view(objects.wish()), set()),
    (nodepool_view(objects.wish()), nodepool_view(objects.wish(generation=2)), {NODEPOOLS, PODS}),
    (nodepool_view(objects.wish()), nodepool_view(objects.wish(ready="True")), {NODEPOOLS, PODS}),
    (nodepool_view(objects.wish()), None, {NODEPOOLS}),
    (None, nodeclass_view(objects.wish()), {CLASS, NODEPOOLS}),
    (nodeclass_view(objects.wish()), nodeclass_view(objects.wish(generation=2)), {CLASS, NODEPOOLS}),
    (nodeclass_view(objects.wish()), nodeclass_view(objects.wish(ready="True")), {NODEPOOLS, PODS}),
    (nodeclass_view(objects.wish()), None, {CLASS, NODEPOOLS}),
])  # fmt: skip
def test_a_change_rings(before: View | None, after: View | None, bells: set[QueuedDoorbell]) -> None:
    assert doorbells_for_change(before, after) == bells


@pytest.mark.parametrize(("before", "after", "node"), [
    (waiting, bound, "n"),
    (None, bound, "n"),
    (bound, bound, ""),
    (bound, pod_view(objects.pod(node="n", ready=True)), ""),
    (bound, pod_view(objects.pod(node="n", deleting=True)), "n"),
    (bound, pod_view(objects.pod(node="n", phase="Succeeded")), "n"),
    (bound, None, "n"),
    (waiting, None, ""),
    (None, pod_view(objects.pod(node="n", owner="DaemonSet")), ""),
    (ready_node, None, ""),
])  # fmt: skip
def test_a_pod_that_comes_or_goes_names_its_node(before: View | None, after: View | None, node: str) -> None:
    assert pod_event_node(before, after) == node


def test_a_change_that_no_view_shows_rings_nothing() -> None:
    """A kubelet's status update every few seconds must not wake anybody."""
    later = objects.node()
    later["status"]["conditions"][0]["lastHeartbeatTime"] = "2026-01-01T00:00:00Z"
    later["metadata"]["resourceVersion"] = "2"
    assert doorbells_for_change(ready_node, node_view(later)) == frozenset()


def test_at_the_start_bound_pods_ring_nothing() -> None:
    assert doorbells_at_start({"Pod": {"a": bound}, "Node": {"n": ready_node}}) == frozenset()


def test_at_the_start_what_is_unfinished_is_looked_at() -> None:
    found: dict[str, dict[str, View]] = {
        "Pod": {"a": waiting},
        "Node": {"a": node_view(objects.node(ready=False))},
        "NodeClaim": {
            "a": nodeclaim_view(objects.claim(decided=True)),
            "b": nodeclaim_view(objects.claim(node_name="n")),
        },
        "NodePool": {"a": nodepool_view(objects.wish())},
        "EC2NodeClass": {"a": nodeclass_view(objects.wish())},
    }
    assert doorbells_at_start(found) == {PODS, NODE, CLAIM, NODEPOOLS, CLASS}
