"""Kubernetes objects into the model."""

import json
from typing import Any

import pytest
import yaml

from spotwright.adapters import decode
from spotwright.model.nodepool import Budget
from spotwright.model.requirements import Selector

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
    found = decode.pod(pod(spec)).requests
    assert (found.get("cpu", 0), found.get("memory", 0), found["pods"]) == (cpu, memory, 1)


def test_a_pod_being_resized_counts_the_larger_of_asked_and_allocated() -> None:
    status = {"containerStatuses": [{"name": "app", "allocatedResources": {"cpu": "3"}}]}
    assert decode.pod(pod({"containers": [container(cpu="1")]}, status)).requests["cpu"] == 3000


def test_a_malformed_quantity_is_a_problem_of_that_pod_that_names_field_and_value() -> None:
    found = decode.pod(pod({"containers": [container(cpu="a lot")]}))
    assert "cpu" in found.problem
    assert "'a lot'" in found.problem


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
    found = decode.pod(pod(spec))
    plain = decode.pod(pod({}))
    assert found != plain, field


def test_a_nodepool_has_the_defaults_of_its_schema() -> None:
    found = decode.nodepool({"kind": "NodePool", "metadata": {"name": "p"}, "spec": {"template": {"spec": {}}}})
    assert found.expire_after_seconds == 720 * 3600
    assert found.consolidate_after_seconds == 0
    assert found.budgets == (Budget("10%"),)
    assert found.weight == 0


T4G = """
kind: NodePool
metadata: {name: default}
spec:
  template:
    metadata:
    spec: {requirements: [{key: karpenter.k8s.aws/instance-family, operator: In, values: [t4g]}], expireAfter: Never}
  limit: {cpu: 20}
  weight:
"""


def test_unknown_and_empty_fields_are_named_with_the_nearest_known_one() -> None:
    problems = decode.nodepool(yaml.safe_load(T4G)).problems
    assert "unknown field spec.limit, did you mean limits?" in problems
    assert any("spec.weight is empty" in one for one in problems)
    assert len(problems) == 2


def test_what_the_api_server_pruned_is_found_in_the_last_applied_manifest() -> None:
    obj = yaml.safe_load(T4G)
    applied = yaml.safe_dump(obj["spec"])
    del obj["spec"]["limit"], obj["spec"]["weight"]
    obj["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": json.dumps({"spec": yaml.safe_load(applied)})
    }
    assert any("spec.limit" in one for one in decode.nodepool(obj).problems)


def test_a_bad_duration_names_object_field_value_and_what_is_allowed() -> None:
    obj = yaml.safe_load(T4G)
    obj["spec"]["template"]["spec"]["expireAfter"] = "tomorrow"
    with pytest.raises(decode.DecodeError, match=r"NodePool default: spec\.template\.spec\.expireAfter: 'tomorrow'"):
        decode.nodepool(obj)


def test_requirements_keep_operator_values_and_min_values() -> None:
    obj = yaml.safe_load(T4G)
    obj["spec"]["template"]["spec"]["requirements"][0]["minValues"] = 1
    assert decode.nodepool(obj).requirements == (Selector("karpenter.k8s.aws/instance-family", "In", ("t4g",), 1),)


def test_a_nodepool_that_cannot_be_read_says_so_and_makes_no_nodes() -> None:
    """Its neighbours in the list are read as ever; lifecycle gives it a False condition with this sentence."""
    obj = yaml.safe_load(T4G)
    obj["spec"]["limits"] = {"cpu": "a lot"}
    found = decode.readable_nodepool(obj)
    assert "NodePool default: spec.limits: cpu: 'a lot'" in found.unreadable
    assert found.name == "default"
    assert decode.readable_nodepool(yaml.safe_load(T4G)).unreadable == ""
