"""What EC2NodeClasses among the manifests of ``spotwright plan`` change, and what is assumed and said of them."""

from pathlib import Path
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
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      - {key: node.kubernetes.io/instance-type, operator: In, values: [m6id.large]}
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
PODS = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 10
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: web, image: web, resources: {requests: {cpu: 10m, memory: 10Mi}}}]}
"""
LARGE_DISK = "  blockDeviceMappings: [{deviceName: /dev/xvda, ebs: {volumeSize: 500Gi}}]\n"
SUBNETS = "subnets are not known without the account, assumed in us-east-1a, us-east-1b, us-east-1c"


def test_a_node_takes_as_many_pods_as_its_class_says(planned: Any) -> None:
    plan = planned(POOL, CLASS + "  kubelet: {maxPods: 3}\n", PODS)
    assert sorted(len(node["pods"]) for node in plan["newNodes"]) == [1, 3, 3, 3]


@pytest.mark.parametrize(
    ("field", "amount", "nodes"),
    [("", "17Gi", 10), (LARGE_DISK, "40Gi", 1), ("  instanceStorePolicy: RAID0\n", "40Gi", 5)],
)
def test_pods_have_the_disk_of_the_class(planned: Any, field: str, amount: str, nodes: int) -> None:
    pods = PODS.replace("memory: 10Mi", f"ephemeral-storage: {amount}")
    assert len(planned(POOL, CLASS + field, pods)["newNodes"]) == nodes


def test_each_nodepool_has_the_types_of_its_own_class(planned: Any) -> None:
    small = CLASS.replace("name: default", "name: small") + "  kubelet: {maxPods: 2}\n"
    of_small = POOL.replace("name: default", "name: small")
    heavier = of_small.replace("spec:\n  template", "spec:\n  weight: 10\n  template", 1)
    plan = planned(POOL, heavier, CLASS, small, PODS)
    assert {(node["nodePool"], len(node["pods"])) for node in plan["newNodes"]} == {("small", 2)}
    assert [line for line in plan["assumptions"] if "subnets" in line] == [f"EC2NodeClass default, small: {SUBNETS}"]


def test_a_class_that_is_missing_is_assumed_and_said(planned: Any) -> None:
    plan = planned(POOL, PODS)
    _, assumption, _ = plan["assumptions"]
    assert assumption.startswith(
        "EC2NodeClass default is missing: assumed AL2023, a 20Gi volume, the kubelet's defaults"
    )
    assert plan["notes"] == []


@pytest.mark.parametrize(("name", "hint"), [("defualt", "did you mean default?"), ("gpu", "there is default")])
def test_a_nodepool_whose_class_is_missing_beside_others_makes_no_nodes(planned: Any, name: str, hint: str) -> None:
    pool = POOL.replace("EC2NodeClass, name: default", f"EC2NodeClass, name: {name}")
    plan = planned(pool, CLASS, PODS)
    reason = f"EC2NodeClass {name}: it is not among these objects; {hint}"
    assert plan["notes"] == [f"NodePool default makes no nodes: {reason}"]
    assert {tuple(pod["reasons"]) for pod in plan["unschedulable"]} == {(f"NodePool default: {reason}",)}
    assert not plan["newNodes"]


def test_a_nodepool_whose_class_is_missing_does_not_keep_others_from_nodes(planned: Any) -> None:
    other = POOL.replace("name: default}\nspec", "name: other}\nspec").replace(
        "EC2NodeClass, name: default", "EC2NodeClass, name: gpu"
    )
    assert {node["nodePool"] for node in planned(POOL, other, CLASS, PODS)["newNodes"]} == {"default"}


def test_an_invalid_class_makes_no_nodes(planned: Any) -> None:
    nodeclass = CLASS.replace("al2023", "bottlerocket") + "  userData: 'settings = '\n"
    (reason,) = planned(POOL, nodeclass, PODS)["unschedulable"][0]["reasons"]
    assert "EC2NodeClass default is not Ready: spec.userData: " in reason


@pytest.mark.parametrize(
    ("tag", "zones"),
    [("b", ["us-east-1a", "us-east-1b", "us-east-1c"]), ("private-us-east-1b", ["us-east-1b"])],
)
def test_nodes_start_where_the_tags_of_subnets_say(planned: Any, tag: str, zones: list[str]) -> None:
    (node,) = planned(POOL, CLASS.replace("{a: b}", f"{{Name: {tag}}}"), PODS)["newNodes"]
    assert node["zones"] == zones


def test_the_status_of_a_class_says_more_than_is_assumed(planned: Any) -> None:
    status = "status: {subnets: [{id: subnet-1, zone: us-east-1f, zoneID: use1-az9}]}\n"
    plan = planned(POOL.replace("m6id.large", "m5.large"), CLASS + status, PODS)
    (node,) = plan["newNodes"]
    assert node["zones"] == ["us-east-1f"]
    assert not [line for line in plan["assumptions"] if "EC2NodeClass" in line]


@pytest.mark.parametrize(
    ("terms", "family", "architectures"),
    [
        ("{id: ami-1}", "AL2023", {"amd64"}),
        ("{id: ami-1}, {id: ami-2}", "AL2023", {"amd64", "arm64"}),
        ("{name: my-arm64-image}", "AL2023", {"arm64"}),
        ("{tags: {team: a}}", "Custom", {"amd64", "arm64"}),
        ("{alias: bottlerocket@latest}", "Bottlerocket", {"amd64", "arm64"}),
    ],
)
def test_images_run_on_what_their_selector_lets_assume(
    planned: Any, terms: str, family: str, architectures: set[str]
) -> None:
    arm = PODS.replace("name: web", "name: arm").replace("replicas: 10", "replicas: 1")
    arm = arm.replace("{containers:", "{nodeSelector: {kubernetes.io/arch: arm64}, containers:")
    amd = arm.replace("arm64", "amd64").replace("name: arm", "name: amd")
    nodeclass = CLASS.replace("{alias: al2023@latest}", terms) + f"  amiFamily: {family}\n"
    plan = planned(POOL.replace("m6id.large", "m6i.large, m6g.large"), nodeclass, arm, amd)
    placed = {node["instanceTypes"][0] for node in plan["newNodes"]}
    assert placed == {{"amd64": "m6i.large", "arm64": "m6g.large"}[name] for name in architectures}


def test_what_only_the_account_knows_is_said(planned: Any) -> None:
    fields = "  capacityReservationSelectorTerms: [{tags: {a: b}}]\n  placementGroupSelector: {name: spread}\n"
    _, *notes, _ = planned(POOL, CLASS + fields, PODS)["assumptions"]
    assert [note.partition(": ")[2].split()[0] for note in notes] == ["subnets", "what", "its"]
    assert "assumed that no instance is left in a reservation" in notes[1]


@pytest.mark.parametrize(
    ("alias", "build"),
    [("windows2019", "10.0.17763"), ("windows2022", "10.0.20348"), ("windows2025", "10.0.26100")],
)
def test_windows_pods_start_from_windows_images(planned: Any, alias: str, build: str) -> None:
    pool = POOL.replace(
        "requirements:", "requirements:\n      - {key: kubernetes.io/os, operator: In, values: [windows]}"
    )
    selector = f"{{kubernetes.io/os: windows, node.kubernetes.io/windows-build: {build}}}"
    pods = PODS.replace("{containers:", f"{{nodeSelector: {selector}, containers:")
    assert len(planned(pool, CLASS.replace("al2023", alias), pods)["newNodes"]) == 1
    assert (
        len(
            planned(
                pool.replace(
                    "windows]}",
                    f"windows]}}\n      - {{key: node.kubernetes.io/windows-build, operator: In, values: ['{build}']}}",
                ),
                pods,
            )["newNodes"]
        )
        == 1
    )


def test_a_catalog_file_holds_for_every_class(planned: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["catalog", "--output", "json"]) == 0
    file = tmp_path / "catalog.json"
    file.write_text(capsys.readouterr().out)
    plan = planned(POOL, CLASS + "  kubelet: {maxPods: 3}\n", PODS, options=("--catalog", str(file)))
    assert len(plan["newNodes"]) == 1
    assert [
        line for line in plan["assumptions"] if line.startswith("EC2NodeClass default: instance types are those of")
    ]


@pytest.mark.parametrize(("alias", "said"), [("al2", "1.32 or older"), ("windows2025", "1.35 or newer")])
def test_a_version_that_has_images_is_assumed(planned: Any, alias: str, said: str) -> None:
    assumptions = planned(POOL, CLASS.replace("al2023", alias), PODS)["assumptions"]
    assert any(f"EC2NodeClass default: the cluster's version is assumed to be {said}" in line for line in assumptions)


def test_requirements_of_images_in_a_status_that_mean_nothing_are_said(planned: Any) -> None:
    requirements = "[{key: kubernetes.io/arch, operator: In, values: []}]"
    status = f"status: {{amis: [{{id: ami-1, requirements: {requirements}}}]}}\n"
    (reason,) = planned(POOL, CLASS + status, PODS)["unschedulable"][0]["reasons"]
    assert "EC2NodeClass default is not Ready: status.amis.requirements: kubernetes.io/arch In: needs" in reason


def test_a_status_that_cannot_be_read_is_said_in_plain_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(CLASS + "status: {subnets: [{}]}\n")
    assert main(["plan", str(file)]) == 2
    assert "EC2NodeClass default: it is malformed: field id is missing" in capsys.readouterr().err
