"""Which requests an API server puts into queues of our own, asked of a real one."""

import time

import pytest

from spotwright import manifests
from tests.manifests.cluster import Cluster

OURS = {
    "read": ("--as=arn:aws:sts::1:assumed-role/read/s", "--as-group=spotwright:read"),
    "act": ("--as=arn:aws:sts::1:assumed-role/act/s", "--as-group=spotwright:act"),
    "forwarder": (
        "--as=system:serviceaccount:kube-system:spotwright-forwarder",
        "--as-group=system:serviceaccounts",
        "--as-group=system:serviceaccounts:kube-system",
    ),
}
OTHERS = {
    "a user": ("--as=someone", "--as-group=developers"),
    "another service account": (
        "--as=system:serviceaccount:kube-system:coredns",
        "--as-group=system:serviceaccounts",
        "--as-group=system:serviceaccounts:kube-system",
    ),
}


@pytest.fixture(scope="module")
def uids(cluster: Cluster) -> tuple[str, str]:
    """Of the FlowSchema and the PriorityLevelConfiguration, once the API server goes by them."""
    for document in (*manifests.rbac(), *manifests.flow_control()):
        cluster.objects.apply(document)
    level, schema = (cluster.objects.read(document) for document in manifests.flow_control())
    assert level is not None
    assert schema is not None
    deadline = time.monotonic() + 120
    while schema["metadata"]["uid"] not in answer_headers(cluster, *OURS["read"]):
        assert time.monotonic() < deadline, "the API server does not go by the FlowSchema"
        time.sleep(0.2)
    return schema["metadata"]["uid"], level["metadata"]["uid"]


def answer_headers(cluster: Cluster, *identity: str) -> str:
    """What kubectl says of the answer to a list of pods, its headers among it."""
    return cluster.kubectl("get", "--raw", "/api/v1/pods?limit=1", "-v=8", *identity).stderr


@pytest.mark.parametrize("identity", OURS.values(), ids=OURS.keys())
def test_functions_and_forwarder_have_queues_of_their_own(
    cluster: Cluster, uids: tuple[str, str], identity: tuple[str, ...]
) -> None:
    answer = answer_headers(cluster, *identity)
    assert all(uid in answer for uid in uids)


@pytest.mark.parametrize("identity", OTHERS.values(), ids=OTHERS.keys())
def test_nobody_else_is_in_them(cluster: Cluster, uids: tuple[str, str], identity: tuple[str, ...]) -> None:
    answer = answer_headers(cluster, *identity)
    assert "X-Kubernetes-Pf-Flowschema-Uid" in answer
    assert not any(uid in answer for uid in uids)


def test_the_flow_schema_is_not_dangling_and_each_user_has_a_share(cluster: Cluster, uids: tuple[str, str]) -> None:
    schema = cluster.objects.read(manifests.flow_control()[1])
    assert schema is not None
    assert schema["spec"]["distinguisherMethod"] == {"type": "ByUser"}
    conditions = {condition["type"]: condition["status"] for condition in schema["status"]["conditions"]}
    assert conditions["Dangling"] == "False"
