"""How long a pending pod waits for its CreateFleet, beyond the batching window, with everything warm."""

import json
import time
from collections.abc import Iterator
from datetime import datetime
from statistics import median
from typing import Any, Final

from local.demo.deploy import ROOT, Deployment
from local.stack import Stack

# With the first, five pods on five nodes of two cores: the limit of basic-gen6.yaml.
RUNS: Final = 4
# The forwarder closes its batch when nothing came for this long.
WINDOW_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 120
POD: Final = """
apiVersion: v1
kind: Pod
metadata: {{name: bench-{number}}}
spec:
  nodeSelector: {{eks-team: my-team}}
  containers:
  - {{name: app, image: "public.ecr.aws/eks-distro/kubernetes/pause:3.7", resources: {{requests: {{cpu: 1500m}}}}}}
"""


def event_to_fleet(stack: Stack, deployment: Deployment) -> Iterator[tuple[str, str, str]]:
    """From kube-scheduler's verdict, as the forwarder's watch sees it, to the request EC2 receives."""
    text = (ROOT / "examples/basic-gen6.yaml").read_text().replace("${CLUSTER_NAME}", stack.cluster)
    stack.kubectl("apply", "-f", "-", input=text)
    spent = [_one(stack, number) for number in range(RUNS + 1)][1:]
    figure = f"{median(spent):.2f} s (slowest {max(spent):.2f})"
    yield "unschedulable event → CreateFleet, warm, beyond the window", figure, "≤ 0.5 s"


def _one(stack: Stack, number: int) -> float:
    """The first pod also waits for class, catalog and forwarder; the caller leaves it out."""
    seen = stack.control("GET", "/_local/calls?since=0")["next"]
    stack.kubectl("apply", "-f", "-", input=POD.format(number=number))
    refused = _refused(stack, f"bench-{number}")
    fleet = _fleet(stack, seen)
    stack.kubectl("wait", "--for=condition=Ready", f"pod/bench-{number}", f"--timeout={PATIENCE_SECONDS}s")
    time.sleep(5)
    return fleet - refused - WINDOW_SECONDS


def _refused(stack: Stack, pod: str) -> float:
    """When the pod was seen Unschedulable: conditions have whole seconds only, so it is watched."""
    while True:
        found: dict[str, Any] = json.loads(stack.kubectl("get", "pod", pod, "-o", "json").stdout)
        conditions = found["status"].get("conditions") or ()
        if any(c["type"] == "PodScheduled" and c.get("reason") == "Unschedulable" for c in conditions):
            return time.time()
        time.sleep(0.02)


def _fleet(stack: Stack, since: int) -> float:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for call in stack.control("GET", f"/_local/calls?since={since}")["calls"]:
            if call["action"] == "CreateFleet":
                return datetime.fromisoformat(call["time"]).timestamp()
        time.sleep(0.1)
    raise TimeoutError("no CreateFleet for the pod")
