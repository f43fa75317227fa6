"""CapacityBuffers with what they refer to; what means nothing is named, by reason, field and value."""

from collections.abc import Mapping
from typing import Any

import pytest

from spotwright.adapters.kubernetes.codecs.capacity_buffer import decode_capacity_buffer
from spotwright.model.karpenter.capacity_buffer import CapacityBuffer, CapacityBufferStatus

POD = {"metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}, "name": "ignored"}, "spec": {
    "nodeName": "n1", "priorityClassName": "high",
    "containers": [{"name": "web", "resources": {"requests": {"cpu": "3"}}}],
    "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
}}  # fmt: skip
THERE: dict[tuple[str, str, str], Any] = {
    ("PodTemplate", "shop", "web"): {"metadata": {"name": "web", "generation": 4}, "template": POD},
    ("Deployment", "shop", "web"): {"spec": {"replicas": 10, "template": POD}},
    ("StatefulSet", "shop", "one"): {"spec": {"template": POD}},
    ("PodTemplate", "shop", "odd"): {"template": {"spec": {"containers": [{"resources": {"requests": {"cpu": "x"}}}]}}},
}


def read(status: Mapping[str, Any] | None = None, **spec: Any) -> CapacityBuffer:
    obj = {"metadata": {"name": "spare", "namespace": "shop", "uid": "u"}, "spec": spec, "status": status or {}}
    return decode_capacity_buffer(obj, lambda *key: THERE.get(key))


def scalable(kind: str = "Deployment", name: str = "web", group: str = "apps") -> dict[str, str]:
    return {"apiGroup": group, "kind": kind, "name": name}


def test_a_pod_template_gives_the_pod() -> None:
    buffer = read(podTemplateRef={"name": "web"}, replicas=2)
    assert (buffer.not_ready_reason, buffer.replicas, buffer.scalable_replicas) == ("", 2, None)
    assert (buffer.pod_template_ref, buffer.pod_template_generation) == ("web", 4)
    assert buffer.template_pod is not None
    assert buffer.template_pod.key == "shop/spare"
    assert buffer.template_pod.requests["cpu"] == 3000
    assert (buffer.template_pod.node_name, buffer.template_pod.metadata.labels) == ("", {"app": "web"})


def test_a_pod_template_and_limits_are_enough() -> None:
    buffer = read(podTemplateRef={"name": "web"}, limits={"cpu": "10"})
    assert (buffer.not_ready_reason, buffer.limits) == ("", {"cpu": 10_000})


@pytest.mark.parametrize(("ref", "scale"), [(scalable(), 10), (scalable("StatefulSet", "one"), 1)])
def test_a_workload_gives_pod_and_scale(ref: dict[str, str], scale: int) -> None:
    buffer = read(scalableRef=ref, percentage=20)
    assert (buffer.not_ready_reason, buffer.scalable_replicas, buffer.percentage, buffer.pod_template_ref) == (
        "",
        scale,
        20,
        "",
    )


@pytest.mark.parametrize(
    ("spec", "fault", "named"),
    [
        ({"podTemplateRef": {"name": "web"}, "scalableRef": scalable()}, "ResolutionFailed", "exactly one of"),
        ({}, "ResolutionFailed", "exactly one of"),
        ({"podTemplateRef": {"name": "web"}}, "ResolutionFailed", "needs replicas or limits"),
        ({"podTemplateRef": {"name": "gone"}, "replicas": 1}, "PodTemplateNotFound", "shop/gone does not exist"),
        ({"podTemplateRef": {"name": "odd"}, "replicas": 1}, "ResolutionFailed", "cpu"),
        ({"podTemplateRef": {}, "scalableRef": {}}, "ResolutionFailed", "exactly one of"),
        ({"podTemplateRef": {"x": 1}, "replicas": 1}, "ResolutionFailed", "name"),
        ({"podTemplateRef": "web", "replicas": 1}, "ResolutionFailed", "malformed"),
        ({"scalableRef": scalable(name="gone")}, "ScalableRefNotFound", "Deployment shop/gone does not exist"),
        ({"scalableRef": scalable("Rollout", group="argoproj.io")}, "ResolutionFailed", "Rollout of argoproj.io"),
        ({"scalableRef": scalable(), "replicas": -1}, "ResolutionFailed", "spec.replicas: -1"),
        ({"scalableRef": scalable(), "percentage": "20%"}, "ResolutionFailed", "spec.percentage: '20%'"),
        ({"scalableRef": scalable(), "replicas": True}, "ResolutionFailed", "spec.replicas: true"),
        ({"scalableRef": scalable(), "limits": {"cpu": "lots"}}, "ResolutionFailed", "spec.limits: cpu"),
        ({"scalableRef": scalable(), "limits": ["cpu"]}, "ResolutionFailed", "spec"),
    ],
)
def test_what_means_nothing_is_named(spec: dict[str, Any], fault: str, named: str) -> None:
    buffer = read(**spec)
    assert (buffer.template_pod, buffer.not_ready_reason) == (None, fault)
    assert named in buffer.not_ready_message


def test_another_strategy_is_somebody_elses() -> None:
    buffer = read(provisioningStrategy="example.com/other", replicas=-5)
    assert (buffer.provisioning_strategy, buffer.not_ready_reason, buffer.template_pod) == (
        "example.com/other",
        "",
        None,
    )


def test_the_status_is_read() -> None:
    status = {
        "replicas": 3, "podTemplateRef": {"name": "web"}, "podTemplateGeneration": 4,
        "provisioningStrategy": "buffer.x-k8s.io/active-capacity",
        "conditions": [{"type": "Provisioning", "status": "True", "reason": "FitsExistingCapacity"}],
    }  # fmt: skip
    buffer = read(status, podTemplateRef={"name": "gone"}, replicas=1)
    assert buffer.status == CapacityBufferStatus(3, "web", 4, "buffer.x-k8s.io/active-capacity")
    assert [condition.type for condition in buffer.conditions] == ["Provisioning"]
    assert read({"replicas": "many"}, scalableRef=scalable(), replicas=1).not_ready_reason == "ResolutionFailed"
