"""A node that EC2 takes back while nothing can be bought for its pods: they stop in order before it goes."""

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.deployed_stack import DeployedStack

pytestmark = pytest.mark.stack

NOTICE_SECONDS = 120
# A budget keeps the pod, which ends so long after SIGTERM, and may take twice as long.
STOP_SECONDS = 15
KEPT: dict[str, Any] = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "inflate", "namespace": "default"},
    "spec": {"maxUnavailable": 0, "selector": {"matchLabels": {"app": "inflate"}}},
}
SLOW: dict[str, Any] = {
    "metadata": {"annotations": {"local.spotwright.dev/seconds-after-sigterm": str(STOP_SECONDS)}},
    "spec": {"terminationGracePeriodSeconds": 2 * STOP_SECONDS},
}


SPOT = [
    {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot"]},
    {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]},
    {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
]


def pods_by_uid(deployed_stack: DeployedStack) -> dict[str, dict[str, Any]]:
    pods = deployed_stack.objects("pods")
    return {p["metadata"]["uid"]: p for p in pods if p["metadata"].get("labels", {}).get("app") == "inflate"}


def test_a_pod_that_a_budget_keeps_stops_in_order_before_ec2_takes_its_node(deployed_stack: DeployedStack) -> None:
    patch(deployed_stack, "nodepool", "default", {"spec": {"template": {"spec": {"requirements": SPOT}}}})
    deployed_stack.scale(0)
    patch(deployed_stack, "deployment", "inflate", {"spec": {"replicas": 1, "template": SLOW}})
    deployed_stack.apply_object(KEPT)
    deployed_stack.wait_until("the pod runs", lambda: deployed_stack.running("inflate") == 1, seconds=120)
    doomed = pods_by_uid(deployed_stack)
    (instance,) = deployed_stack.instances()

    nothing = {"insufficient": [{"instanceType": "*", "zone": "*", "capacityType": "*"}]}
    deployed_stack.stack.control("POST", "/_local/capacity", nothing)
    deployed_stack.stack.control("POST", "/_local/interrupt", {"instanceId": instance, "seconds": NOTICE_SECONDS})
    noticed = time.monotonic()
    try:
        told = seconds_until(lambda: all_are_told_to_stop(deployed_stack, set(doomed)), since=noticed)
        gone = seconds_until(lambda: not doomed.keys() & pods_by_uid(deployed_stack).keys(), since=noticed)
        assert told <= NOTICE_SECONDS - 2 * STOP_SECONDS, "it has its grace period before EC2's time"
        assert told + STOP_SECONDS - 1 <= gone < NOTICE_SECONDS, "it ended by itself, on a node that was there"
    finally:
        deployed_stack.stack.control("POST", "/_local/capacity", {"insufficient": []})
        deployed_stack.stack.kubectl("delete", "poddisruptionbudget", "inflate")
    deployed_stack.wait_until("another pod runs", lambda: deployed_stack.running("inflate") == 1, seconds=180)


def all_are_told_to_stop(deployed_stack: DeployedStack, uids: set[str]) -> bool:
    pods = pods_by_uid(deployed_stack)
    return all("deletionTimestamp" in pods[uid]["metadata"] for uid in uids & pods.keys())


def seconds_until(holds: Callable[[], bool], *, since: float) -> float:
    """Raises AssertionError when EC2 has long taken the node."""
    while not holds():
        assert time.monotonic() - since < NOTICE_SECONDS + 60, "it did not come about"
        time.sleep(0.3)
    return time.monotonic() - since


def patch(deployed_stack: DeployedStack, kind: str, name: str, change: dict[str, Any]) -> None:
    deployed_stack.stack.kubectl("patch", kind, name, "--type=merge", "-p", json.dumps(change))
