"""The NodePools and pods of each measurement."""

import json
from typing import Any, Final

from local.cdk_deployment import ROOT

type Object = dict[str, Any]

NAMESPACE: Final = "default"
IMAGE: Final = "public.ecr.aws/eks-distro/kubernetes/pause:3.7"
LABEL: Final = "bench"
INTERRUPTED: Final = "interrupted"
BURST: Final = "burst"
#: Of the burst: five of 1.5 processors fill a node of 8.
PODS_PER_NODE: Final = 5


def class_and_pool(cluster: str) -> str:
    """An EC2NodeClass, and the NodePool of single pods, as YAML."""
    text = (ROOT / "examples/basic-gen6.yaml").read_text().replace("${CLUSTER_NAME}", cluster)
    return text.replace('cpu: "10"', 'cpu: "100000"')


def interrupted(replicas: int) -> str:
    """A NodePool of spot instances and a Deployment, each pod of which asks for the same port of its node."""
    port = {"containerPort": 9, "hostPort": 9}
    container = {"name": "app", "image": IMAGE, "ports": [port], "resources": {"requests": {"cpu": "500m"}}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": INTERRUPTED, "namespace": NAMESPACE, "labels": {LABEL: INTERRUPTED}},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {LABEL: INTERRUPTED}},
            "template": {
                "metadata": {"labels": {LABEL: INTERRUPTED}},
                "spec": {"nodeSelector": {LABEL: INTERRUPTED}, "containers": [container]},
            },
        },
    }
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": [_pool(INTERRUPTED, "spot"), deployment]})


def burst_pool() -> str:
    """A NodePool whose nodes have 8 processors."""
    return json.dumps(
        _pool(BURST, "on-demand", {"key": "karpenter.k8s.aws/instance-cpu", "operator": "In", "values": ["8"]})
    )


def burst_pod(number: int) -> Object:
    container = {"name": "app", "image": IMAGE, "resources": {"requests": {"cpu": "1500m", "memory": "1Gi"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"{BURST}-{number}", "namespace": NAMESPACE, "labels": {LABEL: BURST}},
        "spec": {"nodeSelector": {LABEL: BURST}, "containers": [container]},
    }


def _pool(name: str, capacity_type: str, *further: Object) -> Object:
    requirements = [
        {"key": "karpenter.k8s.aws/instance-generation", "operator": "Gt", "values": ["5"]},
        {"key": "karpenter.k8s.aws/instance-category", "operator": "In", "values": ["c", "m", "r"]},
        {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": [capacity_type]},
        *further,
    ]
    reference = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    template = {
        "metadata": {"labels": {LABEL: name}},
        "spec": {"nodeClassRef": reference, "expireAfter": "Never", "requirements": requirements},
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {"template": template, "disruption": {"consolidationPolicy": "WhenEmpty", "consolidateAfter": "Never"}},
    }
