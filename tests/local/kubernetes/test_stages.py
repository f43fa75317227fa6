"""When a deleted pod ends: its preStop hook, its own time after SIGTERM, its grace period; and nodes that are sick."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.local.conftest import BootHarness, numbered_instance, removed_afterwards

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def node(boots: BootHarness) -> Iterator[str]:
    instance = numbered_instance(61)
    boots.aws.put(instance)
    boots.wait_until(lambda: boots.ready(instance) == "True")
    with removed_afterwards(boots, instance):
        yield instance.private_dns_name


def run(
    boots: BootHarness,
    node: str,
    name: str,
    *,
    grace: int,
    after_sigterm: int = 1,
    labels: dict[str, str] | None = None,
    **container: Any,
) -> None:
    """A running pod of that name. ``labels``: of the pod."""
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": labels or {},
            "annotations": {"local.spotwright.dev/seconds-after-sigterm": str(after_sigterm)},
        },
        "spec": {
            "nodeName": node,
            "terminationGracePeriodSeconds": grace,
            "tolerations": [{"operator": "Exists"}],
            "containers": [{"name": "main", "image": "example.com/app", **container}],
        },
    }
    boots.api.create(PODS, pod)
    boots.wait_until(lambda: boots.api.get(f"{PODS}/{name}")["status"]["phase"] == "Running")


def seconds_to_end(boots: BootHarness, name: str, options: dict[str, Any] | None = None) -> float:
    started = time.monotonic()
    boots.api.delete(f"{PODS}/{name}", options)
    boots.wait_until(lambda: boots.api.find(f"{PODS}/{name}") is None)
    return time.monotonic() - started


@pytest.mark.parametrize("hook", [{"sleep": {"seconds": 2}}, {"exec": {"command": ["/bin/sh", "-c", "sleep 2"]}}])
def test_a_pod_ends_after_its_hook_and_its_own_time(boots: BootHarness, node: str, hook: dict[str, Any]) -> None:
    run(boots, node, "slow", grace=60, after_sigterm=2, lifecycle={"preStop": hook})
    assert seconds_to_end(boots, "slow") > 3


def test_a_node_that_is_declared_sick_stays_sick(boots: BootHarness, node: str) -> None:
    sick = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    boots.api.patch(f"/api/v1/nodes/{node}/status", {"status": {"conditions": [sick]}})
    run(boots, node, "later", grace=1)
    (ready,) = (one for one in boots.api.get(f"/api/v1/nodes/{node}")["status"]["conditions"] if one["type"] == "Ready")
    assert (ready["status"], ready["lastTransitionTime"]) == ("False", "2026-01-01T00:00:00Z")
    boots.api.delete(f"{PODS}/later")


def ready(boots: BootHarness, pod: str) -> str:
    conditions = boots.api.get(f"{PODS}/{pod}")["status"]["conditions"]
    return str(next(one["status"] for one in conditions if one["type"] == "Ready"))


def test_a_pod_that_the_node_controller_marked_is_ready_again(boots: BootHarness, node: str) -> None:
    run(boots, node, "marked", grace=1)
    marked = {"type": "Ready", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}
    boots.api.patch(f"{PODS}/marked/status", {"status": {"conditions": [marked]}}, kind="strategic-merge-patch+json")
    boots.wait_until(lambda: ready(boots, "marked") == "True")
    boots.api.delete(f"{PODS}/marked")


def test_a_pod_with_the_label_of_an_unhealthy_stage_runs_and_is_not_ready(boots: BootHarness, node: str) -> None:
    run(boots, node, "sick", grace=1, labels={"kwok.x-k8s.io/stage": "unhealthy"})
    assert ready(boots, "sick") == "False"
    seconds_to_end(boots, "sick")


def test_a_hook_that_sleeps_for_no_known_time_ends_at_once(boots: BootHarness, node: str) -> None:
    run(boots, node, "hooked", grace=3600, lifecycle={"preStop": {"exec": {"command": ["/bin/stop", "--now"]}}})
    seconds_to_end(boots, "hooked")


def test_a_pod_that_ignores_sigterm_ends_with_its_grace_period(boots: BootHarness, node: str) -> None:
    run(boots, node, "deaf", grace=2, after_sigterm=600)
    assert seconds_to_end(boots, "deaf") > 1


def test_a_later_deletion_shortens_the_grace_period(boots: BootHarness, node: str) -> None:
    run(boots, node, "hurried", grace=600, after_sigterm=600)
    boots.api.delete(f"{PODS}/hurried")
    boots.wait_until(lambda: "deletionTimestamp" in boots.api.get(f"{PODS}/hurried")["metadata"])
    seconds_to_end(boots, "hurried", {"gracePeriodSeconds": 1})
