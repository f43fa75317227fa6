"""Pods into the model."""

from typing import Any

import pytest

from spotwright.adapters.kubernetes.codecs.pod import decode_pod

GI = 2**30


def pod(spec: dict[str, Any], status: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"kind": "Pod", "metadata": {"name": "p"}, "spec": spec, "status": status or {}}


def container(name: str = "app", **requests: str) -> dict[str, Any]:
    return {"name": name, "resources": {"requests": requests}}


@pytest.mark.parametrize(
    ("spec", "cpu", "memory"),
    [
        ({"containers": [container(cpu="1", memory="1.5Gi"), container("b", cpu="250m")]}, 1250, 3 * GI // 2),
        ({"containers": [{"name": "a", "resources": {"limits": {"cpu": "2"}}}]}, 2000, 0),
        ({"containers": [container(cpu="1")], "initContainers": [container("i", cpu="3", memory="1Gi")]}, 3000, GI),
        (
            {
                "containers": [container(cpu="1")],
                "initContainers": [container("s", cpu="1") | {"restartPolicy": "Always"}, container("i", cpu="1500m")],
            },
            2500,
            0,
        ),
        ({"containers": [container(cpu="1")], "overhead": {"cpu": "100m", "memory": "1Gi"}}, 1100, GI),
        ({"containers": [container(cpu="1")], "resources": {"requests": {"cpu": "5"}}}, 5000, 0),
    ],
    ids=["sum", "limit", "init-peak", "sidecar-beside-init", "overhead", "pod-level"],
)
def test_requests_are_what_kube_scheduler_counts(spec: dict[str, Any], cpu: int, memory: int) -> None:
    requests = decode_pod(pod(spec)).requests
    assert (requests.get("cpu", 0), requests.get("memory", 0), requests["pods"]) == (cpu, memory, 1)


def test_a_pod_being_resized_counts_the_larger_of_asked_and_allocated() -> None:
    status = {"containerStatuses": [{"name": "app", "allocatedResources": {"cpu": "3"}}]}
    assert decode_pod(pod({"containers": [container(cpu="1")]}, status)).requests["cpu"] == 3000


def test_a_pod_being_shrunk_counts_what_it_still_has() -> None:
    still = {"name": "app", "allocatedResources": {"cpu": "1"}, "resources": {"requests": {"cpu": "4"}}}
    decoded = decode_pod(pod({"containers": [container(cpu="1")]}, {"containerStatuses": [still]}))
    assert decoded.requests["cpu"] == 4000


def test_a_malformed_quantity_is_a_problem_of_that_pod_that_names_field_and_value() -> None:
    decoded = decode_pod(pod({"containers": [container(cpu="a lot")]}))
    assert "cpu" in decoded.read_error
    assert "'a lot'" in decoded.read_error


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"topologySpreadConstraints": [{"topologyKey": "zone", "maxSkew": 1}]}, "topologySpreadConstraints"),
        ({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "x"}}]}, "volumes"),
        ({"containers": [{"name": "a", "ports": [{"hostPort": 80}]}]}, "hostPort"),
        (
            {"affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{}]}}},
            "podAntiAffinity",
        ),
    ],
)
def test_a_hard_constraint_is_never_lost(spec: dict[str, Any], field: str) -> None:
    """Either the planner sees it, or the pod says that it does not."""
    decoded = decode_pod(pod(spec))
    plain = decode_pod(pod({}))
    assert decoded != plain, field
