"""What a plan says of manifests that are valid and may not mean what was meant."""

import io
import json
from typing import Any

import pytest

from spotwright.cli import main

POOL = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      requirements: [{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}]
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
"""
WEB = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: app, image: app, resources: {requests: {cpu: 100m}}}]
"""
AUTOSCALER = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: scaler}
spec: {scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}, minReplicas: 4, maxReplicas: 9}
"""
SCALED = "4 pods are planned, the minReplicas of HorizontalPodAutoscaler scaler"
QUOTA = """
apiVersion: v1
kind: ResourceQuota
metadata: {name: small}
spec: {hard: {pods: 1}}
"""


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def _planned(*documents: str) -> dict[str, Any]:
        """The plan as JSON."""
        monkeypatch.setattr("sys.stdin", io.StringIO("---".join((POOL, *documents))))
        assert main(["plan", "-", "-o", "json"]) == 0
        plan: dict[str, Any] = json.loads(capsys.readouterr().out)
        return plan

    return _planned


def with_spec(manifest: str, more: str) -> str:
    return manifest.replace("\nspec:\n", f"\nspec:\n  {more}\n")


@pytest.mark.parametrize(
    ("web", "autoscaler", "pods", "notes"),
    [
        (
            WEB,
            AUTOSCALER,
            4,
            [f"Deployment web states no replicas; {SCALED}"],
        ),
        (
            with_spec(WEB, "replicas: 2"),
            AUTOSCALER,
            4,
            [f"Deployment web states replicas 2; {SCALED}"],
        ),
        (with_spec(WEB, "replicas: 5"), AUTOSCALER, 5, []),
        (with_spec(WEB, "replicas: 0"), AUTOSCALER, 0, []),
        (WEB, AUTOSCALER.replace("minReplicas: 4, ", ""), 1, []),
        (WEB, AUTOSCALER.replace("name: web", "name: other"), 1, []),
        (WEB, AUTOSCALER.replace("name: scaler", "name: scaler, namespace: other"), 1, []),
    ],
)
def test_an_autoscaled_workload_has_at_least_min_replicas(
    planned: Any, web: str, autoscaler: str, pods: int, notes: list[str]
) -> None:
    for documents in ((web, autoscaler), (autoscaler, web)):
        plan = planned(*documents)
        assert sum(len(node["pods"]) for node in plan["newNodes"]) == pods
        assert plan["notes"] == notes


def test_a_resource_quota_is_not_counted_and_a_note_says_so(planned: Any) -> None:
    plan = planned(with_spec(WEB, "replicas: 3"), QUOTA)
    assert sum(len(node["pods"]) for node in plan["newNodes"]) == 3
    assert plan["notes"] == [
        "stdin:22 (document 3): ResourceQuota small: it is not counted: pods that it would refuse are planned as if it"
        " were not there"
    ]


PRIORITY = "\napiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: high}\nvalue: 5\n"
RUNTIME = "\napiVersion: node.k8s.io/v1\nkind: RuntimeClass\nmetadata: {name: kata}\nhandler: kata\n"
REFUSES = " (a cluster without it refuses the pods)"


@pytest.mark.parametrize(
    ("field", "assumed"),
    [
        (
            "priorityClassName: high",
            ["Deployment web: PriorityClass high is not in these files; assumed priority 0" + REFUSES],
        ),
        (
            "runtimeClassName: kata",
            [
                "Deployment web: RuntimeClass kata is not in these files; assumed no overhead, nodeSelector and"
                " tolerations" + REFUSES
            ],
        ),
        ("priorityClassName: system-cluster-critical", []),
    ],
)
def test_a_class_that_is_in_no_file_is_assumed(planned: Any, field: str, assumed: list[str]) -> None:
    web = WEB.replace("      containers:", f"      {field}\n      containers:")
    plan = planned(web)
    assert sum(len(node["pods"]) for node in plan["newNodes"]) == 1
    assert [line for line in plan["assumptions"] if "Class " in line and "Deployment" in line] == assumed
    known = planned(web, PRIORITY, RUNTIME)["assumptions"]
    assert not [line for line in known if "Deployment" in line]


DAEMONSET = """
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: app, image: app, resources: {requests: {cpu: 100m}}}]}
"""


def test_that_no_daemonset_is_counted_is_said_where_none_is_in_the_files(planned: Any) -> None:
    said = "DaemonSets: there are none in these files; assumed that nodes run none, not even aws-node and kube-proxy"
    assert planned(WEB)["assumptions"][-1] == said
    assert said not in planned(WEB, DAEMONSET)["assumptions"]
    assert said not in planned(with_spec(WEB, "replicas: 0"))["assumptions"]


NAMESPACE = "\napiVersion: v1\nkind: Namespace\nmetadata: {name: NAME, labels: {team: x}}\n"


@pytest.mark.parametrize(
    ("selector", "namespace", "nodes", "is_said"),
    [
        ("{}", "", 2, False),
        ("{matchLabels: {kubernetes.io/metadata.name: default}}", "", 2, False),
        ("{matchLabels: {kubernetes.io/metadata.name: default}}", "other", 2, False),
        ("{matchLabels: {team: x}}", "", 1, True),
        ("{matchLabels: {team: x}}", "other", 1, True),
        ("{matchLabels: {team: x}}", "default", 2, False),
    ],
)
def test_a_namespace_that_is_in_no_file_has_its_name_alone_which_is_said_where_it_matters(
    planned: Any, selector: str, namespace: str, nodes: int, is_said: bool
) -> None:
    term = f"topologyKey: kubernetes.io/hostname, namespaceSelector: {selector}, labelSelector: {{}}"
    apart = f"affinity: {{podAntiAffinity: {{requiredDuringSchedulingIgnoredDuringExecution: [{{{term}}}]}}}}"
    web = with_spec(WEB, "replicas: 2").replace("      containers:", f"      {apart}\n      containers:")
    few = "nodeSelector: {node.kubernetes.io/instance-type: m5.2xlarge}"
    web = web.replace("      containers:", f"      {few}\n      containers:")
    plan = planned(web, *((NAMESPACE.replace("NAME", namespace),) if namespace else ()))
    assert len(plan["newNodes"]) == nodes
    said = "Namespace default is not in these files; assumed without the label team that a namespaceSelector asks for"
    assert (said in plan["assumptions"]) == is_said


def test_a_paused_deployment_is_planned_and_a_note_says_so(planned: Any) -> None:
    plan = planned(with_spec(WEB, "paused: true"))
    assert sum(len(node["pods"]) for node in plan["newNodes"]) == 1
    assert plan["notes"] == [
        "stdin:15 (document 2): Deployment web: spec.paused: a new Deployment that is paused makes no pods until it is"
        " resumed; its pods are planned"
    ]
    assert planned(with_spec(WEB, "paused: false"))["notes"] == []


def test_a_misspelt_label_of_karpenter_is_answered_with_the_label_that_was_meant(planned: Any) -> None:
    def reason(key: str) -> str:
        web = WEB.replace("      containers:", f"      nodeSelector: {{{key}: m}}\n      containers:")
        return str(planned(web))

    assert "provisioner alone; did you mean instance-category?" in reason("karpenter.k8s.aws/instance-catagory")
    assert "did you mean" not in reason("karpenter.k8s.aws/zzz")


@pytest.mark.parametrize("field", ["requests", "limits"])
def test_memory_in_thousandths_of_a_byte_is_noted(planned: Any, field: str) -> None:
    web = WEB.replace("requests: {cpu: 100m}", f"{field}: {{cpu: 100m, memory: 512m}}")
    notes = planned(web)["notes"]
    assert notes == [
        f"stdin:19 (document 2): Deployment web: spec.template.spec.containers[0].resources.{field}.memory: 512m is"
        " 0.512 bytes; did you mean 512Mi?"
    ]
    assert planned(web.replace("512m}", "512Mi}"))["notes"] == []
