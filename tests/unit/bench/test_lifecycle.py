"""What the benchmark of nodes' lives makes of what it saw."""

import json
import os
import subprocess
import sys
from datetime import UTC, datetime

import pytest

from bench.lifecycle import karpenter
from bench.lifecycle.life import LOOK_SECONDS, further_pods, per_second, since
from bench.lifecycle.processors import AWS, CONTROL_PLANE, NODES, PROVISIONER, Processors
from bench.scale.workloads import interrupted

BEGUN = datetime(2026, 1, 1, tzinfo=UTC).timestamp()


def test_the_time_of_a_stage_is_that_of_its_condition_once_it_is_true() -> None:
    def claim(status: str, time: str) -> dict[str, object]:
        return {"status": {"conditions": [{"type": "Registered", "status": status, "lastTransitionTime": time}]}}

    claims = [claim("True", "2026-01-01T00:00:12Z"), claim("Unknown", "2026-01-01T00:00:01Z"), {}]
    assert since(claims, "Registered", BEGUN) == [12.0]
    assert since(claims, "Initialized", BEGUN) == []
    assert since(claims, "Registered", BEGUN + 12.7) == [0.0], "conditions have whole seconds"


@pytest.mark.parametrize(
    ("counts", "rate"),
    [
        ([], 0.0),
        ([(1.0, 0), (2.0, 0)], 0.0),
        ([(1.0, 0), (2.0, 10), (3.0, 20), (4.0, 20)], 10.0),
        ([(1.0, 20)], 20 / LOOK_SECONDS),
    ],
)
def test_evictions_are_counted_from_the_last_look_without_any_to_the_first_with_all(
    counts: list[tuple[float, int]], rate: float
) -> None:
    assert per_second(counts) == pytest.approx(rate)


def test_further_pods_share_nodes_and_belong_to_another_deployment() -> None:
    first = json.loads(interrupted(60))["items"][1]
    further = json.loads(further_pods(interrupted(60), 140))
    assert further["spec"]["replicas"] == 140
    assert further["metadata"]["name"] != first["metadata"]["name"]
    assert further["spec"]["selector"]["matchLabels"] == further["spec"]["template"]["metadata"]["labels"]
    assert further["spec"]["selector"] != first["spec"]["selector"]
    (container,) = further["spec"]["template"]["spec"]["containers"]
    assert "ports" not in container, "a port of the node allows one pod on each"


def test_karpenters_pool_asks_for_what_its_provider_for_kwok_has() -> None:
    pool, deployment = json.loads(karpenter.workload(5))["items"]
    assert deployment == json.loads(interrupted(5))["items"][1]
    assert pool["spec"]["template"]["spec"]["nodeClassRef"]["kind"] == "KWOKNodeClass"
    assert "karpenter.k8s.aws" not in json.dumps(pool)


def test_what_a_function_used_is_not_what_the_local_aws_used_and_counts_after_its_end() -> None:
    processors = Processors({"aws": os.getpid()})
    before = processors.used()
    busy = "import time\nwhile time.process_time() < 0.3: pass\nprint(flush=True)\ninput()"
    with subprocess.Popen(
        [sys.executable, "-c", busy], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as function:
        assert function.stdout is not None
        function.stdout.readline()
        running = processors.used()
        function.communicate("\n")
    after = processors.used()
    assert running[PROVISIONER] - before[PROVISIONER] >= 0.25
    assert after[PROVISIONER] >= running[PROVISIONER]
    assert (after[CONTROL_PLANE], after[NODES]) == (0, 0)
    assert after[AWS] >= before[AWS] > 0


def test_karpenters_controller_counts_beside_the_parts_of_the_stack() -> None:
    used = Processors({"kube-apiserver": os.getpid(), "kwok": 0}, [os.getpid()]).used()
    assert used[CONTROL_PLANE] == pytest.approx(used[PROVISIONER], abs=0.05)
    assert used[CONTROL_PLANE] > 0
