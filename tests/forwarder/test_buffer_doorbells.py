"""What rings for CapacityBuffers, and what they refer to."""

from itertools import pairwise

import msgspec
import pytest

from forwarder.doorbells import PODS
from forwarder.kinds import decode_manifest
from forwarder.loop import (
    ROOM_SECONDS,
)
from forwarder.object_cache import STALE_SECONDS
from forwarder.watcher import ObjectChange
from tests.forwarder import objects
from tests.forwarder.objects import decoded
from tests.forwarder.scene import Scene, change, listed


def buffer(replicas: int = 2, **status: object) -> ObjectChange:
    """A CapacityBuffer of namespace default for the Deployment web; ``status`` as the functions write it."""
    metadata = {"name": "spare", "namespace": "default", "uid": "uid-spare"}
    spec = {"scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "web"}, "replicas": replicas}
    fields = {"metadata": metadata, "spec": spec, "status": status}
    return change("CapacityBuffer", "uid-spare", decoded("CapacityBuffer", fields))


def deployment(cpu: str = "1", replicas: int = 3) -> ObjectChange:
    containers = [{"name": "c", "resources": {"requests": {"cpu": cpu}}}]
    fields = {
        "metadata": {"name": "web", "namespace": "default", "uid": "uid-web"},
        "spec": {"replicas": replicas, "template": {"spec": {"containers": containers}}},
    }
    return change("Deployment default", "uid-web", decode_manifest(msgspec.Raw(msgspec.json.encode(fields))))


def with_buffer() -> Scene:
    """A buffer and its Deployment are known."""
    scene = Scene().start()
    scene.tell(buffer())
    scene.tell(*listed("Deployment default"), deployment())
    scene.pass_time(5)
    scene.sent.clear()
    return scene


def test_a_capacity_buffer_rings_at_once_and_what_it_refers_to_is_watched() -> None:
    scene = Scene().start()
    scene.tell(buffer())
    scene.pass_time(2)
    assert scene.rang() == [PODS]
    assert scene.scalables[-1] == {("Deployment", "default")}
    assert not scene.loop.cache.is_synced(scene.now)
    scene.tell(*listed("Deployment default"))
    assert scene.loop.cache.is_synced(scene.now)


@pytest.mark.parametrize(("told", "rings"), [
    (buffer(replicas=5), True),
    (deployment(cpu="2"), True),
    (deployment(replicas=4), True),
    (deployment(), False),
    (buffer(replicas=2, conditions=[{"type": "ReadyForProvisioning", "status": "True"}]), False),
    (change("CapacityBuffer", "uid-spare", None), True),
])  # fmt: skip
def test_what_a_capacity_buffer_asks_for_rings(told: ObjectChange, rings: bool) -> None:
    """Its status, which the functions write, rings nothing."""
    scene = with_buffer()
    scene.tell(told)
    scene.pass_time(2)
    assert scene.rang() == ([PODS] if rings else [])


NODE_OF_POOL = change("Node", "uid-n", decoded("Node", objects.node()))


@pytest.mark.parametrize("told", [
    pytest.param(change("Pod", "uid-p", decoded("Pod", objects.pod(node="n"))), id="a pod took room"),
    pytest.param(change("Node", "uid-n", decoded("Node", objects.node(taints=("a",)))), id="a node was tainted"),
    pytest.param(change("Node", "uid-n", None), id="a node went"),
    pytest.param(change("NodeClaim", "uid-c", decoded("NodeClaim", objects.claim(decided=True))), id="a node comes"),
])  # fmt: skip
def test_room_that_a_capacity_buffer_may_have_lost_or_won_rings(told: ObjectChange) -> None:
    """No pod waits then; only a plan shows whether the buffer still has its capacity."""
    scene = with_buffer()
    scene.tell(NODE_OF_POOL)
    scene.pass_time(2 * ROOM_SECONDS)
    scene.sent.clear()
    scene.tell(told)
    scene.pass_time(3)
    assert PODS in scene.rang()


def test_without_a_capacity_buffer_room_rings_for_no_plan() -> None:
    scene = Scene().start(Node=decoded("Node", objects.node()))
    scene.tell(change("Pod", "uid-p", decoded("Pod", objects.pod(node="n"))))
    scene.tell(change("Node", "uid-n", None))
    scene.pass_time(20)
    assert PODS not in scene.rang()


def test_much_that_moves_beside_a_capacity_buffer_rings_for_few_plans() -> None:
    scene = with_buffer()
    scene.tell(NODE_OF_POOL)
    scene.pass_time(2 * ROOM_SECONDS)
    scene.sent.clear()
    for number in range(60):
        scene.tell(change("Pod", f"uid-{number}", decoded("Pod", objects.pod(str(number), node="n"))))
        scene.pass_time(0.5)
    scene.pass_time(2 * ROOM_SECONDS)
    times = [at for at, bells in scene.sent if PODS in bells]
    assert 30 / ROOM_SECONDS <= len(times) <= 30 / ROOM_SECONDS + 2
    assert all(later - earlier >= ROOM_SECONDS for earlier, later in pairwise(times))


def test_what_no_capacity_buffer_refers_to_is_watched_no_more() -> None:
    scene = with_buffer()
    scene.tell(change("CapacityBuffer", "uid-spare", None))
    assert scene.scalables[-1] == frozenset()
    scene.now += STALE_SECONDS + 1
    scene.pass_time(0.5)
    assert scene.loop.cache.is_synced(scene.now)


def test_a_capacity_buffer_is_written_with_what_it_refers_to() -> None:
    scene = with_buffer()
    scene.tell(deployment(cpu="3"))
    scene.pass_time(2)
    (spare,) = scene.writes.states[-1].changes.changed.capacity_buffers
    assert spare.template_pod is not None
    assert spare.template_pod.requests["cpu"] == 3000
    scene.tell(change("CapacityBuffer", "uid-spare", None))
    scene.pass_time(2)
    assert scene.writes.states[-1].changes.gone["CapacityBuffer"] == ("uid-spare",)
