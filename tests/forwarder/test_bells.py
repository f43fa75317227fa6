"""Which change rings what."""

import pytest

from forwarder.bells import NODEPOOLS, PODS, Bell, at_start, changed, pod_event_node
from forwarder.views import View, claim_view, class_view, node_view, pod_view, pool_view
from tests.forwarder import objects

NODE = Bell("lifecycle", "node", "n")
CLAIM = Bell("lifecycle", "claim", "c")
CLASS = Bell("catalog", "nodeclasses", "w")

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
    (None, claim_view(objects.claim()), {CLAIM}),
    (None, claim_view(objects.claim(decided=True)), set()),
    (claim_view(objects.claim(decided=True)), claim_view(objects.claim(decided=True, deleting=True)), {CLAIM}),
    (claim_view(objects.claim()), claim_view(objects.claim(node_name="n")), set()),
    (claim_view(objects.claim(deleting=True)), None, {CLAIM}),
    (None, pool_view(objects.wish()), {NODEPOOLS, PODS}),
    (pool_view(objects.wish()), pool_view(objects.wish()), set()),
    (pool_view(objects.wish()), pool_view(objects.wish(generation=2)), {NODEPOOLS, PODS}),
    (pool_view(objects.wish()), pool_view(objects.wish(ready="True")), {NODEPOOLS, PODS}),
    (pool_view(objects.wish()), None, {NODEPOOLS}),
    (None, class_view(objects.wish()), {CLASS, NODEPOOLS}),
    (class_view(objects.wish()), class_view(objects.wish(generation=2)), {CLASS, NODEPOOLS}),
    (class_view(objects.wish()), class_view(objects.wish(ready="True")), {NODEPOOLS, PODS}),
    (class_view(objects.wish()), None, {CLASS, NODEPOOLS}),
])  # fmt: skip
def test_a_change_rings(before: View | None, after: View | None, bells: set[Bell]) -> None:
    assert changed(before, after) == bells


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
    assert changed(ready_node, node_view(later)) == frozenset()


def test_at_the_start_bound_pods_ring_nothing() -> None:
    assert at_start({"Pod": {"a": bound}, "Node": {"n": ready_node}}) == frozenset()


def test_at_the_start_what_is_unfinished_is_looked_at() -> None:
    found: dict[str, dict[str, View]] = {
        "Pod": {"a": waiting},
        "Node": {"a": node_view(objects.node(ready=False))},
        "NodeClaim": {"a": claim_view(objects.claim(decided=True)), "b": claim_view(objects.claim(node_name="n"))},
        "NodePool": {"a": pool_view(objects.wish())},
        "EC2NodeClass": {"a": class_view(objects.wish())},
    }
    assert at_start(found) == {PODS, NODE, CLAIM, NODEPOOLS, CLASS}
