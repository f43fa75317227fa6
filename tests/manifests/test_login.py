"""The installer's way in: a token by its own role, an access entry while it works, and nothing afterwards."""

import base64
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest

from local.kubernetes.binaries import ensure_built
from local.kubernetes.control_plane import ControlPlane, ControlPlaneStarter
from local.ports import Ports
from local.processes import Processes
from spotwright.adapters.aws.eks.access_entry import TemporaryAccessEntry
from spotwright.adapters.aws.eks.token import TOKEN_PREFIX, kubernetes_token
from spotwright.adapters.kubernetes.dynamic_client import DynamicClient
from spotwright.errors import Denied, NotFound
from spotwright.workflows.install.workflow import install, remove
from tests.functions.install.fakes import Nodes
from tests.local.aws.serverless import ACCOUNT, REGION, Aws, run_local_aws
from tests.manifests.cluster import wanted

CLUSTER = "dev-eks-cluster"


@dataclass
class Patience:
    """Five minutes of real time."""

    end: float

    def remaining_seconds(self) -> float:
        return self.end - time.monotonic()

    def pause(self, seconds: float) -> None:
        time.sleep(seconds)


def patience() -> Patience:
    return Patience(time.monotonic() + 300)


@dataclass
class Account:
    """A local AWS with one cluster, and sessions of a role in it."""

    aws: Aws
    plane: ControlPlane
    role: str
    session: boto3.Session

    def admin(self) -> TemporaryAccessEntry:
        return TemporaryAccessEntry(
            self.session.client("eks", endpoint_url=self.aws.endpoint),
            self.session.client("sts", endpoint_url=self.aws.endpoint),
            cluster=CLUSTER,
            role_arn=self.role,
        )

    def entries(self) -> list[str]:
        entries: list[str] = self.aws.client("eks").list_access_entries(clusterName=CLUSTER)["accessEntries"]
        return entries


@pytest.fixture(scope="module")
def account(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    folder = tmp_path_factory.mktemp("login")
    ports = Ports()
    with run_local_aws(tmp_path_factory.mktemp("aws")) as aws, Processes(folder / "logs") as processes:
        starter = ControlPlaneStarter(folder, ensure_built(print), processes, ports)
        plane = starter.start(aws_endpoint=aws.endpoint, cluster=CLUSTER, environment=dict(os.environ))
        about = {"name": CLUSTER, "endpoint": plane.endpoint, "certificateAuthority": plane.certificate_authority}
        aws.control("POST", "/_local/clusters", about | {"version": "1.35"})
        role = aws.role("installer")
        assumed = aws.client("sts").assume_role(RoleArn=role, RoleSessionName="install")["Credentials"]
        session = boto3.Session(assumed["AccessKeyId"], assumed["SecretAccessKey"], assumed["SessionToken"], REGION)
        yield Account(aws, plane, role, session)
    ports.close()


def test_the_role_gets_in_only_while_it_installs(account: Account) -> None:
    before = account.entries()
    admin = account.admin()
    applied = install(admin, Nodes(), wanted(), patience())
    assert "Deployment/spotwright-forwarder" in applied
    assert account.entries() == before
    opened = admin.open()
    admin.close()
    assert denied(opened)
    again = account.admin()
    removal = remove(again, Nodes(), wanted(), patience())
    assert removal.gave_up == ""
    assert "Deployment/spotwright-forwarder" in removal.deleted
    assert account.entries() == before


def denied(objects: DynamicClient) -> bool:
    """Do we stop being let in, within the time that the API server remembers an answer?"""
    deadline = time.monotonic() + 300
    while time.monotonic() < deadline:
        try:
            objects.read(dict(wanted().definitions[0]))
        except Denied:
            return True
        time.sleep(0.5)
    return False


def test_an_entry_left_by_a_run_that_was_killed_is_used_and_removed(account: Account) -> None:
    admin = account.admin()
    admin.open()
    assert account.role in account.entries()
    install(account.admin(), Nodes(), wanted(), patience())
    assert account.role not in account.entries()
    admin.close()


def test_a_cluster_that_is_gone_is_not_found_and_needs_no_removal(account: Account) -> None:
    eks, sts = (account.session.client(name, endpoint_url=account.aws.endpoint) for name in ("eks", "sts"))
    missing: Any = TemporaryAccessEntry(eks, sts, cluster="gone", role_arn=account.role)  # type: ignore[arg-type]
    with pytest.raises(NotFound):
        missing.open()
    assert remove(missing, Nodes(), wanted(), patience()).gave_up == "the cluster does not exist"


def test_a_token_is_good_for_its_own_cluster_only(account: Account) -> None:
    sts = account.session.client("sts", endpoint_url=account.aws.endpoint)
    admin = account.admin()
    admin.open()
    answer = identity(account, kubernetes_token(sts, CLUSTER))
    assert answer["authenticated"]
    assert answer["arn"].startswith(f"arn:aws:sts::{ACCOUNT}:assumed-role/installer/") or answer["arn"] == account.role
    assert not identity(account, kubernetes_token(sts, "other"))["authenticated"]
    # The same client made both: the name of one cluster never sticks.
    assert identity(account, kubernetes_token(sts, CLUSTER))["authenticated"]
    admin.close()


def identity(account: Account, token: str) -> dict[str, Any]:
    answer: dict[str, Any] = account.aws.control("POST", "/_local/identity", {"token": token, "cluster": CLUSTER})
    return answer


def test_a_token_is_a_presigned_url_of_a_minute_with_the_header_signed() -> None:
    sts = boto3.client("sts", region_name=REGION, aws_access_key_id="x", aws_secret_access_key="y")
    token = kubernetes_token(sts, CLUSTER)
    assert token.startswith(TOKEN_PREFIX)
    assert "=" not in token
    encoded = token.removeprefix(TOKEN_PREFIX)
    url = urlsplit(base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode())
    query = {key: values[0] for key, values in parse_qs(url.query).items()}
    assert url.hostname == f"sts.{REGION}.amazonaws.com"
    assert query["Action"] == "GetCallerIdentity"
    assert query["X-Amz-Expires"] == "60"
    assert query["X-Amz-SignedHeaders"] == "host;x-k8s-aws-id"
    assert "ClusterName" not in query
