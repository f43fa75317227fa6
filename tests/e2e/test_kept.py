"""Nodes that no pod asks for: a static NodePool keeps its number, a CapacityBuffer keeps room."""

import time
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from local.demo.deploy import session
from tests.contract import capacity_buffers
from tests.e2e.world import INFLATE, World

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
def static(world: World) -> Iterator[World]:
    """A static pool of two nodes; it goes with its nodes."""
    world.put(keeping(2))
    yield world
    world.stack.kubectl("delete", "nodepool", "fixed")


def ready(world: World, pool: str) -> dict[str, str]:
    """Nodes of a pool that are registered and Ready: instance → name of the node."""
    wanted = {"karpenter.sh/nodepool": pool, "karpenter.sh/registered": "true"}.items()
    return {
        one["spec"]["providerID"].rpartition("/")[2]: one["metadata"]["name"]
        for one in world.objects("nodes")
        if wanted <= one["metadata"]["labels"].items()
        and any((each["type"], each["status"]) == ("Ready", "True") for each in one["status"]["conditions"])
    }


def stands(world: World, nodes: int) -> bool:
    """So many instances, each of them promised, and a node of the static pool on each."""
    return len(world.instances()) == nodes and world.instances() == world.promised() == ready(world, "fixed").keys()


def test_a_static_pool_keeps_its_nodes_and_gives_them_back(static: World) -> None:
    static.until("two nodes without a pod", lambda: stands(static, 2), seconds=90)
    victim, other = sorted(static.instances())
    ec2 = session(static.stack).client("ec2", endpoint_url=static.stack.aws_endpoint)
    ec2.terminate_instances(InstanceIds=[victim])
    static.until("it is replaced", lambda: stands(static, 2) and victim not in static.instances(), seconds=120)
    assert other in static.instances()
    static.put(keeping(1))
    static.until("one node is left", lambda: stands(static, 1), seconds=90)
    static.put(keeping(0))
    static.until("none is left", lambda: not static.instances() and not static.objects("nodeclaims"), seconds=90)


@pytest.fixture
def buffered(world: World) -> Iterator[World]:
    """Room for three pods like those of inflate; it goes with its buffer."""
    world.put(capacity_buffers.DEFINITION)
    world.until("buffers are served", lambda: world.api.find(BUFFERS) is not None, seconds=30)
    template = yaml.safe_load(INFLATE)["spec"]["template"]
    world.put({"apiVersion": "v1", "kind": "PodTemplate", "metadata": {"name": "inflate"}, "template": template})
    world.put(
        {
            "apiVersion": "autoscaling.x-k8s.io/v1beta1",
            "kind": "CapacityBuffer",
            "metadata": {"name": "spare", "namespace": "default"},
            "spec": {"podTemplateRef": {"name": "inflate"}, "replicas": 3},
        }
    )
    yield world
    world.stack.kubectl("delete", "capacitybuffers,podtemplates", "--all")


def told(world: World) -> tuple[str, str, int]:
    """Of the buffer: the reasons of ReadyForProvisioning and Provisioning, and for how many pods it keeps room."""
    (buffer,) = world.api.get(BUFFERS)["items"]
    status = buffer.get("status") or {}
    reasons = {one["type"]: one["reason"] for one in status.get("conditions") or ()}
    return reasons.get("ReadyForProvisioning", ""), reasons.get("Provisioning", ""), status.get("replicas", 0)


def nodes_of_pods(world: World) -> set[str]:
    pods = [one for one in world.objects("pods") if one["metadata"].get("labels", {}).get("app") == "inflate"]
    return {one["spec"].get("nodeName", "") for one in pods}


def has_room(world: World) -> bool:
    """Said by the buffer, and there: what is on its way counts for the status already."""
    there = bool(world.instances()) and world.instances() == ready(world, "default").keys()
    return there and told(world) == ("Resolved", "FitsExistingCapacity", 3)


def test_a_buffer_keeps_room_that_pods_take_and_that_is_filled_up_anew(buffered: World) -> None:
    buffered.until("there is room", lambda: has_room(buffered), seconds=120)
    before, started = ready(buffered, "default"), time.time()
    buffered.scale(3)
    buffered.until("three pods run", lambda: buffered.running("inflate") == 3, seconds=60)
    assert nodes_of_pods(buffered) <= set(before.values())
    buffered.until("more is bought", lambda: buffered.instances() > before.keys(), seconds=120)
    assert buffered.calls("CreateFleet", started)
    assert not has_room(buffered)
    buffered.until("it has joined", lambda: buffered.instances() == ready(buffered, "default").keys(), seconds=60)
    # The status would follow within a minute.
    buffered.ring("Provision", "pods")
    buffered.until("there is room again", lambda: has_room(buffered), seconds=60)
