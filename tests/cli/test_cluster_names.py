"""What commands say of a cluster that the stack does not have."""

from typing import Any

import pytest
from kubernetes.client import Configuration

from spotwright.adapters.aws import clients
from spotwright.cli import main
from spotwright.cli.inputs import live_cluster

SAID = "stack Spotwright-main has no cluster prodution (did you mean production?); it has dev, production\n"


class CloudFormation:
    """With the stack of a cell of two clusters."""

    def describe_stacks(self, **_: str) -> dict[str, Any]:
        outputs = {"TableName": "table", "BucketName": "bucket", "Clusters": "dev,production"}
        return {"Stacks": [{"Outputs": [{"OutputKey": key, "OutputValue": outputs[key]} for key in outputs]}]}


@pytest.fixture(autouse=True)
def aws(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing answers but CloudFormation."""
    cloudformation = CloudFormation()
    monkeypatch.setattr(
        clients, "client", lambda service, **_: cloudformation if service == "cloudformation" else object()
    )
    monkeypatch.setattr(live_cluster, "kubeconfig_configuration", lambda *_: Configuration(host="https://api.example"))


@pytest.mark.parametrize(
    ("command", "code", "prefix"),
    [
        (["replay", "last"], 1, ""),
        (["replay", "0123456789abcdef"], 1, ""),
        (["catalog"], 1, ""),
        (["plan"], 2, "--cluster prodution: "),
        (["pause"], 1, ""),
        (["resume"], 1, ""),
        (["orphans"], 1, ""),
        (["manifests", "--forwarder-image", "x"], 2, "--stack Spotwright-main: "),
    ],
)
def test_the_clusters_that_there_are_and_the_nearest_are_named(
    command: list[str], code: int, prefix: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--cluster", "prodution"]) == code
    told = capsys.readouterr()
    assert told.err.startswith(f"spotwright {command[0]}: {prefix}{SAID}")
    assert not told.out
