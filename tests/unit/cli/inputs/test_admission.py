"""What admission adds to the pods of manifests."""

from typing import Any

import pytest

from spotwright.cli.inputs.documents import Document, Documents
from spotwright.cli.inputs.manifest_snapshot import decode_snapshot
from spotwright.model import resources
from spotwright.model.kubernetes.pod import Pod


def pod_with(*others: dict[str, Any], kind: str = "Pod", **spec: Any) -> Pod:
    template = {"containers": [{"name": "a", "image": "a"}]} | spec
    whole = template if kind == "Pod" else {"template": {"spec": template}}
    obj = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "p"}, "spec": whole}
    snapshot = decode_snapshot(Documents(tuple(Document("m.yaml", content) for content in (obj, *others))))
    return snapshot.pods[0] if kind == "Pod" else snapshot.daemonsets[0].template


def limit_range(namespace: str = "default", kind: str = "Container", **item: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "defaults", "namespace": namespace},
        "spec": {"limits": [{"type": kind} | item]},
    }


def container(**stated: dict[str, str]) -> list[dict[str, Any]]:
    return [{"name": "a", "image": "a", "resources": stated}]


@pytest.mark.parametrize(
    ("item", "stated", "cpu"),
    [
        ({"defaultRequest": {"cpu": "2"}, "default": {"cpu": "4"}}, {}, "2"),
        ({"default": {"cpu": "4"}}, {}, "4"),
        ({"max": {"cpu": "8"}}, {}, "8"),
        ({"max": {"cpu": "8"}, "min": {"cpu": "1"}}, {}, "8"),
        ({"min": {"cpu": "1"}}, {}, "1"),
        ({"defaultRequest": {"cpu": "2"}}, {"requests": {"cpu": "3"}}, "3"),
        ({"defaultRequest": {"cpu": "2"}}, {"limits": {"cpu": "5"}}, "5"),
    ],
)
def test_a_container_requests_what_the_limit_range_of_its_namespace_says(
    item: dict[str, Any], stated: dict[str, dict[str, str]], cpu: str
) -> None:
    for kind in ("Pod", "DaemonSet"):
        made = pod_with(limit_range(**item), kind=kind, containers=container(**stated))
        assert resources.text(made.requests)["cpu"] == cpu


def test_limit_ranges_of_pods_and_of_other_namespaces_give_no_defaults() -> None:
    made = pod_with(limit_range("other", default={"cpu": "4"}), limit_range(kind="Pod", max={"cpu": "4"}))
    assert "cpu" not in made.requests


def test_of_two_limit_ranges_the_first_counts() -> None:
    made = pod_with(limit_range(default={"cpu": "4"}), limit_range(default={"cpu": "1", "memory": "1Gi"}))
    assert (resources.text(made.requests)["cpu"], resources.text(made.requests)["memory"]) == ("4", "1Gi")


def test_a_runtime_class_adds_its_overhead_and_its_nodes() -> None:
    runtime = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "kata"},
        "handler": "kata",
        "overhead": {"podFixed": {"cpu": "250m"}},
        "scheduling": {"nodeSelector": {"kata": "yes"}, "tolerations": [{"key": "kata", "operator": "Exists"}]},
    }
    made = pod_with(runtime, runtimeClassName="kata", nodeSelector={"team": "a"})
    assert resources.text(made.requests)["cpu"] == "250m"
    assert made.node_selector == {"team": "a", "kata": "yes"}
    assert "kata" in {toleration.key for toleration in made.tolerations}
    assert pod_with(runtime).node_selector == {}
