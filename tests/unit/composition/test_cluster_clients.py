"""The ports of clusters: whose role they use, how long they live, and what a process keeps of them."""

import gc
import json
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from threading import Event
from types import SimpleNamespace

import pytest

from spotwright.adapters.aws import clients
from spotwright.composition import cluster_clients
from spotwright.errors import ApiError, Denied, Unavailable
from spotwright.model.ec2.fleet import ClusterFacts
from spotwright.simulation import builders

NAMES = [f"cluster-{number}" for number in range(10)]
MINUTES = 60


class KeptFacts:
    """The row of facts, in memory."""

    def __init__(self, rows: dict[str, ClusterFacts], table: object, cluster: str) -> None:
        self._rows, self._cluster = rows, cluster

    def read(self) -> ClusterFacts | None:
        return self._rows.get(self._cluster)

    def write(self, facts: ClusterFacts) -> None:
        self._rows[self._cluster] = facts


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The process of a fresh function of a cell with ten clusters; the seconds of its monotonic clock."""
    roles = {name: {"readRoleArn": f"arn:read:{name}", "actRoleArn": f"arn:act:{name}"} for name in NAMES}
    variables = {
        "SPOTWRIGHT_CLUSTERS": json.dumps(roles), "SPOTWRIGHT_CELL": "cell", "SPOTWRIGHT_TABLE": "table",
        "SPOTWRIGHT_BUCKET": "bucket", "AWS_REGION": "eu-central-1", "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test", "POWERTOOLS_SERVICE_NAME": "provision",
    }  # fmt: skip
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(cluster_clients, "_kept", {})
    monkeypatch.setattr(clients, "eks", lambda role: None)
    monkeypatch.setattr(clients, "client", lambda service: None)
    monkeypatch.setattr(cluster_clients, "ClusterFactsRow", partial(KeptFacts, {}))
    seconds = [1000.0]
    monkeypatch.setattr(cluster_clients, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    return seconds


@pytest.fixture(autouse=True)
def fresh_process() -> Iterator[None]:
    """What a process keeps is neither that of a test before nor left to the next one."""
    _forget()
    yield
    _forget()


def _forget() -> None:
    cluster_clients._environment.cache_clear()
    cluster_clients._catalogs.cache_clear()


def test_ports_of_a_cluster_are_the_same_for_ten_minutes(clock: list[float]) -> None:
    first = cluster_clients.ports("cluster-0")
    clock[0] += 10 * MINUTES - 1
    assert cluster_clients.ports("cluster-0") is first
    assert cluster_clients.ports("cluster-1") is not first


def test_facts_about_a_cluster_are_read_again_after_ten_minutes(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    versions = iter(("1.34", "1.35"))

    def describe(client: object, name: str) -> ClusterFacts:
        return ClusterFacts(name, "https://a", "", next(versions), "", "")

    monkeypatch.setattr(cluster_clients, "describe_cluster", describe)
    assert cluster_clients.ports("cluster-0").facts.version == "1.34"
    clock[0] += 9 * MINUTES
    assert cluster_clients.ports("cluster-0").facts.version == "1.34"
    clock[0] += 1 * MINUTES
    assert cluster_clients.ports("cluster-0").facts.version == "1.35"


def test_while_eks_does_not_answer_what_it_said_before_is_used(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answers: list[ClusterFacts | ApiError] = [
        Unavailable("no answer"),
        ClusterFacts("cluster-0", "https://a", "", "1.34", "10.100.0.0/16", "vpc-1"),
        Denied("not allowed", code="AccessDeniedException"),
        Unavailable("no answer", code="ServiceUnavailable"),
        ClusterFacts("cluster-0", "https://a", "", "1.35", "10.100.0.0/16", "vpc-1"),
    ]

    def describe(client: object, name: str) -> ClusterFacts:
        answer = answers.pop(0)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    monkeypatch.setattr(cluster_clients, "describe_cluster", describe)
    with pytest.raises(Unavailable):
        _ = cluster_clients.ports("cluster-0").facts
    versions = []
    for _ in range(4):
        versions.append(cluster_clients.ports("cluster-0").facts.version)
        clock[0] += 10 * MINUTES
    assert versions == ["1.34", "1.34", "1.34", "1.35"]
    message = "EKS does not describe the cluster, what it said before is used"
    assert [record.getMessage() for record in caplog.records] == [message] * 2


def test_a_process_that_begins_while_eks_does_not_answer_uses_what_the_catalog_function_kept(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = ClusterFacts("cluster-0", "https://a", "", "1.34", "10.100.0.0/16", "vpc-1")

    def describe(client: object, name: str) -> ClusterFacts:
        if not answers:
            raise Unavailable("no answer")
        return facts

    def begin(function: str) -> ClusterFacts:
        monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", function)
        monkeypatch.setattr(cluster_clients, "_kept", {})
        return cluster_clients.ports("cluster-0").facts

    monkeypatch.setattr(cluster_clients, "describe_cluster", describe)
    answers = True
    assert begin("provision") == facts
    answers = False
    with pytest.raises(Unavailable):
        begin("provision")
    answers = True
    assert begin("catalog") == facts
    answers = False
    assert begin("provision") == begin("lifecycle") == facts


def test_a_process_keeps_one_set_of_ports_for_each_cluster_however_long_it_lives(clock: list[float]) -> None:
    made: list[weakref.ref[cluster_clients.ClusterClients]] = []
    for _ in range(13):
        for name in NAMES:
            made.append(weakref.ref(cluster_clients.ports(name)))
        clock[0] += 10 * MINUTES
    gc.collect()
    assert len(made) == 130
    assert sum(reference() is not None for reference in made) == len(NAMES)


def test_threads_of_a_fresh_process_share_what_the_first_of_them_makes(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    described, begun, others = list[str](), Event(), Event()

    def describe(client: object, name: str) -> ClusterFacts:
        described.append(name)
        begun.set()
        assert others.wait(60)
        return builders.FACTS

    monkeypatch.setattr(cluster_clients, "describe_cluster", describe)
    ports = cluster_clients.ports(NAMES[0])
    with ThreadPoolExecutor(3) as threads:
        calls = [threads.submit(lambda: ports.facts)]
        assert begun.wait(60)
        calls += [threads.submit(lambda: ports.facts) for _ in range(2)]
        others.set()
        assert {call.result(60) is builders.FACTS for call in calls} == {True}
    assert described == [NAMES[0]]


def test_a_cluster_about_which_eks_does_not_answer_holds_no_thread_of_another(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, answered = Event(), Event()

    def describe(client: object, name: str) -> ClusterFacts:
        if name == NAMES[0]:
            begun.set()
            assert answered.wait(60)
        return builders.FACTS

    monkeypatch.setattr(cluster_clients, "describe_cluster", describe)
    with ThreadPoolExecutor(2) as threads:
        slow = threads.submit(lambda: cluster_clients.ports(NAMES[0]).facts)
        assert begun.wait(60)
        assert threads.submit(lambda: cluster_clients.ports(NAMES[1]).facts).result(60) is builders.FACTS
        answered.set()
        assert slow.result(60) is builders.FACTS


def test_decoded_catalogs_outlive_the_ports_and_are_shared(clock: list[float]) -> None:
    catalogs = cluster_clients.ports("cluster-0").catalogs
    clock[0] += 10 * MINUTES
    assert cluster_clients.ports("cluster-0").catalogs is catalogs
    assert cluster_clients.ports("cluster-1").catalogs is catalogs


def test_a_token_is_renewed_before_eks_refuses_it(clock: list[float]) -> None:
    """EKS accepts a token for a quarter of an hour."""
    made = iter(("first", "second", "third"))
    token = cluster_clients._renew_token(lambda: next(made))
    assert [token(), token()] == ["first", "first"]
    clock[0] += 10 * MINUTES
    assert token() == "first"
    clock[0] += 1
    assert [token(), token()] == ["second", "second"]
    clock[0] += 14 * MINUTES
    assert token() == "third"


@pytest.mark.parametrize(
    ("function", "role"),
    [("provision", "read"), ("disrupt", "read"), ("sweep", "read"), ("lifecycle", "act"), ("catalog", "act")],
)
def test_only_functions_that_change_something_use_the_role_that_may(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, function: str, role: str
) -> None:
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", function)
    assert cluster_clients.ports("cluster-3").role_arn == f"arn:{role}:cluster-3"


def test_the_state_of_a_cluster_keeps_a_heartbeat_for_some_seconds(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[object] = []

    def get_item(**call: object) -> dict[str, object]:
        asked.append(call)
        return {}

    monkeypatch.setattr(clients, "client", lambda service: SimpleNamespace(get_item=get_item))
    state = cluster_clients.ports(NAMES[0]).state
    assert [state.heartbeat(), state.heartbeat()] == [0, 0]
    assert len(asked) == 1
