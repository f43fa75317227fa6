"""What the API server would say of manifests, ``spotwright plan`` says: file, line, object, field, value, what is
allowed."""

import io
from pathlib import Path
from typing import Any

import pytest
import yaml

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
DEPLOYMENT = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: web, image: web, resources: {requests: {cpu: 1}}}]
"""


@pytest.fixture
def plan(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    def _plan(text: str, *options: str) -> tuple[int, str]:
        """Exit code, and what is printed: the plan, or what is wrong, without the program's name."""
        monkeypatch.setattr("sys.stdin", io.StringIO(text))
        code = main(["plan", "-", *options])
        shown = capsys.readouterr()
        return code, shown.err.removeprefix("spotwright plan: ").rstrip() if code else shown.out

    return _plan


def test_every_error_of_every_object_is_named_with_its_line(plan: Any) -> None:
    bad = DEPLOYMENT.replace("replicas", "replica").replace(
        "spec:\n      containers", "spec:\n      toleration: []\n      containers"
    )
    pool = POOL.replace("metadata", "metadat")
    code, said = plan(POOL.replace("template:", "weigth: 10\n  template:") + "---" + bad)
    assert code == 2
    assert said.splitlines() == [
        "3 errors, so that nothing is planned:",
        "stdin:6 (document 1): NodePool default: spec.weigth: unknown field, did you mean weight?",
        "stdin:16 (document 2): Deployment web: spec.replica: unknown field, did you mean replicas?",
        "stdin:21 (document 2): Deployment web: spec.template.spec.toleration: unknown field, did you mean"
        " tolerations?",
    ]
    assert plan(pool)[1] == "stdin:2: NodePool without metadata: metadata.name is required"


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("replicas: 2", "replicas: two", "6: Deployment web: spec.replicas: 'two' is not a whole number"),
        ("replicas: 2", "replicas: -1", "6: Deployment web: spec.replicas: -1 is less than 0"),
        ("selector: {matchLabels: {app: web}}", "", "5: Deployment web: spec.selector: is missing: it is required"),
        (
            "labels: {app: web}",
            "labels: {app: api}",
            '9: Deployment web: spec.template.metadata.labels: {"app":"api"} is not what spec.selector selects,'
            ' {"app":"web"}',
        ),
        (
            "cpu: 1",
            "cpu: 1x",
            "11: Deployment web: spec.template.spec.containers[0].resources.requests.cpu: '1x' is not a quantity"
            " such as 2, 500m or 1.5Gi",
        ),
        (
            "cpu: 1",
            "cpus: 1",
            "11: Deployment web: spec.template.spec.containers[0].resources.requests.cpus: no such resource: cpu,"
            " memory, ephemeral-storage, hugepages-* or a name with a domain is allowed, did you mean cpu?",
        ),
        (
            "containers:",
            "tolerations: [{key: a, effect: NoShedule}]\n      containers:",
            "11: Deployment web: spec.template.spec.tolerations[0].effect: 'NoShedule' is not one of NoSchedule,"
            " PreferNoSchedule, NoExecute, did you mean NoSchedule?",
        ),
        (
            "containers:",
            "nodeSelector: {spot: yes}\n      containers:",
            "11: Deployment web: spec.template.spec.nodeSelector.spot: true is not text (quote it)",
        ),
        ("name: web}", "name: web_1}", "4: Deployment web_1: metadata.name: 'web_1' is not a name of at most 253"),
        (
            "apps/v1",
            "apps/v1beta1",
            "2: Deployment web: apiVersion: 'apps/v1beta1' has no Deployment: it is in apps/v1",
        ),
        ("apiVersion: apps/v1", "", "3: Deployment web: apiVersion: is missing: Deployment is in apps/v1"),
        ("Deployment", "deployment", "3: deployment web: kind: 'deployment' is no kind of apps/v1, did you mean"),
        (
            "replicas: 2",
            "replicas: 2\n  replicas: 3",
            "7: Deployment web: spec.replicas: this key is there twice: leave one of them out (the last counts)",
        ),
    ],
)
def test_a_field_that_is_wrong_is_named_with_what_is_allowed(plan: Any, old: str, new: str, said: str) -> None:
    code, shown = plan(DEPLOYMENT.replace(old, new, 1))
    assert code == 2
    assert shown.startswith(f"stdin:{said}")


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("30", "30 is not text, a unit is missing, such as 30s or 30h"),
        ("'30'", "'30' does not match the pattern ^(([0-9]+(s|m|h))+|Never)$: How long a node"),
        ("'30'", "may be consolidated, or Never, a unit is missing, such as 30s or 30h"),
        ("2d", "'2d' does not match the pattern ^(([0-9]+(s|m|h))+|Never)$: How long a node"),
        ("2d", "may be consolidated, or Never, did you mean 48h?"),
        ("1.5", "1.5 is not text that matches the pattern ^(([0-9]+(s|m|h))+|Never)$"),
    ],
)
def test_a_duration_without_its_unit_is_told_the_one_that_is_allowed(plan: Any, value: str, said: str) -> None:
    code, shown = plan(POOL.replace("spec:\n", f"spec:\n  disruption: {{consolidateAfter: {value}}}\n", 1))
    assert code == 2
    assert "NodePool default: spec.disruption.consolidateAfter: " in shown
    assert said in shown
    assert "quote it" not in shown


AUTOSCALER = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: scaler}
spec: {minReplicas: 4, maxReplicas: 2, scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}}
"""


@pytest.mark.parametrize("version", ["v2", "v1"])
def test_an_autoscaler_with_fewer_replicas_at_most_than_at_least_is_refused(plan: Any, version: str) -> None:
    code, shown = plan(AUTOSCALER.replace("v2", version))
    assert code == 2
    assert "HorizontalPodAutoscaler scaler: spec.maxReplicas: 2 is less than minReplicas, 4" in shown
    assert plan(AUTOSCALER.replace("minReplicas: 4, ", "").replace("v2", version) + "---" + POOL)[0] == 0


@pytest.mark.parametrize("value", ["${ZONE}", "<<AZ>>", "{{ zone }}"])
def test_a_placeholder_is_told_as_such(plan: Any, value: str) -> None:
    said = plan(DEPLOYMENT.replace("containers:", f'nodeSelector: {{zone: "{value}"}}\n      containers:'))[1]
    assert f"spec.template.spec.nodeSelector.zone: '{value}' is not a label value" in said
    assert said.endswith("(a placeholder: fill it in first)")


def test_unknown_fields_and_duplicate_keys_are_notes_where_that_is_asked_for(plan: Any) -> None:
    text = POOL + "---" + DEPLOYMENT.replace("replicas: 2", "replica: 1\n  replicas: 3\n  replicas: 2")
    code, shown = plan(text, "--validate", "warn")
    assert code == 0
    assert shown.startswith("2 pods: 2 placed")
    assert "spec.replica: unknown field, did you mean replicas?" in shown
    assert "spec.replicas: this key is there twice" in shown
    code, shown = plan(text, "--validate", "ignore")
    assert code == 0
    assert "replica" not in shown


def test_a_key_that_is_there_twice_in_a_kind_that_is_not_known_is_a_note(plan: Any) -> None:
    text = "apiVersion: a.b/v1\nkind: SparkApplication\nmetadata: {name: s}\nspec: {sparkConf: {a: x, a: y}}\n---\n"
    twice = "stdin:4 (document 1): SparkApplication s: spec.sparkConf.a: this key is there twice"
    for options, is_said in (((), True), (("--validate", "warn"), True), (("--validate", "ignore"), False)):
        code, shown = plan(text + DEPLOYMENT + "---\n" + POOL, *options)
        assert code == 0
        assert (twice in shown) == is_said


def test_a_kubelet_in_a_v1_pool_is_told_where_it_moved(plan: Any) -> None:
    text = POOL.replace("requirements:", "kubelet: {maxPods: 10}\n      requirements:")
    said = "kubelet moved to EC2NodeClass spec.kubelet in v1; the API server drops it here"
    assert plan(text) == (
        2, f"stdin:8: NodePool default: spec.template.spec.kubelet: unknown field: {said}"
    )  # fmt: skip
    assert said in plan(text, "--validate", "warn")[1]


def test_a_date_is_text_and_a_label_key(plan: Any) -> None:
    text = POOL.replace("values: [on-demand]}", "values: [on-demand]}, {key: 2020-01-01, operator: Exists}")
    assert plan(text)[0] == 0


def test_a_limit_of_what_no_node_has_is_noted(plan: Any) -> None:
    code, shown = plan(
        POOL.replace("  template:", "  limits: {cpus: 100, cpu: 10, example.com/gpu: 1}\n  template:", 1)
    )
    assert code == 0
    said = "stdin:6: NodePool default: spec.limits.cpus: limits nothing: no node has cpus, did you mean cpu?"
    assert shown.count("limits nothing") == 1
    assert said in " ".join(shown.split())


BUFFER = """
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityBuffer
metadata: {name: spare}
spec: {podTemplateRef: {name: a}, scalableRef: {kind: Deployment, name: web}, replica: 3, percentage: -1}
"""


def test_a_capacity_buffer_is_checked(plan: Any) -> None:
    assert plan(BUFFER)[1].splitlines()[1:] == [
        "stdin:5: CapacityBuffer spare: spec.replica: unknown field, did you mean replicas?",
        "stdin:5: CapacityBuffer spare: spec.percentage: -1 is less than 0",
    ]
    both = BUFFER.replace(", replica: 3, percentage: -1", ", replicas: 1")
    assert plan(both)[1] == "stdin:5: CapacityBuffer spare: spec: podTemplateRef and scalableRef exclude each other"


OWNED = """
apiVersion: apps/v1
kind: ReplicaSet
metadata: {name: web-1, ownerReferences: [{apiVersion: apps/v1, kind: Deployment, name: web, uid: a, controller: true}]}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template: {metadata: {labels: {app: web}}, spec: {containers: [{name: a, image: a}]}}
"""
OWNED_POD = """
apiVersion: v1
kind: Pod
metadata: {name: web-1-a, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-1, uid: b}]}
spec: {containers: [{name: a, image: a}]}
"""


@pytest.mark.parametrize(("documents", "pods"), [([OWNED], 2), ([OWNED, OWNED_POD], 1), ([OWNED_POD], 3)])
def test_what_a_workload_made_is_not_counted_again(plan: Any, documents: list[str], pods: int) -> None:
    code, shown = plan("---".join((POOL, DEPLOYMENT, *documents)))
    assert code == 0
    assert shown.startswith(f"{pods} pod")


UNKNOWN = """
apiVersion: argoproj.io/v1alpha1
kind: Rollout
metadata: {name: web}
spec: {replicas: 3, template: {spec: {containers: [{name: a, image: a}]}}}
---
apiVersion: example.com/v1
kind: Robot
metadata: {name: marvin}
spec: {arms: {template: {spec: {containers: [{name: a, image: a}]}}}}
---
apiVersion: monitoring.coreos.com/v1
kind: ServiceMonitor
metadata: {name: web}
---
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
metadata: {name: train}
spec: {minAvailable: 3}
"""


@pytest.mark.parametrize(
    ("invalid", "why"),
    [
        (
            "spec:\n  disruption: {consolidateAfter: 1m, budgets: [{nodes: 10%, schedule: 61 * * * *, duration: 1h}]}",
            "spec.disruption.budgets[0]: schedule: minute '61': must lie within 0 and 59",
        ),
        (
            "spec:\n  disruption: {consolidateAfter: 1m, budgets: [{nodes: 10%, schedule: 0 5-3 * * *, duration: 1h}]}",
            "spec.disruption.budgets[0]: schedule: hour '5-3': must lie within 0 and 23, the first not after the last",
        ),
        (
            "spec:\n  template:\n    metadata: {labels: {a/b/c: d}}",
            "spec.template.metadata.labels[a/b/c]: 'a/b/c' is not a qualified name (an optional DNS prefix and /, then"
            " at most 63 characters)",
        ),
        (
            "taints: [{key: a, effect: NoSchedule}, {key: a, value: b, effect: NoSchedule}]",
            "spec.template.spec: taint a:NoSchedule is given twice (taints and startupTaints)",
        ),
    ],
)
def test_a_nodepool_that_the_cluster_holds_not_ready_makes_no_nodes(plan: Any, invalid: str, why: str) -> None:
    pool = yaml.safe_load(POOL)
    changed = yaml.safe_load(invalid)
    spec = changed.pop("spec", {})
    pool["spec"]["template"] |= spec.pop("template", {})
    pool["spec"]["template"]["spec"] |= changed
    pool["spec"] |= spec
    code, shown = plan(yaml.safe_dump(pool) + "---" + DEPLOYMENT)
    assert code == 0
    assert f"    NodePool default: it is not Ready: {why}\n" in shown


@pytest.mark.parametrize(
    ("metadata", "why"),
    [
        ("{name: old, labels: 3}", "metadata.labels: 3 is not an object with fields"),
        ("{name: old, annotations: {a: 1}}", "metadata.annotations.a: 1 is not text (quote it)"),
        ("{name: old, lables: {a: b}}", "metadata.lables: unknown field, did you mean labels?"),
    ],
)
def test_metadata_of_objects_before_v1_is_checked_too(plan: Any, metadata: str, why: str) -> None:
    code, said = plan(f"apiVersion: karpenter.sh/v1alpha5\nkind: Provisioner\nmetadata: {metadata}\nspec: {{}}\n")
    assert (code, said) == (2, f"stdin:3: Provisioner old: {why}")


OPERATED = """
apiVersion: clickhouse.com/v1alpha1
kind: KeeperCluster
metadata: {name: keeper}
spec: {replicas: 3, dataVolumeClaimSpec: {resources: {requests: {storage: 10Gi}}}}
---
apiVersion: clickhouse.com/v1alpha1
kind: ClickHouseCluster
metadata: {name: clicks}
spec: {shards: 2, podTemplate: {nodeSelector: {team: a}}}
---
apiVersion: example.com/v1
kind: Cache
metadata: {name: hot}
spec: {nodes: [{resources: {requests: {memory: 1Gi}}}]}
---
apiVersion: cluster.x-k8s.io/v1beta1
kind: MachineDeployment
metadata: {name: machines}
spec: {replicas: 3, template: {spec: {bootstrap: {}}}}
---
apiVersion: example.com/v1
kind: Disk
metadata: {name: disk}
spec: {resources: {requests: {storage: 1Gi}}}
---
apiVersion: kyverno.io/v1
kind: ClusterPolicy
metadata: {name: sidecar}
spec: {rules: [{mutate: {patchStrategicMerge: {spec: {containers: [{name: a, image: a}]}}}}]}
"""


def test_what_operators_make_pods_of_is_named_and_a_policy_is_not(plan: Any) -> None:
    code, shown = plan(POOL + "---" + OPERATED)
    assert code == 0
    notes = [line.strip() for line in shown.partition("Notes:")[2].splitlines()]
    assert [line for line in notes if line.startswith("not counted")] == [
        "not counted: the pods of Cache (example.com/v1) hot, a kind that is not known here",
        "not counted: the pods of ClickHouseCluster (clickhouse.com/v1alpha1) clicks, a kind that is not known here",
        "not counted: the pods of KeeperCluster (clickhouse.com/v1alpha1) keeper, a kind that is not known here",
    ]


def test_kinds_that_own_pods_and_are_not_known_are_named(plan: Any) -> None:
    code, shown = plan(POOL + "---" + DEPLOYMENT + "---" + UNKNOWN)
    assert code == 0
    assert shown.startswith("2 pods: 2 placed")
    notes = [line.strip() for line in shown.partition("Notes:")[2].splitlines()]
    assert [line for line in notes if line.startswith("not counted")] == [
        "not counted: the pods of Job (batch.volcano.sh/v1alpha1) train, a kind that is not known here",
        "not counted: the pods of Robot (example.com/v1) marvin, a kind that is not known here",
        "not counted: the pods of Rollout (argoproj.io/v1alpha1) web, a kind that is not known here",
    ]
    assert "ServiceMonitor" not in shown


@pytest.mark.parametrize("suffix", [".yaml", ".json"])
def test_what_is_nested_too_deeply_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str], suffix: str) -> None:
    file = tmp_path / f"deep{suffix}"
    kubelet = '{"a":' * 5000 + "1" + "}" * 5000
    file.write_text(
        '{"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "a"}, "spec": {"kubelet":'
        f" {kubelet}}}}}"
    )
    assert main(["plan", str(file)]) == 2
    assert f"{file}:1: not YAML: it is nested more than 200 levels deep" in capsys.readouterr().err


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder as people have it: manifests between charts, values and workflows."""
    files = {
        "pool.yaml": POOL,
        "apps/web.yaml": DEPLOYMENT,
        "apps/kustomization.yaml": "resources: [web.yaml]\npatches: [{path: more.yaml}]",
        "apps/more.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec: {replicas: 9}",
        "chart/Chart.yaml": "apiVersion: v2\nname: chart\nversion: 1.0.0",
        "chart/values.yaml": "replicas: 3",
        "chart/templates/web.yaml": "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: {{ .Release.Name }}}",
        "templates/pool.yaml": "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: {{ name }}}",
        "settings.yml": "- a\n- b",
        "spark.yaml": "apiVersion: sparkoperator.k8s.io/v1beta2\nkind: SparkApplication\nmetadata: {name: a\n",
        "kind.yaml": "kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnodes: []",
        "package.json": "{",
        ".github/workflows/test.yaml": "on: push\njobs: {}",
        ".git/x.yaml": "[",
    }
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_of_a_folder_the_manifests_are_read_and_the_rest_is_said(
    capsys: pytest.CaptureFixture[str], folder: Path
) -> None:
    assert main(["plan", str(folder)]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("2 pods: 2 placed")
    notes = [line.strip() for line in shown.partition("Notes:\n")[2].splitlines()]
    assert notes[:3] == [
        f"{folder}/chart is a Helm chart, which is not read: helm template {folder}/chart | spotwright plan -",
        f"{folder}/apps is a kustomization, whose files are read without what it changes in them:"
        f" kubectl kustomize {folder}/apps | spotwright plan -",
        f"{folder}: 5 files that are not manifests are not read",
    ]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("settings.yml", "settings.yml:1: expected Kubernetes objects, found a list"),
        ("kind.yaml", "kind.yaml:1: Cluster without metadata"),
        ("package.json", "package.json:2: not YAML"),
        ("chart/values.yaml", "helm template"),
        ("chart/Chart.yaml", "helm template"),
        ("apps/kustomization.yaml", "kubectl kustomize"),
        ("templates/pool.yaml", "templates/pool.yaml:3: not YAML: a key is a map or a list"),
    ],
)
def test_a_file_that_is_named_must_be_a_manifest(
    capsys: pytest.CaptureFixture[str], folder: Path, name: str, words: str
) -> None:
    assert main(["plan", str(folder / name)]) == 2
    assert words in capsys.readouterr().err


def test_a_broken_manifest_in_a_folder_is_an_error(capsys: pytest.CaptureFixture[str], folder: Path) -> None:
    (folder / "broken.yaml").write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: a\n")
    assert main(["plan", str(folder)]) == 2
    assert "broken.yaml:4: not YAML" in capsys.readouterr().err
