"""Who may do what in the cluster, asked of a real API server; and what the forwarder's pod is."""

import copy
import time
from typing import Any

import pytest

from spotwright import manifests
from tests.manifests.cluster import Cluster

READ = [
    "pods", "nodes", "namespaces", "persistentvolumeclaims", "persistentvolumes", "storageclasses.storage.k8s.io",
    "csinodes.storage.k8s.io", "volumeattachments.storage.k8s.io", "daemonsets.apps", "deployments.apps",
    "replicasets.apps", "statefulsets.apps", "poddisruptionbudgets.policy", "priorityclasses.scheduling.k8s.io",
    "validatingwebhookconfigurations.admissionregistration.k8s.io", "nodepools.karpenter.sh",
    "nodeclaims.karpenter.sh", "nodeoverlays.karpenter.sh", "ec2nodeclasses.karpenter.k8s.aws", "podtemplates",
    "capacitybuffers.autoscaling.x-k8s.io",
]  # fmt: skip
ACT = [
    ("create", "nodeclaims.karpenter.sh", ""),
    ("delete", "nodeclaims.karpenter.sh", ""),
    ("patch", "nodeclaims.karpenter.sh", "status"),
    ("update", "nodeclaims.karpenter.sh", "finalizers"),
    ("patch", "nodeoverlays.karpenter.sh", "status"),
    ("patch", "nodepools.karpenter.sh", ""),
    ("patch", "ec2nodeclasses.karpenter.k8s.aws", ""),
    ("patch", "ec2nodeclasses.karpenter.k8s.aws", "status"),
    ("patch", "nodes", ""),
    ("delete", "nodes", ""),
    ("create", "pods", "eviction"),
    ("delete", "pods", ""),
    ("patch", "pods", "status"),
]
TELL = [
    ("create", "events", ""),
    ("get", "events", ""),
    ("patch", "events", ""),
    ("patch", "events.events.k8s.io", ""),
    ("patch", "capacitybuffers.autoscaling.x-k8s.io", "status"),
    ("patch", "nodepools.karpenter.sh", "status"),
]
NOBODY = [
    ("get", "secrets", ""),
    ("get", "configmaps", ""),
    ("create", "pods", ""),
    ("create", "pods", "exec"),
    ("create", "nodes", ""),
    ("delete", "nodepools.karpenter.sh", ""),
    ("create", "nodepools.karpenter.sh", ""),
    ("delete", "ec2nodeclasses.karpenter.k8s.aws", ""),
    ("delete", "customresourcedefinitions.apiextensions.k8s.io", ""),
    ("patch", "deployments.apps", ""),
    ("patch", "capacitybuffers.autoscaling.x-k8s.io", ""),
    ("escalate", "clusterroles.rbac.authorization.k8s.io", ""),
    ("impersonate", "users", ""),
]


@pytest.fixture(scope="module")
def granted(cluster: Cluster) -> Cluster:
    for document in manifests.rbac():
        cluster.objects.apply(document)
    return cluster


def may(cluster: Cluster, group: str, verb: str, what: str, subresource: str = "") -> bool:
    """Asks the API server itself, as EKS would present the role."""
    resource, _, api_group = what.partition(".")
    attributes = {"verb": verb, "resource": resource, "group": api_group, "subresource": subresource}
    answer = cluster.plane.api.create(
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        {
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SubjectAccessReview",
            "spec": {"user": "arn:aws:iam::1:role/r", "groups": [group], "resourceAttributes": attributes},
        },
    )
    return bool(answer["status"]["allowed"])


@pytest.mark.parametrize("group", ["spotwright:read", "spotwright:act"])
@pytest.mark.parametrize("what", READ)
def test_both_groups_see_what_decides_about_nodes(granted: Cluster, group: str, what: str) -> None:
    assert all(may(granted, group, verb, what) for verb in ("get", "list", "watch"))


@pytest.mark.parametrize("group", ["spotwright:read", "spotwright:act"])
@pytest.mark.parametrize(("verb", "what", "subresource"), TELL)
def test_whoever_decides_may_say_so(granted: Cluster, group: str, verb: str, what: str, subresource: str) -> None:
    assert may(granted, group, verb, what, subresource)


@pytest.mark.parametrize(("verb", "what", "subresource"), ACT)
def test_only_one_group_acts(granted: Cluster, verb: str, what: str, subresource: str) -> None:
    assert may(granted, "spotwright:act", verb, what, subresource)
    assert not may(granted, "spotwright:read", verb, what, subresource)


@pytest.mark.parametrize("group", ["spotwright:read", "spotwright:act"])
@pytest.mark.parametrize(("verb", "what", "subresource"), NOBODY)
def test_nobody_may_do_more(granted: Cluster, group: str, verb: str, what: str, subresource: str) -> None:
    assert not may(granted, group, verb, what, subresource)


def test_no_rule_has_a_wildcard() -> None:
    for role in manifests.rbac():
        for rule in role.get("rules", ()):
            assert not any("*" in word for words in rule.values() for word in words), rule


def pod_spec() -> dict[str, Any]:
    (deployment,) = manifests.forwarder("registry/forwarder:1", {"CLUSTER_NAME": "dev"})
    template: dict[str, Any] = copy.deepcopy(deployment["spec"]["template"])
    return template


def test_the_forwarder_follows_and_goes_only_where_add_ons_may() -> None:
    template = pod_spec()
    assert template["metadata"]["annotations"] == {"spotwright.dev/follow": "true"}
    assert template["spec"]["tolerations"] == [{"key": "CriticalAddonsOnly", "operator": "Exists"}]
    assert template["spec"]["priorityClassName"] == "system-cluster-critical"


def test_the_forwarders_pod_meets_the_restricted_standard(granted: Cluster) -> None:
    namespace = {"enforce": "restricted", "enforce-version": "latest"}
    labels = {f"pod-security.kubernetes.io/{name}": value for name, value in namespace.items()}
    granted.plane.api.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "strict", "labels": labels}})
    deadline = time.monotonic() + 120
    while granted.plane.api.find("/api/v1/namespaces/strict/serviceaccounts/default") is None:
        assert time.monotonic() < deadline, "the new namespace has no service account"
        time.sleep(0.1)
    template = pod_spec()
    template["spec"].pop("priorityClassName")
    template["spec"].pop("serviceAccountName")
    pod = {"apiVersion": "v1", "kind": "Pod", **template}
    pod["metadata"]["name"] = "forwarder"
    admitted = granted.plane.api.create("/api/v1/namespaces/strict/pods?dryRun=All&fieldValidation=Strict", pod)
    assert admitted["spec"]["containers"][0]["image"] == "registry/forwarder:1"
