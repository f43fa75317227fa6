"""The steps of the demo. Each says what must be seen, and fails when it is not."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local.cdk_deployment import ROOT, CdkDeployment
from local.demo.printer import Printer
from local.demo.timeline import Timeline
from local.stack import Stack

EXAMPLES = ROOT / "examples"
ALIAS_VERSION = "v20250821"
# `inflate` for a manifest that holds no pods: what scale-up-cmr.yaml has, with the selectors that file asks for.
INFLATE = """
apiVersion: apps/v1
kind: Deployment
metadata: {{name: inflate}}
spec:
  replicas: {replicas}
  selector: {{matchLabels: {{app: inflate}}}}
  template:
    metadata: {{labels: {{app: inflate}}}}
    spec:
      nodeSelector: {selector}
      containers:
      - name: inflate
        image: public.ecr.aws/eks-distro/kubernetes/pause:3.7
        resources: {{requests: {{cpu: 1, memory: 1.5Gi}}}}
"""
ZERO_NODES_SECONDS = 120
# Seconds say how long things take at most where nothing else runs. So many times as long is waited for each.
PATIENCE = 3


class ExpectationFailed(AssertionError):
    """Something that must happen did not."""


@dataclass
class DemoRun:
    """The stack, its deployment, what is watched, and what was measured on the way."""

    stack: Stack
    deployment: CdkDeployment
    timeline: Timeline
    printer: Printer
    durations: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def section(self, title: str) -> Iterator[float]:
        self.printer.section(title)
        started = time.time()
        yield started
        self.durations[title] = f"{time.time() - started:6.1f} s"

    def wait_for(self, what: str, holds: Callable[[Timeline], bool], *, seconds: float) -> None:
        """``seconds``: how long it takes at most on a machine that does nothing else."""
        if not self.timeline.wait_until(holds, seconds=PATIENCE * seconds):
            raise ExpectationFailed(f"not seen within {PATIENCE * seconds:.0f} s: {what}" + self._trouble())
        self.printer.say(f"seen: {what}")

    def _trouble(self) -> str:
        return f" (a source was away: {self.timeline.last_error})" if self.timeline.last_error else ""

    def apply(self, name: str, *flags: str, check: bool = True) -> Any:
        """`kubectl apply` of an example, byte for byte but for its ${…}."""
        return self.stack.kubectl("apply", *flags, "-f", "-", input=self.render_example(name), check=check)

    def delete(self, name: str) -> None:
        self.stack.kubectl("delete", "-f", "-", f"--timeout={PATIENCE * 90}s", input=self.render_example(name))

    def render_example(self, name: str) -> str:
        text = Path(EXAMPLES / name).read_text()
        values = {
            "CLUSTER_NAME": self.stack.cluster,
            "EKS_CLUSTER_NAME": self.stack.cluster,
            "ALIAS_VERSION": ALIAS_VERSION,
            "KARPENTER_NODE_ROLE": f"KarpenterNodeRole-{self.stack.cluster}",
        }
        for key, value in values.items():
            text = text.replace("${" + key + "}", value)
        return text

    def deploy_inflate(self, replicas: int, selector: dict[str, str]) -> None:
        self.stack.kubectl("apply", "-f", "-", input=INFLATE.format(replicas=replicas, selector=selector))

    def print_objects(self) -> None:
        self.printer.block(self.stack.kubectl("get", "nodepools,ec2nodeclasses,nodeclaims,nodes", "-o", "wide").stdout)

    def pods_running(self, app: str, count: int) -> Callable[[Timeline], bool]:
        def holds(timeline: Timeline) -> bool:
            pods = [p for p in timeline.objects_of("pods") if p["metadata"].get("labels", {}).get("app") == app]
            up = [p for p in pods if p.get("status", {}).get("phase") == "Running"]
            return len(up) == count == len(pods)

        return holds

    def instances(self) -> list[dict[str, Any]]:
        """Instances that are alive, as EC2 has them."""
        listed = self.stack.control("GET", "/_local/instances")
        alive = listed["instances"] if isinstance(listed, dict) else listed
        return [instance for instance in alive if instance["state"] in ("pending", "running", "stopping", "stopped")]


def nodeclaims_of(timeline: Timeline, pool: str) -> list[dict[str, Any]]:
    return [
        c
        for c in timeline.objects_of("nodeclaims")
        if c["metadata"].get("labels", {}).get("karpenter.sh/nodepool") == pool
    ]


def are_initialized(timeline: Timeline, pool: str, count: int) -> bool:
    nodeclaims = nodeclaims_of(timeline, pool)
    return len(nodeclaims) == count and all(map(_is_initialized, nodeclaims))


def _is_initialized(nodeclaim: Mapping[str, Any]) -> bool:
    conditions = nodeclaim.get("status", {}).get("conditions") or ()
    return any(condition["type"] == "Initialized" and condition["status"] == "True" for condition in conditions)


def expect(holds: bool, what: str) -> None:
    if not holds:
        raise ExpectationFailed(what)
