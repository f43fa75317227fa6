"""The metrics page, as Prometheus reads it."""

from collections.abc import Iterator

import pytest
import urllib3
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.parser import text_string_to_metric_families

from forwarder import metrics as metrics_page
from forwarder.loop import Counters
from forwarder.metrics import ClusterCollector, StateFigures, families
from forwarder.web import page_parts, serve
from spotwright.adapters.kubernetes.codecs.node import decode_node
from spotwright.adapters.kubernetes.codecs.pod import decode_pod
from tests.forwarder import objects

ODD_NAME = 'odd"\\'


def served() -> Iterator[Metric]:
    nodes = [decode_node(objects.node())]
    pods = [
        decode_pod(objects.pod("a", node="n", ready=True)),
        decode_pod(objects.pod("b", node="n", owner="DaemonSet")),
        decode_pod(objects.pod("done", node="n", phase="Succeeded")),
        decode_pod(objects.pod(ODD_NAME, unschedulable=True)),
    ]
    counters = Counters(sent={"provision": 2}, failed=1, heartbeats=3)
    state = StateFigures(full_bytes=1000, changes_bytes=20, age_seconds=4.5, failures=2, late=1)
    return families(nodes, pods, counters, state, fresh=True, silent_seconds={"Pod": 1.5})


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    registry = CollectorRegistry()
    registry.register(ClusterCollector(served))
    server = serve(registry, {"/healthz": lambda: "", "/readyz": lambda: "no heartbeat"}, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def metrics(address: str) -> dict[str, Metric]:
    """Metric by the name of its samples."""
    answer = urllib3.request("GET", f"{address}/metrics", timeout=60.0)
    assert answer.headers["Content-Type"].startswith("text/plain; version=")
    page = answer.data.decode()
    return {sample.name: metric for metric in text_string_to_metric_families(page) for sample in metric.samples}


def value(metrics: dict[str, Metric], name: str, /, **labels: str) -> float:
    samples = [sample for sample in metrics[name].samples if labels.items() <= sample.labels.items()]
    assert len(samples) == 1, samples
    return samples[0].value


def test_names_and_kinds_are_those_that_dashboards_ask_for(metrics: dict[str, Metric]) -> None:
    assert {name: metric.type for name, metric in metrics.items()} == {
        "karpenter_nodes_allocatable": "gauge",
        "karpenter_nodes_total_pod_requests": "gauge",
        "karpenter_nodes_total_daemon_requests": "gauge",
        "karpenter_nodes_system_overhead": "gauge",
        "karpenter_pods_state": "gauge",
        "karpenter_cluster_state_node_count": "gauge",
        "karpenter_cluster_state_synced": "gauge",
        "spotwright_forwarder_silent_seconds": "gauge",
        "spotwright_forwarder_doorbells_total": "counter",
        "spotwright_forwarder_failed_doorbells_total": "counter",
        "spotwright_forwarder_heartbeats_total": "counter",
        "spotwright_forwarder_cluster_state_bytes": "gauge",
        "spotwright_forwarder_cluster_state_age_seconds": "gauge",
        "spotwright_forwarder_cluster_state_failures_total": "counter",
        "spotwright_forwarder_cluster_state_late_total": "counter",
    }


def test_nodes_show_what_they_have_and_what_is_asked_of_them(metrics: dict[str, Metric]) -> None:
    of_node = {"node_name": "n", "nodepool": "default", "instance_type": "m5.large", "managed": "true"}
    assert value(metrics, "karpenter_nodes_allocatable", resource_type="cpu", **of_node) == 1.93
    assert value(metrics, "karpenter_nodes_total_pod_requests", resource_type="cpu", **of_node) == 0.25
    assert value(metrics, "karpenter_nodes_total_daemon_requests", resource_type="memory", **of_node) == 64 * 2**20
    assert round(value(metrics, "karpenter_nodes_system_overhead", resource_type="cpu", **of_node), 3) == 0.07


def test_pods_show_where_they_are(metrics: dict[str, Metric]) -> None:
    on_node = {"node": "n", "scheduled": "true", "nodepool": "default", "instance_type": "m5.large"}
    assert value(metrics, "karpenter_pods_state", name="a", phase="Running", ready="true", **on_node) == 1
    waits = {"name": ODD_NAME, "scheduled": "false", "phase": "Pending", "managed": "false", "node": ""}
    assert value(metrics, "karpenter_pods_state", **waits) == 1


def test_the_cluster_and_the_forwarder_itself(metrics: dict[str, Metric]) -> None:
    assert value(metrics, "karpenter_cluster_state_node_count") == 1
    assert value(metrics, "karpenter_cluster_state_synced") == 1
    assert value(metrics, "spotwright_forwarder_silent_seconds", kind="Pod") == 1.5
    assert value(metrics, "spotwright_forwarder_doorbells_total", queue="provision") == 2
    assert value(metrics, "spotwright_forwarder_failed_doorbells_total") == 1
    assert value(metrics, "spotwright_forwarder_heartbeats_total") == 3


def test_the_cluster_state_is_measured(metrics: dict[str, Metric]) -> None:
    assert value(metrics, "spotwright_forwarder_cluster_state_bytes", body="full") == 1000
    assert value(metrics, "spotwright_forwarder_cluster_state_bytes", body="changes") == 20
    assert value(metrics, "spotwright_forwarder_cluster_state_age_seconds") == 4.5
    assert value(metrics, "spotwright_forwarder_cluster_state_failures_total") == 2
    assert value(metrics, "spotwright_forwarder_cluster_state_late_total") == 1


@pytest.mark.parametrize(
    ("path", "status", "text"), [("/healthz", 200, "ok"), ("/readyz", 503, "no heartbeat"), ("/x", 404, "not found")]
)
def test_probes_are_answered_beside_the_metrics(address: str, path: str, status: int, text: str) -> None:
    answer = urllib3.request("GET", address + path, timeout=60.0)
    assert (answer.status, answer.data.decode()) == (status, f"{text}\n")


def test_a_metric_in_parts_is_one_metric(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = b"".join(page_parts(served()))
    monkeypatch.setattr(metrics_page, "PODS_AT_ONCE", 1)
    parts = list(page_parts(served()))
    assert b"".join(parts) == whole
    assert len(parts) > whole.count(b"# TYPE")


def test_the_page_is_compressed_for_who_asks(address: str) -> None:
    plain = urllib3.request("GET", f"{address}/metrics", timeout=60.0)
    packed = urllib3.request("GET", f"{address}/metrics", headers={"Accept-Encoding": "gzip"}, timeout=60.0)
    assert packed.headers["Content-Encoding"] == "gzip"
    assert packed.data == plain.data
