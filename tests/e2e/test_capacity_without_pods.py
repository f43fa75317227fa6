"""Nodes that no pod asks for: a static NodePool keeps its number, a CapacityBuffer keeps room."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from local.cdk_deployment import administrator_session
from tests.contract import capacity_buffers
from tests.e2e.deployed_stack import INFLATE, DeployedStack

pytestmark = pytest.mark.stack

BUFFERS = f"/apis/{capacity_buffers.SERVED_AT}"


def keeping(replicas: int) -> dict[str, Any]:
    """NodePool ``fixed`` of so many m5.large."""
    of_class = {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}
    small = {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m5.large"]}
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "fixed"},
        "spec": {
            "replicas": replicas,
            "template": {"spec": {"nodeClassRef": of_class, "requirements": [small]}},
        },
    }


@pytest.fixture
def static(deployed_stack: DeployedStack) -> Iterator[DeployedStack]:
    """A static pool of two nodes; it goes with its nodes."""
    deployed_stack.apply_object(keeping(2))
    yield deployed_stack
    deployed_stack.stack.kubectl("delete", "nodepool", "fixed")


def ready(deployed_stack: DeployedStack, pool: str) -> dict[str, str]:
    """Nodes of a pool that are registered and Ready: instance → name of the node."""
    wanted = {"karpenter.sh/nodepool": pool, "karpenter.sh/registered": "true"}.items()
    return {
        one["spec"]["providerID"].rpartition("/")[2]: one["metadata"]["name"]
        for one in deployed_stack.objects("nodes")
        if wanted <= one["metadata"]["labels"].items()
        and any((each["type"], each["status"]) == ("Ready", "True") for each in one["status"]["conditions"])
    }


def stands(deployed_stack: DeployedStack, nodes: int) -> bool:
    """So many instances, each of them promised, and a node of the static pool on each."""
    return (
        len(deployed_stack.instances()) == nodes
        and deployed_stack.instances() == deployed_stack.claimed_instances() == ready(deployed_stack, "fixed").keys()
    )


def test_a_static_pool_keeps_its_nodes_and_gives_them_back(static: DeployedStack) -> None:
    static.wait_until("two nodes without a pod", lambda: stands(static, 2), seconds=90)
    victim, other = sorted(static.instances())
    ec2 = administrator_session(static.stack).client("ec2", endpoint_url=static.stack.aws_endpoint)
    ec2.terminate_instances(InstanceIds=[victim])
    static.wait_until("it is replaced", lambda: stands(static, 2) and victim not in static.instances(), seconds=120)
    assert other in static.instances()
    static.apply_object(keeping(1))
    static.wait_until("one node is left", lambda: stands(static, 1), seconds=90)
    static.apply_object(keeping(0))
    static.wait_until("none is left", lambda: not static.instances() and not static.objects("nodeclaims"), seconds=90)


@pytest.fixture
def buffered(deployed_stack: DeployedStack) -> Iterator[DeployedStack]:
    """Room for three pods like those of inflate; it goes with its buffer."""
    deployed_stack.apply_object(capacity_buffers.DEFINITION)
    deployed_stack.wait_until("buffers are served", lambda: deployed_stack.api.find(BUFFERS) is not None, seconds=30)
    template = yaml.safe_load(INFLATE)["spec"]["template"]
    deployed_stack.apply_object(
        {"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "inflate"}, "template": template}
    )
    deployed_stack.apply_object(
        {
            "apiVersion": "autoscaling.x-k8s.io/v1beta1",
            "kind": "CapacityBuffer",
            "metadata": {"name": "spare", "namespace": "default"},
            "spec": {"podTemplateRef": {"name": "inflate"}, "replicas": 3},
        }
    )
    yield deployed_stack
    deployed_stack.stack.kubectl("delete", "capacitybuffers,podtemplates", "--all")


def told(deployed_stack: DeployedStack) -> tuple[str, str, int]:
    """Of the buffer: the reasons of ReadyForProvisioning and Provisioning, and for how many pods it keeps room."""
    (buffer,) = deployed_stack.api.get(BUFFERS)["items"]
    status = buffer.get("status") or {}
    reasons = {condition["type"]: condition["reason"] for condition in status.get("conditions") or ()}
    return reasons.get("ReadyForProvisioning", ""), reasons.get("Provisioning", ""), status.get("replicas", 0)


def nodes_of_pods(deployed_stack: DeployedStack) -> set[str]:
    pods = [one for one in deployed_stack.objects("pods") if one["metadata"].get("labels", {}).get("app") == "inflate"]
    return {pod["spec"].get("nodeName", "") for pod in pods}


def has_room(deployed_stack: DeployedStack) -> bool:
    """Said by the buffer, and there: what is on its way counts for the status already."""
    there = bool(deployed_stack.instances()) and deployed_stack.instances() == ready(deployed_stack, "default").keys()
    return there and told(deployed_stack) == ("Resolved", "FitsExistingCapacity", 3)


def test_a_buffer_keeps_room_that_pods_take_and_that_is_filled_up_anew(buffered: DeployedStack) -> None:
    buffered.wait_until("there is room", lambda: has_room(buffered), seconds=120)
    before, started = ready(buffered, "default"), time.time()
    buffered.scale(3)
    buffered.wait_until("three pods run", lambda: buffered.running("inflate") == 3, seconds=60)
    assert nodes_of_pods(buffered) <= set(before.values())
    buffered.wait_until("more is bought", lambda: buffered.instances() > before.keys(), seconds=120)
    assert buffered.calls("CreateFleet", started)
    buffered.wait_until("it has joined", lambda: buffered.instances() == ready(buffered, "default").keys(), seconds=60)
    assert ready(buffered, "default").keys() > before.keys()
    # The status would follow within a minute.
    buffered.ring("Provision", "pods")
    buffered.wait_until("there is room again", lambda: has_room(buffered), seconds=60)
