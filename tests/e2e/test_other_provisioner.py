"""A Karpenter that begins to run beside the deployed functions is noticed by them, and so is that it has gone."""

import time
from collections.abc import Iterator

import pytest

from tests.e2e.deployed_stack import DeployedStack

pytestmark = pytest.mark.stack

LABELED = {"app.kubernetes.io/name": "karpenter"}
POD = {"schedulerName": "nobody", "containers": [{"name": "controller", "image": "pause"}]}
KARPENTER = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "karpenter", "namespace": "default", "labels": LABELED},
    "spec": {"selector": {"matchLabels": LABELED}, "template": {"metadata": {"labels": LABELED}, "spec": POD}},
}
# Doorbells for pods are gathered for a second, and a launch is sent within the next.
LAUNCH_SECONDS = 10


@pytest.fixture
def karpenter(deployed_stack: DeployedStack) -> Iterator[None]:
    """A Deployment that is Karpenter's by its label; its pod never runs."""
    deployed_stack.apply_object(KARPENTER)
    yield
    deployed_stack.stack.kubectl("delete", "deployment", "karpenter", "--ignore-not-found")


@pytest.mark.usefixtures("karpenter")
def test_nothing_is_launched_while_karpenter_runs(deployed_stack: DeployedStack) -> None:
    """The next sweep notices, and the one after notices that it has gone: a minute at most for each."""

    def is_said() -> bool:
        found = deployed_stack.stack.kubectl("get", "events", "--field-selector", "reason=OtherProvisioner")
        return "Deployment default/karpenter manages the NodePools, too" in found.stdout

    deployed_stack.wait_until("the event on the NodePool", is_said, seconds=180)
    since = time.time()
    deployed_stack.scale(1)
    time.sleep(LAUNCH_SECONDS)
    assert deployed_stack.calls("CreateFleet", since) == []
    deployed_stack.stack.kubectl("delete", "deployment", "karpenter")
    deployed_stack.wait_until("inflate runs", lambda: deployed_stack.running("inflate") == 1, seconds=240)
