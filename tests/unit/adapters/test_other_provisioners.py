"""Who else provisions nodes: EKS Auto Mode, Karpenter's Deployment, or the holder of its Lease."""

from datetime import UTC, datetime, timedelta
from typing import Any, cast

import msgspec
import pytest

from spotwright.adapters.kubernetes.cluster import KubernetesCluster
from spotwright.adapters.kubernetes.transport import Transport
from spotwright.adapters.other_provisioners import OtherProvisioners
from spotwright.errors import Denied, Unavailable
from spotwright.simulation import builders

NOW = datetime(2026, 1, 1, tzinfo=UTC)
METADATA = {"name": "karpenter", "namespace": "infra"}
LEASE = {"metadata": {"name": "karpenter-leader-election", "namespace": "infra"}}


class FakeApi:
    """Lists by the last part of their path; an exception is raised."""

    def __init__(self, **lists: list[dict[str, Any]] | Exception) -> None:
        self._lists = lists

    def items(self, path: str, _decoder: object, _query: object) -> list[dict[str, Any]]:
        found = self._lists.get(path.rpartition("/")[2], [])
        if isinstance(found, Exception):
            raise found
        return found


def running(*, auto_mode: bool = False, is_looked_for: bool = True, **lists: list[dict[str, Any]] | Exception) -> str:
    cluster = KubernetesCluster("dev", cast("Transport", FakeApi(**lists)))
    facts = msgspec.structs.replace(builders.FACTS, is_auto_mode=auto_mode)
    return OtherProvisioners(cluster, facts, is_looked_for=is_looked_for).running(now=NOW)


def lease(seconds: int, holder: str = "karpenter-7d9") -> dict[str, Any]:
    renewed = (NOW - timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return LEASE | {"spec": {"holderIdentity": holder, "renewTime": renewed, "leaseDurationSeconds": 15}}


@pytest.mark.parametrize(
    ("spec", "status", "runs"),
    [
        ({"replicas": 2}, {}, True),
        ({}, {}, True),
        ({"replicas": 0}, {"replicas": 1}, True),
        ({"replicas": 0}, {}, False),
    ],
    ids=["wanted", "wanted by default", "its last pod terminates", "scaled to zero"],
)
def test_a_deployment_runs_while_it_wants_or_has_pods(spec: dict[str, Any], status: dict[str, Any], runs: bool) -> None:
    deployment = {"metadata": METADATA, "spec": spec, "status": status}
    assert running(deployments=[deployment]) == ("Deployment infra/karpenter" if runs else "")


@pytest.mark.parametrize(
    ("one", "runs"),
    [(lease(5), True), (lease(3600), False), (lease(5, holder=""), False), (LEASE, False)],
    ids=["renewed", "left behind", "given back", "without a leader"],
)
def test_a_lease_counts_while_its_holder_renews_it(one: dict[str, Any], runs: bool) -> None:
    assert running(leases=[one]) == ("the holder of Lease infra/karpenter-leader-election" if runs else "")


def test_leases_that_rbac_of_an_earlier_version_hides_count_as_none() -> None:
    assert running(leases=Denied("no", code="Forbidden")) == ""


def test_an_api_server_that_does_not_answer_is_an_error() -> None:
    with pytest.raises(Unavailable):
        running(deployments=Unavailable("no answer", code="Unreachable"))


def test_auto_mode_is_what_eks_says() -> None:
    assert running(auto_mode=True) == "EKS Auto Mode"


def test_a_check_that_cdk_json_skips_finds_nobody() -> None:
    assert running(auto_mode=True, is_looked_for=False, leases=[lease(1)]) == ""
