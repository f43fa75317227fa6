"""Manifests that people published, planned as they are: given this file and these pods, this plan, as text."""

import io
from pathlib import Path

import pytest

from spotwright.cli import main

EXAMPLES = Path(__file__).parent.parent.parent / "examples"
INFLATE = """
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


def planned(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, name: str, more: str = "", **replaced: str
) -> list[str]:
    """The text of a plan without its assumptions, spaces and empty lines aside."""
    text = (EXAMPLES / name).read_text(encoding="utf-8")
    for old, new in replaced.items():
        text = text.replace(old.replace("_", "-"), new)
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{text}\n---\n{more}" if more else text))
    assert main(["plan", "--validate=warn", "-"]) == 0
    said, _, assumed = capsys.readouterr().out.partition("\nAssumptions:\n")
    assert assumed.startswith("  instance types and prices: us-east-1")
    return [line.strip() for line in said.splitlines() if line.strip()]


def test_both_pods_share_one_spot_node(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert planned(capsys, monkeypatch, "spot-t3a.yaml")[:6] == [
        "2 pods: 2 placed on 1 new node, 0 pending; $0.0291/h, $21.24 a month; no plan costs less",
        "New nodes:",
        "t3a.large spot of NodePool spot, $0.0291/h, any of us-east-1a, us-east-1b, us-east-1c",
        "pods: 2 of Deployment on-spot",
        "uses: 73 % of cpu (1400m of 1930m after DaemonSets), 15 % of memory",
        "taints: spot=only:NoSchedule",
    ]


def test_five_pods_share_one_on_demand_node(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert planned(capsys, monkeypatch, "scale-up-cmr.yaml")[:3] == [
        "5 pods: 5 placed on 1 new node, 0 pending; $0.3060/h, $223 a month"
        "; no cheaper nodes exist, each counted with $0.0030/h for its volume",
        "New nodes:",
        "c6a.2xlarge on-demand of NodePool default, $0.3060/h, any of us-east-1a, us-east-1b, us-east-1c",
    ]


def test_a_limit_of_ten_cpu_holds(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    made = planned(capsys, monkeypatch, "basic-gen6.yaml", INFLATE)
    assert made[2].startswith("c6a.2xlarge on-demand of NodePool default")
    twice = planned(capsys, monkeypatch, "basic-gen6.yaml", INFLATE.replace("replicas: 5", "replicas: 10"))
    assert twice[0].startswith("10 pods: 8 placed on 2 new nodes, 2 pending; ")
    assert "Pending: 2 pods" in twice
    assert any("limit cpu 10 " in line for line in twice)


def test_a_zone_that_no_region_has_is_named_and_so_is_the_misspelt_field(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = planned(capsys, monkeypatch, "t4g-seoul.yaml", INFLATE, ap_northeast_2a="seoul")
    assert made == [
        "5 pods: 5 pending",
        "Pending: 5 pods",
        "5 of Deployment inflate",
        "NodePool default: spec.template.spec.requirements[4]: there is no zone seoul; known: us-east-1a, us-east-1b,"
        " us-east-1c",
        "Notes:",
        "NodePool default: field spec.weight is empty: give it a value or leave it out",
        "NodePool default: unknown field spec.limit, did you mean limits?",
    ]


def test_a_misspelt_field_is_refused_as_by_kubectl_apply(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["plan", str(EXAMPLES / "t4g-seoul.yaml")]) == 2
    assert capsys.readouterr().err == (
        f"spotwright plan: {EXAMPLES / 't4g-seoul.yaml'}:63 (document 2): NodePool default: spec.limit: unknown field,"
        " did you mean limits?\n"
    )


def test_in_a_known_zone_graviton_nodes_are_bought_as_spot(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    made = planned(capsys, monkeypatch, "t4g-seoul.yaml", INFLATE, ap_northeast_2a="us-east-1a")
    assert made[0].startswith("5 pods: 5 placed on 5 new nodes, 0 pending; $0.06")
    assert made[2] == "5 x t4g.medium spot of NodePool default, $0.0120/h each, $0.0600/h together, us-east-1a"


def test_a_provisioner_of_2022_is_read_as_what_it_becomes(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its pods tolerate what it taints its nodes with, and know the zone it is given here."""
    tolerant = INFLATE.replace("spec: {containers", "spec: {tolerations: [{key: dedicated, value: batch}], containers")
    zones = {"ap_northeast_2a": "us-east-1a", "ap_northeast_2b": "us-east-1b"}
    made = planned(capsys, monkeypatch, "provisioner-v1alpha5.yaml", tolerant, **zones)
    assert made[0].startswith("5 pods: 5 placed on 1 new node, 0 pending; $0.1")
    assert made[2].startswith("m5.2xlarge spot of NodePool default, $0.1")
    assert made[2].endswith("any of us-east-1a, us-east-1b")
    assert "taints: dedicated=batch:NoSchedule" in made
    assert made[made.index("Notes:") + 1 :] == [
        "Provisioner default: v1alpha5, read as NodePool default, EC2NodeClass default; see spotwright convert"
    ]
