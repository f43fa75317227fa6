"""`spotwright manifests` and `spotwright uninstall` as people call them."""

import argparse
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import boto3
import pytest
import urllib3
import yaml
from moto.server import ThreadedMotoServer

from spotwright.adapters.aws import clients
from spotwright.adapters.aws.dynamodb.state import DynamoState
from spotwright.cli import InputError, main
from spotwright.cli.commands import manifests, pause
from spotwright.cli.commands import uninstall as uninstall_command
from spotwright.workflows.ports.rows import CommandRow, epoch_ms
from tests.manifests.cluster import Cluster
from tests.manifests.samples import SAMPLES, changed

CLAIM = {"apiVersion": "karpenter.sh/v1", "kind": "NodeClaim"}
REGION = "ap-northeast-2"
# What a deployed stack has that these commands read.
TEMPLATE = """
Resources:
  Table:
    Type: AWS::DynamoDB::Table
    Properties:
      BillingMode: PAY_PER_REQUEST
      AttributeDefinitions: [{AttributeName: pk, AttributeType: S}, {AttributeName: sk, AttributeType: S}]
      KeySchema: [{AttributeName: pk, KeyType: HASH}, {AttributeName: sk, KeyType: RANGE}]
Outputs:
  Clusters: {Value: "dev,production"}
  TableName: {Value: !Ref Table}
  ProvisionQueueUrl: {Value: "https://queues/provision"}
  LifecycleQueueUrl: {Value: "https://queues/lifecycle"}
  CatalogQueueUrl: {Value: "https://queues/catalog"}
"""


@pytest.fixture
def aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[boto3.Session]:
    """An account with a stack `Spotwright-main`; clients of earlier tests are forgotten."""
    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    for name, value in {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_DEFAULT_REGION": REGION,
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "x",
    }.items():
        monkeypatch.setenv(name, value)
    _forget()
    urllib3.request("POST", f"http://127.0.0.1:{port}/moto-api/reset", timeout=60)
    session = boto3.Session()
    session.client("cloudformation").create_stack(StackName="Spotwright-main", TemplateBody=TEMPLATE)
    yield session
    _forget()
    server.stop()


_MADE_ONCE = (clients.client, clients.own_session, clients.role_session)


def _forget() -> None:
    for cached in _MADE_ONCE:
        cached.cache_clear()


def run(*words: str) -> int:
    parser = argparse.ArgumentParser()
    subparsers = parser.add_subparsers()
    for add in (manifests.add, pause.add_pause, pause.add_resume, uninstall_command.add):
        add(subparsers)
    options = parser.parse_args(words)
    return int(options.run(options))


def test_manifests_prints_what_is_installed(capsys: pytest.CaptureFixture[str], cluster: Cluster) -> None:
    assert run("manifests") == 0
    printed = capsys.readouterr()
    kinds = [yaml_object["kind"] for yaml_object in yaml.safe_load_all(printed.out)]
    assert kinds.count("CustomResourceDefinition") == 4
    assert "Deployment" not in kinds
    assert "without the forwarder" in printed.err
    dry = cluster.kubectl("apply", "--dry-run=server", "-f", "-", text=printed.out)
    assert dry.returncode == 0, dry.stderr


def test_manifests_takes_the_forwarders_environment_from_the_stack(
    aws: boto3.Session, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("manifests", "--cluster", "dev", "--forwarder-image", "registry/forwarder:1") == 0
    (deployment,) = (
        yaml_object
        for yaml_object in yaml.safe_load_all(capsys.readouterr().out)
        if yaml_object["kind"] == "Deployment"
    )
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    environment = {yaml_object["name"]: yaml_object.get("value") for yaml_object in container["env"]}
    assert container["image"] == "registry/forwarder:1"
    assert environment["CLUSTER_NAME"] == "dev"
    assert environment["AWS_REGION"] == REGION
    assert environment["SPOTWRIGHT_PROVISION_QUEUE_URL"] == "https://queues/provision"
    assert environment["SPOTWRIGHT_TABLE"]


def test_manifests_says_what_is_missing(aws: boto3.Session) -> None:
    with pytest.raises(InputError, match="needs --cluster"):
        run("manifests", "--forwarder-image", "x")
    with pytest.raises(InputError, match="there is no stack Other"):
        run("manifests", "--forwarder-image", "x", "--cluster", "dev", "--stack", "Other")
    with pytest.raises(InputError, match=r"no cluster prodution \(did you mean production\?\); it has dev, production"):
        run("manifests", "--forwarder-image", "x", "--cluster", "prodution")


def paused(aws: boto3.Session) -> dict[str, Any] | None:
    outputs = aws.client("cloudformation").describe_stacks(StackName="Spotwright-main")["Stacks"][0]["Outputs"]
    table = next(output["OutputValue"] for output in outputs if output["OutputKey"] == "TableName")
    key = {"pk": {"S": "dev"}, "sk": {"S": "pause"}}
    item: dict[str, Any] | None = aws.client("dynamodb").get_item(TableName=table, Key=key).get("Item")
    return item


def test_a_pause_holds_until_it_is_resumed(aws: boto3.Session, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(2):
        assert run("pause", "--cluster", "dev", "--reason", "maintenance") == 0
    row = paused(aws)
    assert row is not None
    assert row["reason"]["S"] == "maintenance"
    for _ in range(2):
        assert run("resume", "--cluster", "dev") == 0
    assert paused(aws) is None
    assert "dev is resumed" in capsys.readouterr().out


def test_disruption_alone_may_be_paused(aws: boto3.Session, capsys: pytest.CaptureFixture[str]) -> None:
    outputs = aws.client("cloudformation").describe_stacks(StackName="Spotwright-main")["Stacks"][0]["Outputs"]
    table = next(output["OutputValue"] for output in outputs if output["OutputKey"] == "TableName")
    state = DynamoState(aws.client("dynamodb"), table=table, cluster="dev")
    assert run("pause", "--cluster", "dev", "--disruption") == 0
    assert "disruption in dev is paused" in capsys.readouterr().out
    row = state.cluster()
    assert (row.paused, row.held_by) == (False, "")
    assert row.disruption_held_by == "disruption is paused; `spotwright resume` ends it"
    assert run("pause", "--cluster", "dev") == 0
    assert state.cluster().held_by == state.cluster().disruption_held_by != ""
    assert run("resume", "--cluster", "dev") == 0
    assert state.cluster().disruption_held_by == ""


def test_resume_forgets_replacements_that_were_not_initialized(aws: boto3.Session) -> None:
    outputs = aws.client("cloudformation").describe_stacks(StackName="Spotwright-main")["Stacks"][0]["Outputs"]
    table = next(output["OutputValue"] for output in outputs if output["OutputKey"] == "TableName")
    state = DynamoState(aws.client("dynamodb"), table=table, cluster="dev")
    at = epoch_ms(datetime.now(UTC))
    state.create(
        CommandRow("c1", "dev", "d1", "Drifted", ("a",), rollout="default/1", failed=at, phase="aborted", created=at)
    )
    assert run("resume", "--cluster", "dev") == 0
    row = state.command("c1")
    assert row is not None
    assert (row.failed, row.phase) == (0, "aborted")


def test_a_cluster_that_the_stack_does_not_have_is_not_said_to_be_paused(
    aws: boto3.Session, capsys: pytest.CaptureFixture[str]
) -> None:
    for command in ("pause", "resume"):
        assert run(command, "--cluster", "prodution") == 1
        told = capsys.readouterr()
        assert (
            told.err
            == f"spotwright {command}: stack Spotwright-main has no cluster prodution (did you mean production?);"
            " it has dev, production\n"
        )
        assert not told.out


def test_a_region_is_read_from_either_variable(
    aws: boto3.Session, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.setenv("AWS_REGION", REGION)
    assert main(["pause", "--cluster", "dev"]) == 0


@pytest.mark.parametrize(
    ("command", "advice"),
    [
        (["pause", "--cluster", "dev"], "give --region or set AWS_REGION"),
        (["resume", "--cluster", "dev"], "give --region or set AWS_REGION"),
        (["replay", "last", "--cluster", "dev"], "give --region or set AWS_REGION"),
        (["catalog", "--cluster", "dev"], "set AWS_REGION"),
    ],
)
def test_a_missing_region_is_a_missing_input(
    aws: boto3.Session,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: list[str],
    advice: str,
) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    monkeypatch.delenv("AWS_REGION", raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    assert main(command) == 2
    assert capsys.readouterr().err == f"spotwright {command[0]}: no AWS region: {advice}\n"


@pytest.fixture
def session(aws: boto3.Session, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> boto3.Session:
    """EKS knows the test cluster as `dev`, and the kubeconfig leads there."""

    class Eks:
        def describe_cluster(self, name: str) -> dict[str, Any]:
            assert name == "dev"
            return {"cluster": {"endpoint": cluster.plane.endpoint}}

    real = clients.client
    monkeypatch.setattr(clients, "client", lambda service, **more: Eks() if service == "eks" else real(service, **more))
    return aws


def uninstall(cluster: Cluster, *words: str) -> int:
    return run("uninstall", "--cluster", "dev", "--kubeconfig", str(cluster.plane.kubeconfig), *words)


def test_a_claim_that_nobody_ends_is_named_when_the_time_is_up(
    session: boto3.Session, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    """No lifecycle function runs here, so a claim with a finalizer stays."""
    claim = changed(SAMPLES["NodeClaim"](), "metadata.name", "stays")
    claim["metadata"]["finalizers"] = ["karpenter.sh/termination"]
    cluster.objects.apply(claim)
    assert uninstall(cluster, "--drain", "--timeout", "4s", "--grace", "1h") == 1
    assert "stays: instance terminating" in capsys.readouterr().err
    live = cluster.objects.read(claim)
    assert live is not None
    assert "deletionTimestamp" in live["metadata"]
    assert "karpenter.sh/nodeclaim-termination-timestamp" in live["metadata"]["annotations"]
    assert paused(session) is not None
    cluster.objects.merge(claim, {"metadata": {"finalizers": None}})


def test_an_emptied_cluster_keeps_its_pools(
    session: boto3.Session, cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    for nodeclaim in cluster.objects.list("karpenter.sh/v1", "NodeClaim"):
        cluster.objects.merge(nodeclaim | CLAIM, {"metadata": {"finalizers": None}})
        cluster.objects.delete(nodeclaim | CLAIM)
    pool = changed(SAMPLES["NodePool"](), "metadata.name", "kept")
    cluster.objects.apply(pool)
    assert uninstall(cluster, "--drain") == 0
    assert "nodeclaims drained and gone" in capsys.readouterr().out
    assert cluster.objects.read(pool) is not None


@pytest.mark.parametrize(
    ("stack", "clusters", "said"),
    [
        ("Spotwright-main", "production", "stack Spotwright-main has no cluster dev; it has production"),
        ("Spotwright-gone", "dev", "there is no stack Spotwright-gone"),
    ],
)
@pytest.mark.parametrize("what", ["--drain", "--hand-back"])
def test_nothing_is_begun_that_no_stack_would_finish(
    session: boto3.Session, cluster: Cluster, capsys: pytest.CaptureFixture[str],
    what: str, stack: str, clusters: str, said: str,
) -> None:  # fmt: skip
    """The stack was destroyed with nodeclaims alive, or is another cell's."""
    template = TEMPLATE.replace("dev,production", clusters)
    session.client("cloudformation").update_stack(StackName="Spotwright-main", TemplateBody=template)
    claim = changed(SAMPLES["NodeClaim"](), "metadata.name", "unmanaged")
    cluster.objects.apply(claim)
    assert uninstall(cluster, what, "--stack", stack) == 1
    told = capsys.readouterr()
    assert told.err == f"spotwright uninstall: {said}; {uninstall_command._WITHOUT_STACK}\n"
    assert not told.out
    live = cluster.objects.read(claim)
    assert live is not None
    assert "deletionTimestamp" not in live["metadata"]
    assert paused(session) is None
    cluster.objects.delete(claim)


def test_another_cluster_than_the_kubeconfigs_is_refused(
    session: boto3.Session, monkeypatch: pytest.MonkeyPatch, cluster: Cluster
) -> None:
    class Other:
        def describe_cluster(self, name: str) -> dict[str, Any]:
            return {"cluster": {"endpoint": "https://other.eks.amazonaws.com"}}

    with monkeypatch.context() as patched:
        patched.setattr(clients, "client", lambda service, **more: Other())
        _refused(cluster)
    assert paused(session) is None


def _refused(cluster: Cluster) -> None:
    with pytest.raises(InputError, match=r"the kubeconfig leads to .* but dev is https://other"):
        uninstall(cluster, "--drain")


def test_grace_is_for_draining() -> None:
    with pytest.raises(InputError, match="--drain only"):
        run("uninstall", "--hand-back", "--cluster", "dev", "--grace", "1m")


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90.0), ("30m", 1800.0), ("1h30m", 5400.0)])
def test_durations(text: str, seconds: float) -> None:
    assert uninstall_command.parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "5", "1d", "-1s", "1.5h"])
def test_no_durations(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not a duration"):
        uninstall_command.parse_duration(text)
