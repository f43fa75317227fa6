"""``spotwright plan``, as people and programs call it."""

import io
import json
from pathlib import Path
from typing import Any

import pytest
from kubernetes.client.configuration import Configuration

from spotwright.cli import main
from spotwright.cli.inputs import live_cluster, sources
from spotwright.cli.inputs.builtin_catalog import load_builtin_catalog
from spotwright.cli.inputs.manifest_snapshot import decode_snapshot
from spotwright.errors import NotFound
from spotwright.model.karpenter.nodeclass import EC2NodeClass, Subnet
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.simulation import builders
from spotwright.simulation.clock import Clock
from spotwright.simulation.cluster import FakeCluster
from spotwright.simulation.effects import Effects

CASES = Path(__file__).parent.parent / "cases"
FAKE = CASES / "catalogs" / "karpenter-fake.json"

POOL = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: default}
spec:
  template:
    spec:
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      - {key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]}
      - {key: kubernetes.io/arch, operator: In, values: [amd64]}
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
"""
WORKLOAD = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: inflate}
spec:
  replicas: 5
  selector: {matchLabels: {app: inflate}}
  template:
    metadata: {labels: {app: inflate}}
    spec: {containers: [{name: app, image: app, resources: {requests: {cpu: 1, memory: 1.5Gi}}}]}
"""


@pytest.fixture
def write(tmp_path: Path) -> Any:
    def _write(name: str, *documents: str) -> str:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("\n---\n".join(documents))
        return str(file)

    return _write


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["plan", "--output", "json", *arguments]) == 0
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return document


def test_a_case_file_gives_one_json_document(capsys: pytest.CaptureFixture[str]) -> None:
    case = CASES / "scheduling" / "a01-selector-picks-the-zone.yaml"
    document = planned(capsys, "--catalog", str(FAKE), str(case))
    lists = {"assumptions", "buffers", "existingNodes", "ignored", "newNodes", "notes", "unschedulable", "workloads"}
    assert set(document) == lists | {
        "schema",
        "catalog",
        "summary",
        "pricePerHour",
        "boundPerHour",
        "isCheapest",
        "workUnits",
    }
    assert 0 < document["boundPerHour"] <= document["pricePerHour"]
    (node,) = document["newNodes"]
    assert (node["nodePool"], node["pods"], node["instanceTypes"][0]) == (
        "default",
        ["default/p"],
        "small-instance-type",
    )
    assert {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["test-zone-2"]} in node["requirements"]


def test_five_inflate_pods_get_one_node_of_the_built_in_catalog(capsys: pytest.CaptureFixture[str], write: Any) -> None:
    assert main(["plan", write("m.yaml", POOL, WORKLOAD)]) == 0
    text = capsys.readouterr().out
    assert text.startswith(
        "5 pods: 5 placed on 1 new node, 0 pending; $0.3060/h, $223 a month; "
        "no cheaper nodes exist, each counted with $0.0030/h for its volume\n"
    )
    assert "  c6a.2xlarge on-demand of NodePool default, $0.3060/h, any of" in text
    assert "why: the cheapest of" in text
    assert "alternatives, next c5a.2xlarge $0.3080/h" in text
    assert "\nAssumptions:\n  instance types and prices: us-east-1, built in" in text


STATIC = POOL.replace("name: default}\nspec:", "name: fixed}\nspec:\n  replicas: 2")


def test_nodes_of_static_pools_are_shown_with_their_price_behind_their_gate(
    capsys: pytest.CaptureFixture[str], write: Any
) -> None:
    file = write("m.yaml", STATIC)
    gate = ("--feature-gates", "StaticCapacity=true")
    document = planned(capsys, *gate, file)
    assert [(node["nodePool"], node["pods"]) for node in document["newNodes"]] == [("fixed", [])] * 2
    assert document["pricePerHour"] == document["boundPerHour"] > 0
    assert main(["plan", *gate, file]) == 0
    text = capsys.readouterr().out
    assert text.startswith("No pod is waiting: 2 new nodes; $")
    assert "why: NodePool fixed keeps 2 nodes and has 0; " in text
    without = planned(capsys, file)
    assert without["newNodes"] == []
    assert any("the feature gate StaticCapacity" in note for note in without["notes"])


BUFFER = """
apiVersion: autoscaling.x-k8s.io/v1beta1
kind: CapacityBuffer
metadata: {name: spare}
spec:
  scalableRef: {apiGroup: apps, kind: Deployment, name: inflate}
  percentage: 40
"""


def test_buffers_among_the_manifests_are_planned_for(capsys: pytest.CaptureFixture[str], write: Any) -> None:
    file = write("m.yaml", POOL, WORKLOAD, BUFFER)
    document = planned(capsys, file, "--feature-gates", "CapacityBuffer=true")
    buffer = {"name": "default/spare", "pods": 2, "reason": "RequiresNewCapacity", "message": ""}
    assert document["buffers"] == [buffer]
    virtual = [pod for node in document["newNodes"] for pod in node["pods"] if "capacity-buffer" in pod]
    assert len(virtual) <= 2
    assert main(["plan", file, "--feature-gates", "CapacityBuffer=true"]) == 0
    assert "default/spare keeps room for 2 pods, RequiresNewCapacity" in capsys.readouterr().out
    lost = planned(capsys, write("lost.yaml", POOL, BUFFER), "--feature-gates", "CapacityBuffer=true")
    assert lost["newNodes"] == []
    assert "Deployment default/inflate does not exist" in lost["buffers"][0]["message"]


def test_input_without_a_name_or_an_end_is_refused(
    capsys: pytest.CaptureFixture[str], write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("spotwright.cli.inputs.documents._MOST_CHARACTERS", 1000)
    assert main(["plan", "", "/dev/zero", write("m.yaml", "#" * 1001)]) == 2
    unnamed, endless, large = capsys.readouterr().err.splitlines()
    assert "the name of a file is empty" in unnamed
    assert endless == "/dev/zero: cannot be read: it has more than 64 MiB, which is too much for manifests"
    assert "m.yaml: cannot be read: it has more than 64 MiB" in large
    monkeypatch.setattr("sys.stdin", None)
    assert main(["plan", "-"]) == 2
    assert capsys.readouterr().err == "spotwright plan: stdin: cannot be read: it is closed\n"


def test_folders_and_stdin_are_read(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, write: Any
) -> None:
    folder = Path(write("pools/a/pool.yaml", POOL)).parent.parent
    monkeypatch.setattr("sys.stdin", io.StringIO(WORKLOAD))
    assert len(planned(capsys, str(folder), "-")["newNodes"]) == 1


def test_of_two_objects_of_one_name_the_last_counts_and_the_other_is_named(
    capsys: pytest.CaptureFixture[str], write: Any
) -> None:
    first, second = write("a.yaml", POOL, WORKLOAD), write("b.yaml", POOL)
    document = planned(capsys, first, second)
    assert len(document["newNodes"]) == 1
    assert f"NodePool default of {first} is not read: {second} has it again" in document["notes"]


def test_objects_that_let_the_api_server_choose_a_name_are_told_apart(
    capsys: pytest.CaptureFixture[str], write: Any
) -> None:
    spec = {"containers": [{"name": "a", "image": "a"}], "restartPolicy": "Never"}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "p-"}, "spec": spec}
    job = {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"generateName": "j-"},
        "spec": {"template": {"spec": spec}},
    }
    document = planned(capsys, write("m.yaml", POOL, *map(json.dumps, (pod, pod, job, job))))
    pods = {name for node in document["newNodes"] for name in node["pods"]}
    assert pods == {"default/p-1", "default/p-2", "default/j-1-0", "default/j-2-0"}
    assert [workload["name"] for workload in document["workloads"] if workload["kind"] == "Job"] == ["j-1", "j-2"]


@pytest.mark.parametrize(
    ("kind", "spec", "count"),
    [
        ("Deployment", {}, 1),
        ("Deployment", {"replicas": 0}, 0),
        ("StatefulSet", {"replicas": 3}, 3),
        ("ReplicaSet", {"replicas": 2}, 2),
        ("Job", {"parallelism": 4, "completions": 2}, 2),
        ("Job", {"parallelism": 4, "suspend": True}, 0),
        ("DaemonSet", {}, 0),
    ],
)
def test_workloads_become_their_pods(
    capsys: pytest.CaptureFixture[str], write: Any, kind: str, spec: dict[str, int], count: int
) -> None:
    template: dict[str, Any] = {
        "metadata": {"labels": {"app": "w"}},
        "spec": {"containers": [{"name": "a", "image": "a"}]},
    }
    if kind == "Job":
        template["spec"]["restartPolicy"] = "Never"
    whole = {"template": template} | ({} if kind == "Job" else {"selector": {"matchLabels": {"app": "w"}}}) | spec
    version = "batch/v1" if kind == "Job" else "apps/v1"
    workload = {"apiVersion": version, "kind": kind, "metadata": {"name": "w"}, "spec": whole}
    document = planned(capsys, write("m.yaml", POOL, json.dumps(workload)))
    assert sum(len(node["pods"]) for node in document["newNodes"]) == count


def test_a_cron_job_becomes_the_pods_of_one_run(capsys: pytest.CaptureFixture[str], write: Any) -> None:
    pod = {"containers": [{"name": "a", "image": "a"}], "restartPolicy": "Never"}
    spec = {"schedule": "@daily", "jobTemplate": {"spec": {"template": {"spec": pod}}}}
    metadata = {"name": "w", "namespace": "batch"}
    workload = {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": metadata, "spec": spec}
    assert planned(capsys, write("m.yaml", POOL, json.dumps(workload)))["newNodes"][0]["pods"] == ["batch/w-0"]
    workload = workload | {"spec": spec | {"suspend": True}}
    assert planned(capsys, write("suspended.yaml", POOL, json.dumps(workload)))["newNodes"] == []


def test_a_misspelt_field_and_an_empty_one_are_named(capsys: pytest.CaptureFixture[str], write: Any) -> None:
    document = planned(capsys, "--validate=warn", write("m.yaml", POOL + "  limit: {cpu: 20}\n  weight:\n", WORKLOAD))
    assert any("unknown field spec.limit, did you mean limits?" in note for note in document["notes"])
    assert any("spec.weight is empty" in note for note in document["notes"])
    assert document["unschedulable"] == []


def test_a_zone_that_nobody_sells_is_named_with_those_that_are_known(
    capsys: pytest.CaptureFixture[str], write: Any
) -> None:
    elsewhere = POOL.replace(
        "values: [on-demand]}",
        "values: [on-demand]}\n      - {key: topology.kubernetes.io/zone, operator: In, values: [ap-northeast-2a]}",
    )
    document = planned(capsys, "--region", "us-east-1", write("m.yaml", elsewhere, WORKLOAD))
    reasons = " ".join(document["unschedulable"][0]["reasons"])
    assert "ap-northeast-2a" in reasons
    assert "us-east-1a" in reasons


def test_text_says_who_has_no_place_and_why(capsys: pytest.CaptureFixture[str], write: Any) -> None:
    assert main(["plan", "--catalog", str(FAKE), write("m.yaml", POOL, WORKLOAD.replace("cpu: 1,", "cpu: 500,"))]) == 0
    text = capsys.readouterr().out
    assert text.startswith("5 pods: 5 pending\n")
    assert "Pending: 5 pods\n  5 of Deployment inflate\n" in text
    assert "NodePool default:" in text


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("a: [", "not YAML"),
        ("a:\n\t- b\n", "m.yaml:2: not YAML: it is indented by a tab, where YAML takes spaces only"),
        ("a: @b\n", "m.yaml:1: not YAML: text that begins with @ must be quoted"),
        ("kind: List\nitems: 3\n", "m.yaml:2: List: items is a list of Kubernetes objects, found the value 3"),
        ("objects: {kind: Pod}\n", "m.yaml:1: objects is a list of Kubernetes objects, found a map"),
        ("- 1\n- 2\n", "expected Kubernetes objects, found a list"),
        ("just text", "found text"),
        ("kind: NodePool\n", "NodePool without metadata"),
        ("metadata: {name: x}\n", "an object without kind"),
        ("", "no Kubernetes object"),
        ("kind: NodePool\nmetadata: {name: x}\nspec: {}\n", "apiVersion: is missing: NodePool is in karpenter.sh/v1"),
        (POOL + "  limits: {cpu: many}\n", "spec.limits.cpu: 'many' is not a quantity such as"),
        (POOL.split("spec:")[0] + "spec: [1]", "m.yaml:5: NodePool default: spec: [1] is not an object with fields"),
        ("objects: []\nsettings: {speed: fast}\n", "no Kubernetes object"),
        ("objects: [{kind: Pod, metadata: {name: p}}]\nsettings: {speed: fast}\n", "settings: speed is unknown"),
    ],
)
def test_input_that_cannot_be_read_is_said_and_exits_2(
    capsys: pytest.CaptureFixture[str], write: Any, content: str, words: str
) -> None:
    assert main(["plan", write("m.yaml", content)]) == 2
    shown = capsys.readouterr()
    assert words in shown.err
    assert shown.out == ""


def test_a_file_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "/nowhere.yaml"]) == 2
    assert "/nowhere.yaml: no such file or folder" in capsys.readouterr().err


def test_an_address_is_answered_with_the_command_that_reads_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "-f", "https://example.com/web.yaml"]) == 2
    assert capsys.readouterr().err == (
        "spotwright plan: https://example.com/web.yaml: addresses are not read: pipe it in, with - for the"
        " file: curl -fsSL https://example.com/web.yaml | …\n"
    )


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "it is not JSON"),
        ("kind: NodePool", "it is not JSON"),
        ("[]", "must be a map, found a list"),
        ('{"x":' + "[" * 100_000, "it is malformed: it is nested too deeply"),
        ('{"types": []}', "instanceTypes: is missing"),
        ('{"instanceTypes": 3}', "instanceTypes: must be a list, found a whole number"),
        ('{"instanceTypes": [{"name": 3}]}', "instanceTypes[0].name: must be text, found a whole number"),
        ('{"instanceTypes": [{"name": "x"}]}', "instanceTypes[0].requirements: is missing"),
        (
            '{"instanceTypes": [{"name": "x", "requirements": [], "capacity": {"cpu": "two"}, "offerings": []}]}',
            "cpu: 'two' is not a Kubernetes quantity (a number with an optional suffix: n u m k M G T P E,"
            " Ki Mi Gi Ti Pi Ei or an exponent such as 1e3)",
        ),
    ],
)
def test_a_catalog_that_is_none_is_said(capsys: pytest.CaptureFixture[str], write: Any, content: str, why: str) -> None:
    assert main(["plan", "--catalog", write("c.json", content), write("m.yaml", POOL)]) == 2
    said = capsys.readouterr().err
    assert said.endswith(f"c.json: not an instance catalog: {why} (spotwright catalog -o json writes one)\n")


def test_the_built_in_catalog_has_both_architectures_and_prices_for_all() -> None:
    types = load_builtin_catalog().instance_types("")
    assert len(types) > 1000
    assert {
        value for instance_type in types for value in instance_type.requirements.get("kubernetes.io/arch").values
    } == {"amd64", "arm64"}
    assert all(
        offering.price_picousd_per_hour > 0
        for instance_type in types
        for offering in instance_type.offerings
        if offering.available
    )


def test_manifests_are_planned_within_a_running_cluster(
    capsys: pytest.CaptureFixture[str], write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    cluster = FakeCluster("live", clock, Effects(clock))
    cluster.put("nodepools", builders.nodepool())
    cluster.put("nodes", builders.unmanaged_node("big"))
    cluster.put("pods", builders.pod("waits", unschedulable=True))
    monkeypatch.setattr(live_cluster, "KubernetesCluster", lambda *_: cluster)
    monkeypatch.setattr("spotwright.cli.inputs.live_cluster.Transport.from_configuration", lambda _: None)
    monkeypatch.setattr(live_cluster, "kubeconfig_configuration", lambda *_: Configuration(host="https://api.example"))
    document = planned(capsys, "--context", "any", write("m.yaml", WORKLOAD))
    (node,) = document["existingNodes"]
    assert (node["name"], len(node["pods"])) == ("big", 6)
    assert main(["plan"]) == 0
    assert "big takes 1 of ReplicaSet inflate" in capsys.readouterr().out


def test_a_running_cluster_is_in_the_region_of_its_subnets(
    capsys: pytest.CaptureFixture[str], write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    cluster = FakeCluster("live", clock, Effects(clock))
    cluster.put("nodepools", builders.nodepool())
    subnets = (Subnet("subnet-1", "eu-west-1b", "euw1-az1"),)
    ready = (Condition("Ready", "True"),)
    cluster.put(
        "ec2nodeclasses", EC2NodeClass(ObjectMeta("default"), ami_family="AL2023", subnets=subnets, conditions=ready)
    )
    monkeypatch.setattr(live_cluster, "KubernetesCluster", lambda *_: cluster)
    monkeypatch.setattr("spotwright.cli.inputs.live_cluster.Transport.from_configuration", lambda _: None)
    monkeypatch.setattr(live_cluster, "kubeconfig_configuration", lambda *_: Configuration(host="https://api.example"))
    document = planned(capsys, "--context", "any", write("m.yaml", WORKLOAD))
    assert document["catalog"]["source"] == "eu-west-1, built in"
    assert {zone for node in document["newNodes"] for zone in node["zones"]} == {"eu-west-1b"}


def test_a_cluster_that_does_not_answer_is_said(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[1, 2]")
    assert main(["plan", "--kubeconfig", str(tmp_path / "config")]) == 2
    said = f"kubeconfig: {tmp_path / 'config'} is not YAML in the form of a kubeconfig\n"
    assert capsys.readouterr().err == f"spotwright plan: the cluster cannot be read: {said}"


def test_a_context_that_is_not_there_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(
        json.dumps(
            {
                "clusters": [{"name": "a", "cluster": {"server": "https://127.0.0.1:1"}}],
                "users": [{"name": "a", "user": {"token": "t"}}],
                "contexts": [
                    {"name": "a", "context": {"cluster": "a", "user": "a"}},
                    {"name": "b", "context": {"cluster": "other", "user": "a"}},
                ],
                "current-context": "a",
            }
        )
    )
    for context, missing in (("main", "context main"), ("b", "cluster other")):
        assert main(["plan", "--kubeconfig", str(file), "--context", context]) == 2
        said = f"spotwright plan: the cluster cannot be read: kubeconfig: {file} has no {missing}\n"
        assert capsys.readouterr().err == said


def test_whoever_has_no_kubeconfig_is_told_what_to_name(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    assert main(["plan"]) == 2
    assert "there is no kubeconfig" in (said := capsys.readouterr().err)
    assert "name the manifests to plan, or a cluster's kubeconfig with --kubeconfig" in said


def test_a_cluster_without_our_definitions_is_told_how_to_get_them(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing() -> None:
        raise NotFound("GET /apis/karpenter.sh/v1/nodepools?limit=500: 404 404 page not found")

    cluster = FakeCluster("live", Clock(), Effects(Clock()))
    monkeypatch.setattr(cluster, "nodepools", missing)
    monkeypatch.setattr(live_cluster, "KubernetesCluster", lambda *_: cluster)
    monkeypatch.setattr("spotwright.cli.inputs.live_cluster.Transport.from_configuration", lambda _: None)
    monkeypatch.setattr(live_cluster, "kubeconfig_configuration", lambda *_: Configuration(host="https://api.example"))
    assert main(["plan", "--context", "any"]) == 2
    assert "the cluster knows no NodePools yet: install their definitions" in capsys.readouterr().err


def test_pods_have_the_priority_of_their_class(write: Any) -> None:
    ranks = "apiVersion: scheduling.k8s.io/v1\nkind: PriorityClass\nmetadata: {name: %s}\nvalue: %d\nglobalDefault: %s"
    pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: %s}\nspec: {priorityClassName: %s, containers: []}"
    file = write(
        "m.yaml", ranks % ("high", 1000, "false"), ranks % ("usual", 5, "true"), pod % ("a", "high"),
        pod % ("b", '""'), pod % ("c", "system-node-critical"),
    )  # fmt: skip
    snapshot = decode_snapshot(sources.read_documents([file]))
    assert {pod.metadata.name: pod.priority for pod in snapshot.pods} == {"a": 1000, "b": 5, "c": 2_000_001_000}
