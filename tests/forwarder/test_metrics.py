"""The metrics page."""

import re

from forwarder.loop import Counters
from forwarder.metrics import text
from forwarder.views import node_view, pod_view
from tests.forwarder import objects

LINE = re.compile(r'^[a-z_:]+(\{([a-z_]+="([^"\\\n]|\\["\\n])*",?)*\})? -?[0-9.e+]+$')


def page() -> str:
    nodes = [node_view(objects.node())]
    pods = [
        pod_view(objects.pod("a", node="n", ready=True)),
        pod_view(objects.pod("b", node="n", owner="DaemonSet")),
        pod_view(objects.pod("done", node="n", phase="Succeeded")),
        pod_view(objects.pod('odd"\\', unschedulable=True)),
    ]
    return text(nodes, pods, Counters(sent={"provision": 2}), fresh=True, silent_seconds={"Pod": 1.5})


def value(gauge: str, **labels: str) -> float:
    found = [
        line
        for line in page().splitlines()
        if line.startswith((f"{gauge}{{", f"{gauge} "))
        and all(f'{key}="{text}"' in line for key, text in labels.items())
    ]
    assert len(found) == 1, found
    return float(found[0].rpartition(" ")[2])


def test_every_line_is_well_formed() -> None:
    for line in page().splitlines():
        assert line.startswith("#") or LINE.match(line), line


def test_nodes_show_what_they_have_and_what_is_asked_of_them() -> None:
    assert value("karpenter_nodes_allocatable", node_name="n", resource_type="cpu", nodepool="default") == 1.93
    assert value("karpenter_nodes_total_pod_requests", resource_type="cpu", instance_type="m5.large") == 0.25
    assert value("karpenter_nodes_total_daemon_requests", resource_type="memory") == 64 * 2**20
    assert round(value("karpenter_nodes_system_overhead", resource_type="cpu"), 3) == 0.07


def test_pods_show_where_they_are() -> None:
    assert value("karpenter_pods_state", name="a", phase="Running", scheduled="true", instance_type="m5.large") == 1
    assert value("karpenter_pods_state", scheduled="false", phase="Pending", managed="false") == 1


def test_the_cluster_and_the_forwarder_itself() -> None:
    assert value("karpenter_cluster_state_node_count") == 1
    assert value("karpenter_cluster_state_synced") == 1
    assert value("spotwright_forwarder_doorbells_total", queue="provision") == 2
