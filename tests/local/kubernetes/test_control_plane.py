"""The real control plane: its taints, foreign Nodes, and whom its token webhook lets in."""

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from local.kubernetes.api import ApiError, KubernetesApi
from local.kubernetes.control_plane import KUBELET_LABEL, ControlPlane
from local.kubernetes.kubeconfig import read_kubeconfig, write_kubeconfig
from tests.local.conftest import BootHarness, FakeControlApi, numbered_instance, removed_afterwards


def test_the_control_plane_lifts_the_not_ready_taints_itself(boots: BootHarness) -> None:
    instance = numbered_instance(12)
    boots.aws.put(instance)

    def taints() -> set[str]:
        return {taint["key"] for taint in (boots.node(instance) or {"spec": {}})["spec"].get("taints", [])}

    boots.wait_until(lambda: "node.kubernetes.io/not-ready" in taints())
    with removed_afterwards(boots, instance):
        boots.wait_until(lambda: taints() == {"spot", "karpenter.sh/unregistered"})


def test_a_node_object_that_no_instance_made_is_not_managed(boots: BootHarness) -> None:
    """Only the boot agent's label brings a kubelet."""
    boots.api.create("/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "foreign"}})
    time.sleep(1.5)
    node = boots.api.get("/api/v1/nodes/foreign")
    assert KUBELET_LABEL not in node["metadata"].get("labels", {})
    assert not any(
        entry["type"] == "Ready" and entry["status"] == "True" for entry in node["status"].get("conditions", [])
    )
    boots.api.delete("/api/v1/nodes/foreign")


@pytest.fixture
def as_token(plane: ControlPlane, tmp_path: Path) -> Callable[[str], KubernetesApi]:
    """A client that logs in with a bearer token."""

    def client(token: str) -> KubernetesApi:
        access = read_kubeconfig(plane.kubeconfig)
        path = tmp_path / "token.kubeconfig"
        write_kubeconfig(
            path,
            server=access.server,
            certificate_authority=access.certificate_authority,
            user={"token": token},
        )
        return KubernetesApi(path)

    return client


def test_eks_tokens_are_whose_the_local_aws_says(
    control_api: FakeControlApi, as_token: Callable[[str], KubernetesApi]
) -> None:
    """Groups come from the access entry; RBAC decides what they may do."""
    identity = {"authenticated": True, "username": "arn:aws:sts::1:assumed-role/r/s", "groups": ["spotwright:read"]}
    control_api.replies["/_local/identity"] = identity
    client = as_token("k8s-aws-v1.abc")
    whoami = client.create(
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
    )
    user = whoami["status"]["userInfo"]
    assert user["username"] == identity["username"]
    assert "spotwright:read" in user["groups"]
    assert ("/_local/identity", {"token": "k8s-aws-v1.abc", "cluster": "dev"}) in control_api.questions
    with pytest.raises(ApiError) as refused:
        client.get("/api/v1/nodes")
    assert refused.value.status == 403


@pytest.mark.parametrize("token", ["k8s-aws-v1.unknown", "not-of-eks"])
def test_other_tokens_are_nobodys(
    control_api: FakeControlApi, as_token: Callable[[str], KubernetesApi], token: str
) -> None:
    control_api.replies["/_local/identity"] = {"authenticated": False}
    with pytest.raises(ApiError) as refused:
        as_token(token).get("/api/v1/nodes")
    assert refused.value.status == 401
