"""Karpenter and the cluster autoscaler are known by label, name or image, and only while they have replicas."""

from typing import Any

import pytest

from spotwright import manifests
from spotwright.workflows.install.preflight.workloads import read_workloads, unserved_volume


class Lists:
    """The workloads of a cluster."""

    def __init__(self, *deployments: dict[str, Any]) -> None:
        self._deployments = list(deployments)

    def list(self, api_version: str, kind: str, /) -> list[dict[str, Any]]:
        daemon_set = {"metadata": {"name": "aws-node", "namespace": "kube-system"}, "spec": {}}
        return self._deployments if kind == "Deployment" else [daemon_set]


def deployment(name: str, image: str = "x", labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    template = {"spec": {"containers": [{"image": image}]}}
    metadata = {"name": name, "namespace": "platform", "labels": labels or {}}
    return {"metadata": metadata, "spec": {"template": template, **spec}}


CONTROLLER = "public.ecr.aws/karpenter/controller:1.9.0@sha256:0123"


@pytest.mark.parametrize(
    ("found", "names"),
    [
        (deployment("karpenter"), ("platform/karpenter",)),
        (deployment("nodes", CONTROLLER), ("platform/nodes",)),
        (deployment("x", labels={"app.kubernetes.io/name": "karpenter"}), ("platform/x",)),
        (deployment("karpenter", CONTROLLER, replicas=0), ()),
        (deployment("karpenter-dashboard"), ()),
        (deployment("web", "registry.example.com/team/web:karpenter"), ()),
    ],
)
def test_a_karpenter_that_runs_is_found(found: dict[str, Any], names: tuple[str, ...]) -> None:
    workloads = read_workloads(Lists(found))
    assert workloads.karpenter == names
    assert workloads.system == {"aws-node"}


def test_the_cluster_autoscaler_is_found() -> None:
    image = "registry.k8s.io/autoscaling/cluster-autoscaler:v1.35.0"
    assert read_workloads(Lists(deployment("ca", image))).autoscaler == ("platform/ca",)
    assert read_workloads(Lists(deployment("cluster-autoscaler-aws-cluster-autoscaler", image))).karpenter == ()


def test_the_cell_whose_forwarder_is_there_is_found() -> None:
    (forwarder,) = manifests.forwarder("forwarder:1", {"SPOTWRIGHT_CELL": "blue"})
    assert read_workloads(Lists(forwarder)).cell == "blue"
    forwarder["metadata"]["namespace"] = "mine"
    assert read_workloads(Lists(forwarder)).cell == ""


class Storage:
    """Claims of two StorageClasses; ``default``: the default one; ``drivers``: installed."""

    def __init__(
        self, *classes: str | None, default: str = "gp3", drivers: tuple[str, ...] = ("efs.csi.aws.com",)
    ) -> None:
        marks = {default: {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}
        self._objects: dict[str, list[dict[str, Any]]] = {
            "CSIDriver": [{"metadata": {"name": name}} for name in drivers],
            "StorageClass": [
                {"metadata": {"name": "gp3", **marks.get("gp3", {})}, "provisioner": "ebs.csi.aws.com"},
                {"metadata": {"name": "efs", **marks.get("efs", {})}, "provisioner": "efs.csi.aws.com"},
            ],
            "PersistentVolumeClaim": [
                {
                    "metadata": {"name": f"data-{number}", "namespace": "shop"},
                    "spec": {} if name is None else {"storageClassName": name},
                }
                for number, name in enumerate(classes)
            ],
        }

    def list(self, api_version: str, kind: str, /) -> list[dict[str, Any]]:
        return self._objects[kind]


def test_a_claim_of_ebs_without_its_driver_is_found() -> None:
    assert unserved_volume(Storage("efs", "gp3")) == "shop/data-1"
    assert unserved_volume(Storage("efs", None)) == "shop/data-1"
    assert unserved_volume(Storage("efs", "", "none")) == ""
    assert unserved_volume(Storage("gp3", drivers=("ebs.csi.aws.com",))) == ""
    assert unserved_volume(Storage(None, default="efs")) == "", "of a class that is not of EBS"
    assert unserved_volume(Storage(None, default="none")) == ""
