"""How long a pending pod waits for its CreateFleet, beyond the batching window, with everything warm."""

import time
from collections.abc import Iterator
from datetime import datetime
from statistics import median
from typing import Final

from kubernetes import client, config, watch

from local.cdk_deployment import ROOT, CdkDeployment
from local.stack import Stack

RUNS: Final = 4
# The forwarder closes its batch when nothing came for this long.
WINDOW_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 120
# Each pod asks for the same port of its node, so that each needs a node of its own.
POD: Final = """
apiVersion: v1
kind: Pod
metadata: {{name: bench-{number}}}
spec:
  nodeSelector: {{eks-team: my-team}}
  containers:
  - {{name: app, image: "public.ecr.aws/eks-distro/kubernetes/pause:3.7", resources: {{requests: {{cpu: 500m}}}},
      ports: [{{containerPort: 9, hostPort: 9}}]}}
"""


def event_to_fleet_seconds(stack: Stack, deployment: CdkDeployment) -> Iterator[tuple[str, str, str]]:
    """From kube-scheduler's verdict, as the forwarder's watch sees it, to the request EC2 receives."""
    text = (ROOT / "examples/basic-gen6.yaml").read_text().replace("${CLUSTER_NAME}", stack.cluster)
    text = text.replace('cpu: "10"', 'cpu: "100"')
    stack.kubectl("apply", "-f", "-", input=text)
    core = client.CoreV1Api(config.new_client_from_config(str(stack.kubeconfig)))  # type: ignore[no-untyped-call]
    spent = [_one(stack, core, number) for number in range(RUNS + 1)][1:]
    figure = f"{median(spent):.2f} s (slowest {max(spent):.2f})"
    yield "unschedulable event → CreateFleet, warm, beyond the window", figure, "≤ 0.5 s"


def _one(stack: Stack, core: client.CoreV1Api, number: int) -> float:
    """The first pod also waits for class, catalog and forwarder; the caller leaves it out."""
    seen = stack.control("GET", "/_local/calls?since=0")["next"]
    stack.kubectl("apply", "-f", "-", input=POD.format(number=number))
    refused = _refused(core, f"bench-{number}")
    fleet = _fleet(stack, seen)
    stack.kubectl("wait", "--for=condition=Ready", f"pod/bench-{number}", f"--timeout={PATIENCE_SECONDS}s")
    time.sleep(5)
    return fleet - refused - WINDOW_SECONDS


def _refused(core: client.CoreV1Api, pod: str) -> float:
    """When a watch says that the pod is Unschedulable: conditions have whole seconds only."""
    events = watch.Watch().stream(  # type: ignore[no-untyped-call]
        core.list_namespaced_pod, "default", field_selector=f"metadata.name={pod}", timeout_seconds=PATIENCE_SECONDS
    )
    for event in events:
        conditions = event["object"].status.conditions or ()
        if any(condition.type == "PodScheduled" and condition.reason == "Unschedulable" for condition in conditions):
            return time.time()
    raise TimeoutError(f"pod {pod} was never Unschedulable")


def _fleet(stack: Stack, since: int) -> float:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        for call in stack.control("GET", f"/_local/calls?since={since}")["calls"]:
            if call["action"] == "CreateFleet" and not call["request"].get("DryRun"):
                # The log says when the call was answered, and how long that took.
                return datetime.fromisoformat(call["time"]).timestamp() - float(call["milliseconds"]) / 1000
        time.sleep(0.1)
    raise TimeoutError("no CreateFleet for the pod")
