"""``spotwright catalog``, as people and programs call it."""

import json
from collections.abc import Callable
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


def names(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[str]:
    """The types of the table, in its order."""
    assert main(["catalog", *arguments]) == 0
    return [line.split()[0] for line in capsys.readouterr().out.splitlines()[3:]]


def test_types_are_chosen_by_name_with_wildcards_and_go_from_small_to_large(capsys: pytest.CaptureFixture[str]) -> None:
    assert names(capsys, "m5.*")[:4] == ["m5.large", "m5.xlarge", "m5.2xlarge", "m5.4xlarge"]
    assert set(names(capsys, "m5.large", "c5.large")) == {"m5.large", "c5.large"}


@pytest.mark.parametrize(
    ("arguments", "holds"),
    [
        (["--arch", "arm64"], lambda entry: label(entry, "kubernetes.io/arch") == "arm64"),
        (["--family", "m5,c5"], lambda entry: entry["name"].partition(".")[0] in ("m5", "c5")),
        (["--min-cpu", "8", "--max-cpu", "16"], lambda entry: 8 <= int(label(entry, "instance-cpu")) <= 16),
        (["--max-memory", "8Gi"], lambda entry: int(label(entry, "instance-memory")) <= 8192),
        (["-l", "instance-gpu-count>0"], lambda entry: int(label(entry, "instance-gpu-count") or 0) > 0),
        (["-l", "!instance-gpu-count"], lambda entry: not label(entry, "instance-gpu-count")),
        (
            ["-l", "instance-category in (c, m),instance-generation>=7"],
            lambda entry: entry["name"][0] in "cm" and int(label(entry, "instance-generation")) >= 7,
        ),
        (["-l", "karpenter.k8s.aws/instance-family!=m5"], lambda entry: not entry["name"].startswith("m5.")),
    ],
)
def test_types_are_chosen_by_what_they_are(
    capsys: pytest.CaptureFixture[str], arguments: list[str], holds: Callable[[Any], bool]
) -> None:
    everything, chosen = listed(capsys), listed(capsys, *arguments)
    assert set(chosen) == {name for name, entry in everything.items() if holds(entry)}
    assert 0 < len(chosen) < len(everything)


def label(entry: Any, name: str) -> str:
    """The value of a label, named with or without its prefix; "" without one."""
    stated = (item for item in entry["requirements"] if item["key"].endswith(name) and item.get("values"))
    return next((str(item["values"][0]) for item in stated), "")


def test_zone_and_capacity_type_choose_offerings(capsys: pytest.CaptureFixture[str]) -> None:
    for entry in listed(capsys, "--zone", "us-east-1b", "--capacity-type", "spot").values():
        for offering in entry["offerings"]:
            assert offering["requirements"]["topology.kubernetes.io/zone"] == "us-east-1b"
            assert offering["requirements"]["karpenter.sh/capacity-type"] == "spot"


@pytest.mark.parametrize(("order", "column"), [("price", 4), ("spot", 5)])
def test_the_table_is_sorted_by_price(capsys: pytest.CaptureFixture[str], order: str, column: int) -> None:
    assert main(["catalog", "m7*", "--sort", order]) == 0
    prices = [line.split()[column] for line in capsys.readouterr().out.splitlines()[3:]]
    assert [float(price) for price in prices] == sorted(float(price) for price in prices)


def test_further_columns_are_labels(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", "g4dn.xlarge", "-o", "wide", "-L", "instance-hypervisor"]) == 0
    heading, line = capsys.readouterr().out.splitlines()[2:]
    assert heading.split()[-6:] == ["ARCH", "GENERATION", "GPU", "GPUS", "NETWORK", "INSTANCE-HYPERVISOR"]
    assert line.split()[-6:] == ["amd64", "4", "t4", "1", "5000", "nitro"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["m5.lareg"], "there is no instance type m5.lareg; did you mean m5.large?"),
        (
            ["m7x"],
            "there is no instance type m7x in us-east-1; --region names another region, --live asks EC2",
        ),
        (["--arch", "arm46"], "there is no architecture arm46; did you mean arm64?"),
        (["--zone", "mars-1a"], "there is no zone mars-1a; known: us-east-1a, us-east-1b"),
        (
            ["-l", "instance-cp>1"],
            "-l instance-cp: no instance type has a label instance-cp; did you mean instance-cpu?",
        ),
        (["-l", "a b"], "a b is no requirement: expected key=value"),
        (["-l", "instance-cpu>x"], "instance-cpu Gt [x]: needs exactly one integer"),
        (["--min-memory", "much"], "--min-memory: 'much' is not a Kubernetes quantity"),
        (["--min-cpu", "-3"], "--min-cpu -3: an amount is 0 or more"),
        (
            ["--min-memory", "8Gi", "--max-memory", "4Gi"],
            "--min-memory 8Gi is above --max-memory 4Gi: nothing lies between them",
        ),
        (["-L", "nothing"], "-L nothing: no instance type has a label nothing"),
    ],
)
def test_what_no_type_has_is_said(capsys: pytest.CaptureFixture[str], arguments: list[str], words: str) -> None:
    assert words in refused(capsys, *arguments)
