"""The parts of the benchmark of large clusters: what is created, what is counted, what is printed."""

import argparse
import json
import os
import signal
import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from bench.scale.__main__ import size
from bench.scale.busy_forwarder import memory_megabytes
from bench.scale.call_log import CallLog, asked_at
from bench.scale.figures import (
    FROM_LISTS,
    FROM_STATE,
    WAYS,
    Figure,
    Launch,
    Measured,
    measured_table,
    megabytes_goal,
    seconds_goal,
    table,
)
from bench.scale.meter import ApiServerLoad, api_server_load, peak_megabytes, processor_seconds
from bench.scale.notices import planned
from bench.scale.objects import NAMESPACES, new_node, new_pod
from bench.scale.processes import children, held, hold_to_one_processor, release_processors
from bench.scale.processes import processor_seconds as process_processor_seconds
from bench.scale.workloads import PODS_PER_NODE, burst_pod, burst_pool, interrupted
from spotwright.adapters.kubernetes.codecs.nodepool import decode_nodepool_strict
from spotwright.adapters.kubernetes.codecs.pod import decode_pod
from spotwright.telemetry.log_lines import DECIDED_ON_INTERRUPTION

METRICS = """\
# TYPE apiserver_flowcontrol_dispatched_requests_total counter
apiserver_flowcontrol_dispatched_requests_total{flow_schema="spotwright",priority_level="spotwright"} 7
apiserver_flowcontrol_dispatched_requests_total{flow_schema="kube-scheduler",priority_level="workload-high"} 43
# TYPE apiserver_response_sizes histogram
apiserver_response_sizes_bucket{resource="pods",verb="LIST",le="+Inf"} 2
apiserver_response_sizes_sum{resource="pods",verb="LIST"} 1000
apiserver_response_sizes_count{resource="pods",verb="LIST"} 2
apiserver_response_sizes_sum{resource="nodes",verb="GET"} 20
apiserver_response_sizes_sum{resource="pods",verb="WATCH"} 300
apiserver_response_sizes_sum{resource="",verb="GET"} 4000
"""


def test_requests_are_ours_and_bytes_those_of_objects_that_were_read() -> None:
    load = api_server_load(METRICS)
    assert load == ApiServerLoad(7, {"pods": 1000, "nodes": 20})
    assert load.read_bytes == 1020


def test_load_is_what_came_since() -> None:
    later = ApiServerLoad(9, {"pods": 500, "nodes": 30})
    assert later.since(ApiServerLoad(7, {"pods": 100})) == ApiServerLoad(2, {"pods": 400, "nodes": 30})


def test_the_peak_is_that_of_the_largest_invocation() -> None:
    lines = [
        f"REPORT RequestId: {at}\tMemory Size: 1769 MB\tMax Memory Used: {at} MB\tProcessor Time: {at}.00 ms"
        for at in (90, 130, 110)
    ]
    assert processor_seconds("START\n" + "\n".join(lines)) == 0.13
    assert peak_megabytes("START\n" + "\n".join(lines)) == 130
    assert peak_megabytes("START RequestId: 1\n") == 0


def test_pods_are_of_the_size_that_is_measured_and_bound() -> None:
    pod, status = new_pod(1234)
    assert 5_000 < len(json.dumps(pod)) + len(json.dumps(status)) < 8_000
    assert pod["spec"]["nodeName"] == new_node(123)["metadata"]["name"]
    assert pod["metadata"]["namespace"] in NAMESPACES
    assert status["phase"] == "Running"


def test_nodes_are_large_and_nobody_but_their_users_removes_them() -> None:
    node = new_node(7)
    assert len(json.dumps(node)) > 10_000
    assert "finalizers" not in node["metadata"]
    assert "karpenter.sh/nodepool" not in node["metadata"]["labels"]
    # Else each would be looked at for every NodeClaim whose node is late.
    assert "eks.amazonaws.com/nodegroup" in node["metadata"]["labels"]


@pytest.mark.parametrize(("pods", "seconds"), [(1_000, 0.5), (2_000, 1.0), (10_000, 1.0), (50_000, 3.0), (90_000, 3.0)])
def test_the_goal_grows_with_the_cluster(pods: int, seconds: float) -> None:
    assert seconds_goal(FROM_STATE, pods) == seconds
    assert seconds_goal(FROM_LISTS, pods) == 10


def test_every_way_has_goals_and_a_row_of_ratios() -> None:
    launches = (
        Launch(2.0, 0.3, 100, 10, 5_000_000),
        Launch(0.5, 0.25, 128, 12, 5_000_000),
        Launch(1.0, 0.2, 90, 11, 5_000_000),
    )
    lines = list(table(Figure(1_000, 10_000, way, launches) for way in WAYS))
    assert len(lines) == 2 + len(WAYS)
    assert lines[2] == "| 1,000 | 10,000 | state | 1.00 (2.00) | 1 | 1.00 | 0.25 | 128 | 512 | 0.25 | 11 | 5.00 |"
    assert {megabytes_goal(way) for way in WAYS} == {512, 1024}
    assert len({line.count("|") for line in lines}) == 1


def test_a_size_is_nodes_and_pods() -> None:
    assert size("5000/50000") == (5_000, 50_000)
    for wrong in ("", "100", "100/", "0/10", "a/b", "1/2/3"):
        with pytest.raises(argparse.ArgumentTypeError, match="NODES/PODS"):
            size(wrong)


def test_a_held_process_stands_still_and_then_goes_on() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        with held([process.pid]):
            # Only this tells a process that stopped from one that ends: its signal is delivered before waitid returns.
            found = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
            assert found is not None
            assert found.si_status == signal.SIGSTOP
        answer, _ = process.communicate(b"on it goes")
    assert answer == b"on it goes"


def test_holding_a_process_that_ends_meanwhile_is_fine() -> None:
    process = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    with held([process.pid]):
        process.kill()
        process.communicate()


def test_children_are_found_by_their_parent() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        assert process.pid in children(os.getpid())
        assert children(process.pid) == ()


def test_children_run_on_one_processor() -> None:
    with subprocess.Popen(["cat"], stdin=subprocess.PIPE) as process:
        hold_to_one_processor([process.pid])
        assert len(os.sched_getaffinity(process.pid)) == 1
        release_processors([process.pid])
        assert os.sched_getaffinity(process.pid) == os.sched_getaffinity(0)


def test_single_figures_stand_beside_their_goals() -> None:
    rows = [(100, 1_000, Measured("seconds", 1.25, 5.0)), (100, 1_000, Measured("plans", 2, None))]
    assert list(measured_table(rows))[2:] == ["| 100 | 1,000 | seconds | 1.25 | 5 |", "| 100 | 1,000 | plans | 2 |  |"]


def test_calls_are_read_from_now_on_and_only_whole_lines(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    bought = {"action": "CreateFleet", "request": {}, "time": "2026-01-01T00:00:10+00:00", "milliseconds": 500}
    file.write_text(json.dumps(bought) + "\n")
    log = CallLog(file)
    tried = bought | {"request": {"DryRun": True}}
    with file.open("a") as out:
        out.write("".join(json.dumps(call) + "\n" for call in (tried, bought, {"action": "PutItem"})) + '{"acti')
    assert log.fleets() == (bought,)
    assert asked_at(bought) == datetime(2026, 1, 1, 0, 0, 9, 500_000, tzinfo=UTC).timestamp()


def test_a_call_that_was_being_written_at_the_beginning_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "calls.jsonl"
    file.write_text('{"action": "PutItem"}\n{"action": "Put')
    log = CallLog(file)
    assert list(log.calls()) == []
    with file.open("a") as out:
        out.write('Object"}\n{"action": "GetItem"}\n')
    assert list(log.calls()) == [{"action": "GetItem"}]


def test_plans_of_notices_are_counted_in_the_log() -> None:
    line = json.dumps({"message": DECIDED_ON_INTERRUPTION.message, "decision": "d", "nodeclaims": 47})
    assert planned(f'START\n{line}\n{{"message":"tainted node"}}\n{line}\n') == [47, 47]


def test_pods_of_the_burst_fill_nodes_of_eight_processors() -> None:
    pod = decode_pod(burst_pod(3))
    assert PODS_PER_NODE * pod.requests["cpu"] < 8_000 < (PODS_PER_NODE + 1) * pod.requests["cpu"]
    assert decode_nodepool_strict(json.loads(burst_pool())).labels == pod.node_selector


def test_each_interrupted_pod_needs_a_node_of_its_own() -> None:
    pool, deployment = json.loads(interrupted(7))["items"]
    pod = decode_pod(deployment["spec"]["template"] | {"metadata": {"name": "x"}})
    assert deployment["spec"]["replicas"] == 7
    assert pod.host_ports
    assert decode_nodepool_strict(pool).labels == pod.node_selector


def test_what_a_process_uses_is_read_from_the_kernel() -> None:
    assert process_processor_seconds(os.getpid()) > 0
    assert memory_megabytes(os.getpid(), "VmHWM") >= memory_megabytes(os.getpid(), "VmRSS") * 0.9
