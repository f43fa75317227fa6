"""``spotwright preflight``: which clusters, what it prints, how it ends."""

import json
from pathlib import Path
from typing import Any

import pytest

from spotwright.cli import main
from spotwright.cli.inputs import preflight_facts
from spotwright.workflows.install.preflight.facts import ClusterDescription, Facts, NotAsked, Target

SOUND = {"name": "dev", "nodeRoles": ["nodes"], "forwarderImage": "r.example.com/forwarder:1"}


@pytest.fixture(autouse=True)
def seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing but what EKS says of dev is known; of hidden EKS says nothing, the others do not exist."""

    def gather(target: Target) -> Facts:
        if target.name == "hidden":
            return Facts(NotAsked("eks:DescribeCluster is denied to you (AccessDeniedException)"))
        is_dev = target.name == "dev"
        described = ClusterDescription("ACTIVE", "1.35", "API") if is_dev else None
        quotas: Any = {"L-1216C47A": 5} if target.name == "dev" else NotAsked("nobody asked")
        return Facts(described, other_clusters=("dev",), vcpu_quotas=quotas)

    monkeypatch.setattr(preflight_facts, "gather_facts", gather)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")


@pytest.fixture
def cdk_json(tmp_path: Path) -> Any:
    def write(*clusters: Any) -> str:
        path = tmp_path / "cdk.json"
        path.write_text(json.dumps({"context": {"spotwright": {"clusters": clusters}}}))
        return str(path)

    return write


def test_a_line_for_each_check_and_the_number_of_problems(cdk_json: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["preflight", "--config", cdk_json(SOUND, {**SOUND, "name": "dve"})]) == 1
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "cluster dev in eu-west-1"
    assert lines[1].split(maxsplit=1) == ["ok", "cluster: dev in eu-west-1 is ACTIVE"]
    assert "  problem               cluster: EKS has no cluster dve in eu-west-1: did you mean dev?" in lines
    assert any(
        line.startswith("  warning               vcpu-quotas: EC2 lets the account run 5 vCPUs") for line in lines
    )
    assert lines[-1].startswith("1 problem, 1 warning, ")


def test_without_a_problem_it_ends_well(cdk_json: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = cdk_json(SOUND, {**SOUND, "name": "other"})
    assert main(["preflight", "--config", path, "--cluster", "dev", "-o", "json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(one["name"], one["region"]) for one in told["clusters"]] == [("dev", "eu-west-1")]
    assert told["problems"] == 0
    assert {"name": "version", "status": "ok", "message": "Kubernetes 1.35"} in told["clusters"][0]["checks"]


@pytest.mark.parametrize(
    ("names", "code"), [(["hidden"], 3), (["dev", "hidden"], 3), (["hidden", "nobody"], 1), (["dev"], 0)]
)
def test_a_cluster_of_which_nothing_is_known_is_no_success(
    names: list[str], code: int, cdk_json: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["preflight", "--config", cdk_json(*({**SOUND, "name": name} for name in names))]) == code
    said = capsys.readouterr().err
    assert ("hidden" in names) == ("nothing is known of cluster hidden, since EKS did not answer" in said)
    assert "hidden" not in names or "is denied to you" in said


@pytest.mark.parametrize(
    ("clusters", "said"),
    [
        ([], "clusters: got [], allowed: a list of objects"),
        ([5], "clusters[0]: got 5, allowed: an object"),
        ([{"nodeRoles": []}], "clusters[0].name: got nothing"),
        ([{**SOUND, "name": "a b"}], "clusters[0].name: got 'a b', allowed: an EKS cluster's name: letters"),
        ([{"name": "dev"}], "clusters[0].nodeRoles: got nothing, allowed: a list of IAM role names"),
        ([{**SOUND, "nodeRoles": [""]}], "clusters[0].nodeRoles[0]: got '', allowed: IAM role names"),
        (
            [{**SOUND, "nodeRoles": ["arn:aws:iam::123456789012:role/n"]}],
            "nodeRoles[0]: got 'arn:aws:iam::123456789012:role/n', allowed: IAM role names, with the path if any (mine,"
            " nodes/mine), not ARNs",
        ),
        ([{**SOUND, "nodeRoles": "x"}], "clusters[0].nodeRoles: got 'x', allowed: a list of texts"),
        ([{**SOUND, "settings": ["x"]}], 'clusters[0].settings: got ["x"], allowed: an object'),
        ([{**SOUND, "vpc": {"vpcId": 1}}], "clusters[0].vpc.vpcId: got 1, allowed: a text"),
    ],
)
def test_what_cannot_be_read_is_named(
    clusters: list[Any], said: str, cdk_json: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["preflight", "--config", cdk_json(*clusters)]) == 2
    assert said in capsys.readouterr().err


def test_files_and_clusters_that_are_not_there_are_named(
    cdk_json: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["preflight", "--config", str(tmp_path / "none.json")]) == 2
    assert "none.json cannot be read: No such file" in capsys.readouterr().err
    assert main(["preflight", "--config", cdk_json(SOUND), "--cluster", "x"]) == 2
    assert "--cluster x: " in capsys.readouterr().err
    (tmp_path / "cdk.json").write_text("{")
    assert main(["preflight", "--config", str(tmp_path / "cdk.json")]) == 2
    assert "is no JSON" in capsys.readouterr().err
