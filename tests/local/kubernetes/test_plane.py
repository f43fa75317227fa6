"""The real control plane: instances that the judge lets in become Nodes, and pods run on them."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from local.boot.agent import Agent, Delays
from local.boot.record import Record
from local.kubernetes.api import Api, ApiError
from local.kubernetes.kubeconfig import read_kubeconfig, write_kubeconfig
from local.kubernetes.plane import KUBELET_LABEL, ControlPlane
from tests.local.kubernetes.conftest import Answers, Boots, gone_afterwards, numbered

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "one", "namespace": "default"},
    "spec": {
        "containers": [{"name": "main", "image": "any", "resources": {"requests": {"cpu": "500m"}}}],
        "tolerations": [{"operator": "Exists"}],
    },
}


def test_an_instance_becomes_a_node_step_by_step_and_runs_pods(boots: Boots) -> None:
    """Registered and NotReady, then initialized, then Ready; its pod runs; at last it is gone."""
    one = numbered(11)
    boots.world.put(one)
    boots.agent.step()
    node = boots.node(one)
    assert node is not None
    assert boots.ready(one) == "False"
    taints = {(taint["key"], taint["effect"]) for taint in node["spec"]["taints"]}
    assert ("karpenter.sh/unregistered", "NoExecute") in taints
    assert ("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule") in taints
    assert "topology.kubernetes.io/zone" not in node["metadata"]["labels"]

    with gone_afterwards(boots, one):
        boots.until(lambda: boots.ready(one) == "True")
        node = boots.node(one)
        assert node is not None
        assert node["spec"]["providerID"] == "aws:///ap-northeast-2a/i-11"
        assert node["metadata"]["labels"]["topology.kubernetes.io/zone"] == "ap-northeast-2a"
        assert node["metadata"]["labels"]["node-group-type"] == "spot"
        assert node["status"]["allocatable"]["cpu"] == "1930m"

        boots.api.create("/api/v1/namespaces/default/pods", POD)
        path = "/api/v1/namespaces/default/pods/one"
        boots.until(lambda: boots.api.get(path)["status"]["phase"] == "Running")
        boots.api.delete(path)
        boots.until(lambda: boots.api.find(path) is None)


def test_the_control_plane_lifts_the_not_ready_taints_itself(boots: Boots) -> None:
    one = numbered(12)
    boots.world.put(one)

    def taints() -> set[str]:
        return {taint["key"] for taint in (boots.node(one) or {"spec": {}})["spec"].get("taints", [])}

    boots.until(lambda: "node.kubernetes.io/not-ready" in taints())
    with gone_afterwards(boots, one):
        boots.until(lambda: taints() == {"spot", "karpenter.sh/unregistered"})


def test_a_refused_instance_has_no_node_and_the_reason_is_written_down(boots: Boots) -> None:
    one = replace(numbered(13), subnet_vpc="vpc-other")
    boots.world.put(one)
    for _ in range(3):
        boots.agent.step()
    assert boots.node(one) is None
    lines = (boots.logs / "boot-refusals.jsonl").read_text().splitlines()
    assert len(lines) == 1
    assert '"Subnet"' in lines[0]


def test_a_node_whose_instance_shuts_down_stays_not_ready(boots: Boots) -> None:
    """kwok must let go of it, or it would turn Ready again."""
    one = numbered(14)
    boots.world.put(one)
    boots.until(lambda: boots.ready(one) == "True")
    boots.world.put(replace(one, state="shutting-down"))
    boots.until(lambda: boots.ready(one) == "False")
    with gone_afterwards(boots, one):
        for _ in range(30):
            boots.agent.step()
            assert boots.ready(one) == "False"
            time.sleep(0.1)


def test_a_deleted_node_of_a_running_instance_does_not_come_back(boots: Boots) -> None:
    """A kubelet registers when it starts, not again; also when the agent itself starts anew."""
    one = numbered(15)
    boots.world.put(one)
    boots.until(lambda: boots.node(one))
    boots.api.delete(f"/api/v1/nodes/{one.private_dns}")
    for agent in (boots.agent, Agent(boots.world, boots.api, Record(boots.logs), Delays(0.0, 0.0, 0.0))):
        agent.step()
        assert boots.node(one) is None


def test_an_address_is_taken_over_only_when_the_old_node_is_gone(boots: Boots) -> None:
    old = numbered(16)
    new = replace(old, id="i-16b")
    boots.world.put(old)
    boots.until(lambda: boots.ready(old) == "True")
    boots.world.put(new)
    boots.agent.step()
    assert (boots.node(old) or {})["spec"]["providerID"].endswith("/i-16")
    boots.world.put(replace(old, state="terminated"))
    with gone_afterwards(boots, new):
        boots.until(lambda: (boots.node(new) or {"spec": {}})["spec"].get("providerID", "").endswith("/i-16b"))


def test_a_node_object_that_no_instance_made_is_not_managed(boots: Boots) -> None:
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
def as_token(plane: ControlPlane, tmp_path: Path) -> Callable[[str], Api]:
    """A client that logs in with a bearer token."""

    def client(token: str) -> Api:
        access = read_kubeconfig(plane.kubeconfig)
        path = tmp_path / "token.kubeconfig"
        write_kubeconfig(
            path,
            server=access.server,
            certificate_authority=access.certificate_authority,
            user={"token": token},
        )
        return Api(path)

    return client


def test_eks_tokens_are_whose_the_local_aws_says(aws: Answers, as_token: Callable[[str], Api]) -> None:
    """Groups come from the access entry; RBAC decides what they may do."""
    identity = {"authenticated": True, "username": "arn:aws:sts::1:assumed-role/r/s", "groups": ["spotwright:read"]}
    aws.replies["/_local/identity"] = identity
    client = as_token("k8s-aws-v1.abc")
    whoami = client.create(
        "/apis/authentication.k8s.io/v1/selfsubjectreviews",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
    )
    user = whoami["status"]["userInfo"]
    assert user["username"] == identity["username"]
    assert "spotwright:read" in user["groups"]
    assert ("/_local/identity", {"token": "k8s-aws-v1.abc", "cluster": "dev"}) in aws.questions
    with pytest.raises(ApiError) as refused:
        client.get("/api/v1/nodes")
    assert refused.value.status == 403


@pytest.mark.parametrize("token", ["k8s-aws-v1.unknown", "not-of-eks"])
def test_other_tokens_are_nobodys(aws: Answers, as_token: Callable[[str], Api], token: str) -> None:
    aws.replies["/_local/identity"] = {"authenticated": False}
    with pytest.raises(ApiError) as refused:
        as_token(token).get("/api/v1/nodes")
    assert refused.value.status == 401
