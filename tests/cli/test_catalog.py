"""``spotwright catalog``, as people and programs call it."""

import json
from pathlib import Path
from typing import Any

import pytest

from spotwright.cli import main
from spotwright.cli.inputs.builtin_catalog import load_builtin_catalog
from spotwright.cli.inputs.catalog_file import read_catalog_file
from spotwright.model import labels

CLASS = """
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata: {name: small}
spec:
  amiSelectorTerms: [{alias: %s}]
  role: node
  subnetSelectorTerms: [{tags: {a: b}}]
  securityGroupSelectorTerms: [{tags: {a: b}}]
  kubelet: {maxPods: 20}
"""


def listed(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    """The catalog by type name."""
    assert main(["catalog", "--output", "json", *arguments]) == 0
    return {
        instance_type["name"]: instance_type for instance_type in json.loads(capsys.readouterr().out)["instanceTypes"]
    }


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["catalog", *arguments]) == 2
    return capsys.readouterr().err


def test_what_is_printed_is_a_catalog_that_plan_reads(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["catalog", "--output", "json"]) == 0
    file = tmp_path / "catalog.json"
    file.write_text(capsys.readouterr().out)
    read = {instance_type.name: instance_type for instance_type in read_catalog_file(str(file)).instance_types("")}
    for instance_type in load_builtin_catalog().instance_types(""):
        again = read[instance_type.name]
        assert (again.capacity, again.allocatable) == (instance_type.capacity, instance_type.allocatable)
        # A catalog lists all zones of the region; a plan assumes subnets in three.
        assert all(offering in again.offerings for offering in instance_type.offerings)
        requirements = instance_type.requirements.by_key | {labels.ZONE: again.requirements.get(labels.ZONE)}
        assert again.requirements.by_key == requirements


def test_a_type_that_is_not_sold_is_listed_without_offerings(capsys: pytest.CaptureFixture[str]) -> None:
    types = listed(capsys)
    assert types["g4ad.16xlarge"]["offerings"] == []
    assert types["g4ad.16xlarge"]["capacity"]["amd.com/gpu"] == "4"
    assert not any(offering["available"] for offering in types["a1.large"]["offerings"])


def test_a_class_from_a_manifest_changes_what_pods_can_have(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "class.yaml"
    file.write_text(CLASS % "bottlerocket@latest")
    instance_type = listed(capsys, "--nodeclass", str(file), "--setting", "VM_MEMORY_OVERHEAD_PERCENT=0")["m5.xlarge"]
    assert (instance_type["capacity"]["pods"], instance_type["capacity"]["memory"]) == ("20", "16Gi")
    assert instance_type["overhead"]["kubeReserved"]["memory"] == f"{11 * 20 + 255}Mi"


def test_the_table_begins_with_what_it_is_about(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Class default (AL2023). us-east-1, built in")
    (line,) = (line for line in lines if line.startswith("m5.large "))
    assert line.split()[:5] == ["m5.large", "1930m", "6903Mi", "29", "0.0960"]


def test_input_that_means_nothing_is_said_clearly(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    file = tmp_path / "class.yaml"
    file.write_text("{apiVersion: v1, kind: Pod, metadata: {name: p}}")
    assert "expected one EC2NodeClass, found 0" in refused(capsys, "--nodeclass", str(file))
    assert "no such file" in refused(capsys, "--nodeclass", str(tmp_path / "none.yaml"))
    assert "RESERVED_ENIS: 'x' is not a number" in refused(capsys, "--setting", "RESERVED_ENIS=x")
    assert "--setting FOO=1: expected" in refused(capsys, "--setting", "FOO=1")
    file.write_text(CLASS.replace("[{alias: %s}]", "[{id: ami-1}]"))
    assert "EC2NodeClass small: spec.amiFamily: required" in refused(capsys, "--nodeclass", str(file))


def test_a_region_has_its_own_zones_and_prices(capsys: pytest.CaptureFixture[str]) -> None:
    offerings = listed(capsys, "--region", "eu-west-1")["m5.large"]["offerings"]
    on_demand = [offering for offering in offerings if offering["requirements"][labels.CAPACITY_TYPE] == "on-demand"]
    assert {offering["price"] for offering in on_demand} == {0.107}
    sold_with = [offering["requirements"] for offering in offerings]
    ids = {requirements[labels.ZONE]: requirements[labels.ZONE_ID] for requirements in sold_with}
    assert ids == {"eu-west-1a": "euw1-az3", "eu-west-1b": "euw1-az1", "eu-west-1c": "euw1-az2"}
    assert main(["catalog", "--region", "eu-west-1"]) == 0
    title = capsys.readouterr().out.splitlines()[0]
    assert "eu-west-1, built in: on-demand prices of us-east-1 of July 2026" in title


def test_a_region_that_is_not_built_in_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--region us-gov-west-1: no facts of this region are built in" in refused(
        capsys, "--region", "us-gov-west-1"
    )
    assert "--region does not go with --cluster" in refused(capsys, "--region", "eu-west-1", "--cluster", "main")
