"""``spotwright convert``, as people and pipes call it, and the commands that read what it would write."""

import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from spotwright.cli import main

EXAMPLE = Path(__file__).parents[2] / "examples" / "provisioner-v1alpha5.yaml"
PROVISIONER = EXAMPLE.read_text(encoding="utf-8")
TEMPLATE = """
apiVersion: karpenter.k8s.aws/v1alpha1
kind: AWSNodeTemplate
metadata: {name: c}
spec: {subnetSelector: {a: b}, securityGroupSelector: {a: b}}
"""


def converted(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[list[Any], str]:
    """The documents on stdout, and what stands on stderr."""
    assert main(["convert", *arguments]) == code
    out, errors = capsys.readouterr()
    return list(yaml.safe_load_all(out)), errors


def test_a_published_provisioner_becomes_a_pool_and_a_class(capsys: pytest.CaptureFixture[str]) -> None:
    (pool, nodeclass), errors = converted(capsys, str(EXAMPLE))
    assert (pool["apiVersion"], pool["kind"]) == ("karpenter.sh/v1", "NodePool")
    assert nodeclass["spec"]["instanceProfile"] == "eks-karpenter-ng-profile"
    assert nodeclass["spec"]["kubelet"] == {"clusterDNS": ["172.20.0.10"]}
    first, *remarks = errors.splitlines()
    assert first == f"{EXAMPLE}: Provisioner default → NodePool default, EC2NodeClass default"
    assert any(remark.startswith("  note   spec.requirements: written out") for remark in remarks)


def test_stdin_and_folders_are_read_together(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "template.json").write_text(json.dumps(yaml.safe_load(TEMPLATE)))
    monkeypatch.setattr("sys.stdin", io.StringIO(PROVISIONER))
    objects, errors = converted(capsys, "-", str(tmp_path), code=1)
    assert [obj["kind"] for obj in objects] == ["NodePool", "EC2NodeClass", "EC2NodeClass"]
    assert "stdin: Provisioner default" in errors
    assert "template.json: AWSNodeTemplate c → EC2NodeClass c\n" in errors
    assert "  to do  spec.instanceProfile: is not set" in errors


def test_lists_as_kubectl_and_the_api_write_them_are_read(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    old = yaml.safe_load(PROVISIONER)
    bare = {key: old[key] for key in ("metadata", "spec")}
    typed = {"apiVersion": "karpenter.sh/v1alpha5", "kind": "ProvisionerList", "items": [bare]}
    for listed in ({"apiVersion": "v1", "kind": "List", "items": [old]}, typed):
        file = tmp_path / "list.json"
        file.write_text(json.dumps(listed))
        objects, _ = converted(capsys, str(file))
        assert [obj["kind"] for obj in objects] == ["NodePool", "EC2NodeClass"]


VALUES = {
    "number": 1, "exponent": "1e3", "octal": "0o7", "plain": "010", "letter": "y", "word": "on", "null": "null",
    "empty": "", "time": "2026-01-01", "lines": "a\nb\n", "ends": "a \nb", "colon": "a: b", "unicode": "é",
    "hex": "0x1F", "y": "n", "base60": "1:30", "tilde": "~", "inf": ".inf", "underscore": "1_000",
    "tab": "a\tb", "bytes": "0b1",
}  # fmt: skip


def test_other_objects_keep_every_value_and_its_kind(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """kubectl reads YAML with other rules than PyYAML: what it might take for something else is quoted."""
    old = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "m"},
        "data": VALUES,
        "list": [None, 1.5, True],
    }
    file = tmp_path / "m.json"
    file.write_text(json.dumps(old))
    assert main(["convert", str(file)]) == 0
    out, errors = capsys.readouterr()
    assert yaml.safe_load(out) == old
    assert errors == ""
    for line in ('exponent: "1e3"', 'octal: "0o7"', 'letter: "y"', '"y": "n"', "lines: |"):
        assert f"  {line}\n" in out


def test_what_cannot_be_converted_is_named_and_nothing_is_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "old.yaml"
    file.write_text(f"{TEMPLATE}---\n{PROVISIONER.replace('ttlSecondsAfterEmpty: 30', 'ttlSecondsAfterEmpty: 30s')}")
    assert main(["convert", str(file)]) == 2
    out, errors = capsys.readouterr()
    assert out == ""
    message = "Provisioner default: spec.ttlSecondsAfterEmpty: '30s' is not a whole number"
    line = (TEMPLATE + PROVISIONER).split("ttlSecondsAfterEmpty")[0].count("\n") + 2
    assert errors == f"spotwright convert: {file}:{line} (document 2): {message}\n"


def test_every_object_that_cannot_be_converted_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "old.yaml"
    broken = PROVISIONER.replace("ttlSecondsAfterEmpty: 30", "ttlSecondsAfterEmpty: 30s")
    file.write_text(f"{broken}---\n{broken.replace('name: default', 'name: other', 1)}")
    assert main(["plan", str(file)]) == 2
    errors = capsys.readouterr().err.splitlines()
    assert [("default" in line, "other" in line) for line in errors] == [(True, False), (False, True)]


def test_a_key_that_is_there_twice_is_named_and_nothing_is_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "old.yaml"
    file.write_text(PROVISIONER.replace("spec:", "spec:\n  weight: 1\n  weight: 2", 1))
    assert main(["convert", str(file)]) == 2
    out, errors = capsys.readouterr()
    assert out == ""
    assert "Provisioner default: spec.weight: this key is there twice" in errors


BETA = """
apiVersion: karpenter.sh/v1beta1
kind: NodePool
metadata: {name: default}
spec: {template: {spec: {requirements: [], nodeClassRef: {name: default}}}}
"""


def test_a_pool_of_v1beta1_is_read_as_v1(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "beta.yaml"
    file.write_text(BETA)
    assert main(["plan", str(file)]) == 0
    assert "  NodePool default: v1beta1, read as v1; see spotwright convert\n" in capsys.readouterr().out


PODS = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: inflate}
spec:
  replicas: 2
  selector: {matchLabels: {app: inflate}}
  template:
    metadata: {labels: {app: inflate}}
    spec:
      nodeSelector: {OLD: a}
      tolerations: [{key: dedicated, operator: Exists}]
      containers: [{name: app, image: app, resources: {requests: {cpu: 1}}}]
"""


def notes_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[dict[str, Any], list[str]]:
    assert main(["plan", "--output", "json", *arguments]) == 0
    plan = json.loads(capsys.readouterr().out)
    return plan, plan["notes"]


def test_a_plan_reads_provisioners_and_says_as_what(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file, pods = tmp_path / "old.yaml", PODS.replace("OLD: a", "team: platform")
    file.write_text(f"{PROVISIONER.replace('ap-northeast-2', 'us-east-1')}---{pods}")
    plan, notes = notes_of(capsys, str(file))
    assert [(node["nodePool"], len(node["pods"])) for node in plan["newNodes"]] == [("default", 1)] * 2
    read_as = "NodePool default, EC2NodeClass default; see spotwright convert"
    assert f"Provisioner default: v1alpha5, read as {read_as}" in notes


def test_a_plan_says_what_is_lost_and_which_pods_ask_for_old_names(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "old.yaml"
    text = PROVISIONER.replace("  limits:", "  limit: 1\n  limits:")
    file.write_text(text + "---" + PODS.replace("OLD", "karpenter.sh/provisioner-name"))
    _, notes = notes_of(capsys, str(file))
    text = "\n".join(notes)
    assert "spec.limit: karpenter.sh/v1alpha5 Provisioner has no such field; did you mean limits?" in text
    assert "Deployment inflate: spec.template.spec.nodeSelector: karpenter.sh/provisioner-name" in text


def test_a_plan_reads_v1beta1_as_it_was_meant(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pool = {
        "apiVersion": "karpenter.sh/v1beta1", "kind": "NodePool", "metadata": {"name": "beta"},
        "spec": {
            "disruption": {"expireAfter": "24h"},
            "template": {"spec": {"nodeClassRef": {"name": "c"}, "requirements": [], "kubelet": {"maxPods": 5}}},
        },
    }  # fmt: skip
    file = tmp_path / "beta.json"
    file.write_text(json.dumps({"kind": "List", "items": [pool, yaml.safe_load(PODS.replace("OLD: a", ""))]}))
    plan, notes = notes_of(capsys, str(file))
    assert {node["nodePool"] for node in plan["newNodes"]} == {"beta"}
    assert not any("unknown field" in note for note in notes)
    assert any('spec.kubelet: {"maxPods":5}' in note for note in notes)


def test_the_catalog_of_an_old_class_is_that_of_the_new_one(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "class.yaml"
    file.write_text(TEMPLATE)
    assert main(["catalog", "--nodeclass", str(file)]) == 0
    assert "m5.large" in capsys.readouterr().out


def test_conversion_is_imported_only_where_there_is_something_to_convert(tmp_path: Path) -> None:
    code = "import sys\nfrom spotwright.cli import main\nmain()\nprint(*sys.modules, file=sys.stderr)"
    (tmp_path / "new.yaml").write_text(PODS)
    (tmp_path / "old.yaml").write_text(PROVISIONER)
    imported = {}
    for name in ("new", "old"):
        command = [sys.executable, "-c", code, "plan", str(tmp_path / f"{name}.yaml")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
        imported[name] = "spotwright.conversion.convert" in done.stderr.split()
    assert imported == {"new": False, "old": True}
