"""What `spotwright convert` writes is what the API server takes, strictly."""

import json
import string
from pathlib import Path
from typing import Any

import pytest
import yaml

from spotwright.cli import main
from tests.manifests.cluster import Cluster

TESTS = Path(__file__).parents[1]
EXAMPLE = TESTS.parent / "examples" / "provisioner-v1alpha5.yaml"
# Every field that there was; what is left to fill in there.
EVERY_FIELD = TESTS / "property" / "before_v1.yaml"
VALUES = {
    "KARPENTER_NODE_ROLE": "nodes", "SECURITY_GROUP_NAME": "group", "AMI_NAME": "image", "KUBERNETES_VERSION": "1.29",
}  # fmt: skip


def converted(capsys: pytest.CaptureFixture[str], path: Path) -> str:
    main(["convert", str(path)])
    return string.Template(capsys.readouterr().out).substitute(VALUES)


def test_the_published_provisioner_applies_once_it_is_converted(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    text = converted(capsys, EXAMPLE)
    applied = cluster.kubectl("apply", "-f", "-", text=text)
    assert (applied.returncode, applied.stderr) == (0, "")
    assert "nodepool.karpenter.sh/default created" in applied.stdout
    assert "ec2nodeclass.karpenter.k8s.aws/default created" in applied.stdout
    cluster.kubectl("delete", "--wait=false", "-f", "-", text=text)


def listed(path: Path, folder: Path) -> Path:
    """A file of one list as one of documents."""
    documents = folder / "old.yaml"
    documents.write_text("\n---\n".join(json.dumps(content) for content in yaml.safe_load(path.read_text())))
    return documents


def test_every_field_there_was_is_taken_where_it_went(
    cluster: Cluster, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = converted(capsys, listed(EVERY_FIELD, tmp_path))
    applied = cluster.kubectl("apply", "--dry-run=server", "--validate=strict", "-o", "yaml", "-f", "-", text=text)
    assert (applied.returncode, applied.stderr) == (0, "")
    wanted: list[dict[str, Any]] = list(yaml.safe_load_all(text))
    stored = {
        (yaml_object["kind"], yaml_object["metadata"]["name"]): yaml_object["spec"]
        for yaml_object in yaml.safe_load(applied.stdout)["items"]
    }
    for field in wanted:
        assert _within(field["spec"], stored[field["kind"], field["metadata"]["name"]])


def _within(wanted: Any, stored: Any) -> bool:
    """Whether everything that was written is stored; defaults may have come to it."""
    if isinstance(wanted, dict):
        return all(key in stored and _within(value, stored[key]) for key, value in wanted.items())
    if isinstance(wanted, list):
        return len(wanted) == len(stored) and all(map(_within, wanted, stored))
    return bool(wanted == stored)


FAMILIES = ("AL2", "Bottlerocket", "Ubuntu", "Windows2019", "Windows2022", "Custom", "AL2023")


@pytest.mark.parametrize("selector", [None, {"aws::ids": "ami-1,ami-2"}, {"aws::name": "a,b", "aws::owners": "self"}])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_applies(
    cluster: Cluster,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    family: str,
    selector: dict[str, str] | None,
) -> None:
    if family == "AL2023":
        spec: dict[str, Any] = {"role": "r", "subnetSelectorTerms": [{"id": "subnet-1"}]}
        spec |= {"securityGroupSelectorTerms": [{"id": "sg-1"}], "amiFamily": family}
        spec |= {"amiSelectorTerms": [{"name": "a"}]} if selector else {}
        old = {
            "apiVersion": "karpenter.k8s.aws/v1beta1",
            "kind": "EC2NodeClass",
            "metadata": {"name": "c"},
            "spec": spec,
        }
    else:
        spec = {"subnetSelector": {"a": "*"}, "securityGroupSelector": {"a": "b,c"}, "amiFamily": family}
        spec |= {"amiSelector": selector or {"team": "a"}} if selector or family == "Custom" else {}
        version = "karpenter.k8s.aws/v1alpha1"
        old = {"apiVersion": version, "kind": "AWSNodeTemplate", "metadata": {"name": "c"}, "spec": spec}
    file = tmp_path / "old.yaml"
    file.write_text(yaml.safe_dump(old))
    applied = cluster.kubectl("apply", "--dry-run=server", "-f", "-", text=converted(capsys, file))
    assert (applied.returncode, applied.stderr) == (0, "")
