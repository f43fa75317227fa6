"""``spotwright plan --consolidate --drift``: which nodes would go, what that saves, and why the others stay."""

import json
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
  disruption: {consolidateAfter: 0s, budgets: [{nodes: 100%}]}
  template:
    spec:
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large, m5.4xlarge]}
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
"""


def machine(name: str, instance_type: str, *, drifted: bool = False) -> str:
    """A Node and its NodeClaim, both Ready for long."""
    labels = {
        "karpenter.sh/nodepool": "default", "karpenter.sh/capacity-type": "on-demand",
        "karpenter.sh/registered": "true", "karpenter.sh/initialized": "true",
        "node.kubernetes.io/instance-type": instance_type, "topology.kubernetes.io/zone": "us-east-1a",
        "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux",
    }  # fmt: skip
    cores = {"m5.large": 2, "m5.4xlarge": 16}[instance_type]
    size = {"cpu": str(cores), "memory": f"{4 * cores}Gi", "pods": "58"}
    provider = f"aws:///us-east-1a/i-{name:0>17}"
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": kind, "message": ""}
        for kind in ("Launched", "Registered", "Initialized", "Ready", *(["Drifted"] if drifted else []))
    ]
    about = {"labels": labels, "creationTimestamp": "2026-01-01T00:00:00Z"}
    claim = {
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": about | {"name": f"default-{name}", "uid": name},
        "spec": {
            "requirements": [],
            "expireAfter": "Never",
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
        },
        "status": {
            "providerID": provider, "nodeName": f"node-{name}", "capacity": size, "allocatable": size,
            "conditions": conditions,
        },
    }  # fmt: skip
    node = {
        "apiVersion": "v1", "kind": "Node", "metadata": about | {"name": f"node-{name}"},
        "spec": {"providerID": provider},
        "status": {"capacity": size, "allocatable": size, "conditions": [{"type": "Ready", "status": "True"}]},
    }  # fmt: skip
    return yaml.safe_dump_all([claim, node])


def pod(name: str, node: str, cpu: str = "900m") -> str:
    container = {"name": "c", "image": "i", "resources": {"requests": {"cpu": cpu, "memory": "256Mi"}}}
    return yaml.safe_dump(
        {
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default"},
            "spec": {"nodeName": f"node-{node}", "containers": [container]},
            "status": {"phase": "Running"},
        }
    )  # fmt: skip


def told(tmp_path: Path, capsys: pytest.CaptureFixture[str], *documents: str, options: tuple[str, ...]) -> str:
    file = tmp_path / "cluster.yaml"
    file.write_text("\n---\n".join(documents))
    assert main(["plan", str(file), *options]) == 0
    return capsys.readouterr().out


LARGE = (POOL, machine("a", "m5.4xlarge"), pod("p", "a"))


def test_the_text_says_what_goes_what_comes_and_what_it_saves(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    text = told(tmp_path, capsys, *LARGE, options=("--consolidate",))
    assert text.splitlines() == [
        "1 node would go, 1 new node would come: $490.56 a month less, 1 eviction.",
        "",
        "Moves",
        "  Underutilized: node-a → on-demand m5.large at $0.0960/h",
        "    $490.56 a month less ($0.7680/h → $0.0960/h), 1 eviction, $490.56 a month for each",
    ]


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_programs_read_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str], output: str) -> None:
    text = told(tmp_path, capsys, *LARGE, options=("--consolidate", "-o", output))
    document: dict[str, Any] = json.loads(text) if output == "json" else yaml.safe_load(text)
    assert document["summary"] == {
        "nodesGoing": 1, "newNodes": 1, "evictions": 1, "savingPerMonth": 490.56, "nodesNeededFirst": 0,
    }  # fmt: skip
    (move,) = document["moves"]
    assert (move["reason"], move["nodeClaims"], move["nodes"]) == ("Underutilized", ["default-a"], ["node-a"])
    (new,) = move["newNodes"]
    assert (new["instanceTypes"], new["pods"]) == (["m5.large"], ["default/p"])
    assert (document["rollouts"], document["staying"]) == ([], [])


def test_few_evictions_take_the_node_that_saves_most_for_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    crowded = [machine("b", "m5.4xlarge"), *(pod(f"q{number}", "b", "100m") for number in range(3))]
    text = told(tmp_path, capsys, *LARGE, *crowded, options=("--consolidate", "--evictions", "1"))
    assert text.splitlines()[0].endswith(" a month less, 1 eviction.")
    assert "  Underutilized: node-a → deleted" in text.splitlines()
    assert "  default-b: no more than 1 eviction may be made for the sake of price" in text.splitlines()


def test_a_node_with_too_many_pods_takes_no_part_of_the_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machines = [machine("a", "m5.large"), pod("p", "a"), machine("b", "m5.4xlarge")]
    machines += [pod(f"q{number}", "b", "100m") for number in range(2)]
    pool = POOL.replace("100%", '"1"')
    text = told(tmp_path, capsys, pool, *machines, options=("--consolidate", "--evictions", "1"))
    assert "  Underutilized: node-a → deleted" in text.splitlines()
    assert "  default-b: no more than 1 eviction may be made for the sake of price" in text.splitlines()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--consolidate", "--evictions=-1"), "-1 is not a whole number of pods, such as 50"),
        (("--consolidate", "--evictions", "many"), "many is not a whole number of pods, such as 50"),
        (("--drift", "--evictions", "5"), "--evictions 5: only with --consolidate"),
    ],
)
def test_a_wrong_number_of_evictions_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], message: str
) -> None:
    file = tmp_path / "cluster.yaml"
    file.write_text(POOL)
    try:
        code: object = main(["plan", str(file), *options])
    except SystemExit as exit:
        code = exit.code
    assert code == 2
    assert message in capsys.readouterr().err


def test_drift_alone_leaves_what_is_merely_too_large(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    drifted = (machine("b", "m5.large", drifted=True), pod("q", "b", "1500m"))
    text = told(tmp_path, capsys, *LARGE, *drifted, options=("--drift",))
    # The pod of the drifted node finds room on the large one.
    assert "  Drifted: node-b → deleted" in text.splitlines()
    assert "node-a" not in text


def test_a_drifted_node_of_a_static_pool_is_replaced_one_for_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    static = POOL.replace("spec:\n  disruption", "spec:\n  replicas: 2\n  disruption", 1)
    machines = [machine(name, "m5.large", drifted=True) for name in ("a", "b")]
    options = ("--drift", "--feature-gates", "StaticCapacity=true")
    text = told(tmp_path, capsys, static, *machines, pod("p", "a"), options=options)
    assert [line for line in text.splitlines() if "Drifted" in line] == [
        "  Drifted: node-a → on-demand m5.large at $0.0960/h",
        "  Drifted: node-b → on-demand m5.large at $0.0960/h",
    ]
    canary = "  NodePool default: 0 of 2 nodes replaced; a single node goes first, as the canary"
    assert text.splitlines()[-2:] == ["Roll-outs", canary]


def test_a_node_that_stays_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keeping = POOL.replace("consolidateAfter: 0s", "consolidateAfter: 0s, consolidationPolicy: WhenEmpty")
    text = told(tmp_path, capsys, keeping, *LARGE[1:], options=("--consolidate",))
    assert text.splitlines() == [
        "No node would go.",
        "",
        "Nodes that stay",
        '  default-a: NodePool "default" has non-empty consolidation disabled',
    ]


def test_an_empty_node_goes_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = told(tmp_path, capsys, POOL, machine("e", "m5.large"), options=("--consolidate",))
    assert "  Empty: node-e → deleted" in text.splitlines()
    assert "$70.08 a month less ($0.0960/h → $0.0000/h), no evictions" in text


def test_nothing_goes_while_pods_need_nodes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    waiting = (
        pod("w", "a", "12")
        .replace("nodeName: node-a", "schedulerName: default-scheduler")
        .replace("phase: Running", "phase: Pending")
    )
    several = [waiting.replace("name: w", f"name: w{number}") for number in range(2)]
    text = told(tmp_path, capsys, *LARGE, *several, options=("--consolidate",))
    assert text.startswith("Nothing is disrupted: 1 new node must come for pending pods first.")
