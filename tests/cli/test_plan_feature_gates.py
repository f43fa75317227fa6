"""``spotwright plan --feature-gates``: what is off has no effect and is said, what is on counts."""

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
  template:
    spec:
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      - {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large, m6i.large]}
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
"""
CLASS = """
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: default}
spec:
  role: node
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {a: b}}]
  securityGroupSelectorTerms: [{tags: {a: b}}]
"""
OVERLAY = """
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {name: devices}
spec:
  requirements: [{key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}]
  capacity: {example.com/device: 4}
"""
POD = """
apiVersion: v1
kind: Pod
metadata: {name: p}
spec: {containers: [{name: c, image: i, resources: {requests: {cpu: 1}, limits: {example.com/device: 1}}}]}
"""


def test_an_overlay_has_no_effect_while_its_gate_is_off(planned: Any) -> None:
    plan = planned(POOL, OVERLAY, POD)
    assert plan["newNodes"] == []
    said = "NodeOverlay devices has no effect: the feature gate NodeOverlay is off; turn it on with --feature-gates"
    assert any(said in note for note in plan["notes"])
    plan = planned(POOL, OVERLAY, POD, options=("--feature-gates", "NodeOverlay=true"))
    assert len(plan["newNodes"]) == 1
    assert not any("no effect" in note for note in plan["notes"])


def test_overlays_of_one_weight_that_set_the_same_name_each_other(planned: Any) -> None:
    overlay = """
apiVersion: karpenter.sh/v1alpha1
kind: NodeOverlay
metadata: {{name: team-{0}}}
spec:
  weight: 10
  requirements: [{{key: karpenter.k8s.aws/instance-family, operator: In, values: [{1}]}}]
  price: "0.0{2}"
"""
    overlays = [overlay.format("alpha", "m5, m6i", 1), overlay.format("beta", "m5, m6i, c5", 2)]
    plan = planned(POOL, *overlays, POD, options=("--feature-gates", "NodeOverlay=true"))
    (note,) = [note for note in plan["notes"] if "same weight" in note]
    assert note.startswith(
        "NodeOverlay team-alpha is not applied (Conflict): NodeOverlay team-beta has the same weight 10 and also sets"
        " the price of m5.12xlarge (+"
    )


def test_a_resource_without_its_limit_is_planned_and_noted(planned: Any) -> None:
    pod = POD.replace("limits: {example", "requests: {cpu: 1, example").replace("requests: {cpu: 1}, ", "")
    plan = planned(POOL, OVERLAY, pod, options=("--feature-gates", "NodeOverlay=true"))
    assert len(plan["newNodes"]) == 1
    assert any("example.com/device needs a limit of the same amount" in note for note in plan["notes"])


def test_a_case_file_has_the_gates_of_its_objects_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "case.yaml"
    file.write_text(yaml.safe_dump({"objects": [yaml.safe_load(text) for text in (POOL, OVERLAY, POD)]}))
    assert main(["plan", str(file), "--output", "json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["newNodes"]) == 1


def test_expressions_of_a_class_need_their_gate(planned: Any) -> None:
    computed = CLASS + "  kubelet: {kubeReserved: {memory: 'max_pods * 100'}}\n"
    small = POD.replace(", limits: {example.com/device: 1}", "")
    assert "spec.kubelet.kubeReserved" in str(planned(POOL, computed, small)["unschedulable"])
    assert len(planned(POOL, computed, small, options=("--feature-gates", "NodeClassCEL=true"))["newNodes"]) == 1


def test_gates_that_matter_to_disruption_only_are_said(planned: Any) -> None:
    plan = planned(
        POOL,
        OVERLAY,
        POD,
        options=("--feature-gates", "NodeRepair=true,SpotToSpotConsolidation=true,NodeOverlay=true"),
    )
    assert [note for note in plan["notes"] if "feature gate" in note] == [
        f"feature gate {gate} has no effect: a plan of pods that wait disrupts no node"
        for gate in ("NodeRepair", "SpotToSpotConsolidation")
    ]


@pytest.mark.parametrize(
    ("gates", "words"),
    [
        ("NodeOverlays=true", "--feature-gates: NodeOverlays is no feature gate, did you mean NodeOverlay?"),
        ("staticcapacity=true", "did you mean StaticCapacity?"),
        ("Drift=true", "Drift is no feature gate; there are CapacityBuffer, NodeClassCEL, NodeOverlay, NodeRepair"),
        ("NodeOverlay", "feature gate NodeOverlay is true or false, found nothing: write NodeOverlay=true"),
        ("NodeOverlay=yes", "found yes"),
    ],
)
def test_a_gate_that_means_nothing_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], gates: str, words: str
) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(POD)
    assert main(["plan", str(file), "--feature-gates", gates]) == 2
    assert words in capsys.readouterr().err
