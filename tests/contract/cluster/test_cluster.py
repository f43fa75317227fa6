"""ClusterPort: the fake and the real API server obey one suite. What is read, created and deleted."""

import json
import time
from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from local.stack import Stack
from spotwright.adapters.kubernetes.cluster import KubernetesCluster
from spotwright.errors import Conflict
from spotwright.model import labels
from spotwright.model.karpenter.capacity_buffer import CapacityBufferStatus
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, find_condition
from spotwright.model.kubernetes.node import Node
from spotwright.telemetry import events
from spotwright.workflows.ports.cluster import ClusterPort
from tests.contract.cluster.claims import claim
from tests.contract.cluster_world import IN_A, NUMBERS, ZONAL, World


def test_a_claim_comes_back_as_it_was_promised(world: World) -> None:
    wanted = claim()
    world.port.create_nodeclaim(wanted)
    nodeclaim = world.port.nodeclaim(wanted.name)
    assert nodeclaim is not None
    for field in (
        "requirements",
        "requests",
        "taints",
        "expire_after_seconds",
        "termination_grace_period_seconds",
        "node_class_ref",
    ):
        assert getattr(nodeclaim, field) == getattr(wanted, field), field
    assert nodeclaim.metadata.finalizers == (labels.FINALIZER,)
    assert nodeclaim.metadata.uid
    assert wanted.name in {nodeclaim.name for nodeclaim in world.port.nodeclaims()}


def test_a_pod_is_read_by_name(world: World) -> None:
    pod = world.pod()
    assert world.port.pod("default", pod.metadata.name) == world.current_pod(pod.metadata.name)


def test_the_first_pods_that_wait_are_listed_alone(world: World) -> None:
    for _ in range(3):
        world.pod("")
    waiting = [pod.key for pod in world.port.pods(pending=True)]
    assert len(waiting) >= 3
    assert [pod.key for pod in world.port.pods(pending=True, limit=2)] == waiting[:2]


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_pods_that_have_ended_are_listed_on_their_node_alone(world: World, phase: str) -> None:
    node = f"ended-{next(NUMBERS)}"
    world.add_node(node)
    staying, ended = world.pod(node), world.pod(node)
    world.start_pod(ended, is_ready=False, phase=phase)
    listed = {pod.key for pod in world.port.pods()}
    assert staying.key in listed
    assert ended.key not in listed
    assert ended.key not in {pod.key for pod in world.port.pods(pending=True)}
    assert {pod.key for pod in world.port.pods(node=node)} == {staying.key, ended.key}


def test_a_claim_is_created_once(world: World) -> None:
    wanted = claim()
    world.port.create_nodeclaim(wanted)
    with pytest.raises(Conflict):
        world.port.create_nodeclaim(wanted)


def test_what_does_not_exist_is_none(world: World) -> None:
    assert world.port.nodeclaim("nobody") is None
    assert world.port.node("nobody") is None
    assert world.port.node_with_volumes("nobody") is None
    assert world.port.nodepool("nobody") is None
    assert world.port.pod("default", "nobody") is None
    assert world.port.nodeclaims_of_instances(["i-0000000000000beef"]) == ()
    assert world.port.attached_volume("nothing") is None


def test_claims_are_selected_by_the_label_of_their_instance(world: World) -> None:
    instance = f"i-{next(NUMBERS):017x}"
    wanted = claim()
    labeled = msgspec.structs.replace(wanted.metadata, labels={**wanted.metadata.labels, labels.INSTANCE_ID: instance})
    world.port.create_nodeclaim(msgspec.structs.replace(wanted, metadata=labeled))
    world.port.create_nodeclaim(claim())
    assert [found.name for found in world.port.nodeclaims_of_instances(["i-0000000000000beef", instance])] == [
        wanted.name
    ]


def test_a_node_joins_until_it_is_registered(world: World) -> None:
    joining, registered = f"joining-{next(NUMBERS)}", f"registered-{next(NUMBERS)}"
    for name in (joining, registered):
        world.add_node(name)
    node = world.port.node(registered)
    assert node is not None
    world.port.patch_metadata("nodes", node.metadata, {"labels": {labels.REGISTERED: "true"}})
    found = {node.name for node in world.port.joining_nodes()}
    assert joining in found
    assert registered not in found
    assert len(world.port.nodes(limit=1)) == 1


def test_attached_volumes_are_found_by_what_the_node_states(world: World) -> None:
    node, volume = f"holding-{next(NUMBERS)}", f"pv-{next(NUMBERS)}"
    world.add_node(node)
    world.attach_volume(node, volume)
    read = world.port.node_with_volumes(node)
    assert read is not None
    # Plans compare a Node that was read with one that was listed, and store it.
    assert type(world.port.node(node)) is Node
    (attachment,) = read.volume_attachments
    assert world.port.attached_volume(attachment) == volume
    assert world.port.set_taints(read, read.taints, metadata={"labels": {"a": "b"}}).volume_attachments == (attachment,)


def test_a_deleted_claim_stays_until_its_finalizer_goes(world: World) -> None:
    nodeclaim = world.port.create_nodeclaim(claim())
    world.port.delete("nodeclaims", nodeclaim.metadata)
    current = world.port.nodeclaim(nodeclaim.name)
    assert current is not None
    assert current.metadata.deletion_timestamp is not None
    world.port.patch_metadata("nodeclaims", current.metadata, {"finalizers": []})
    assert _is_deleted(world.port, nodeclaim.name)


def _is_deleted(port: ClusterPort, name: str) -> bool:
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        if port.nodeclaim(name) is None:
            return True
        time.sleep(0.1)
    return False


def test_deleting_by_another_uid_or_twice_is_no_error_and_hurts_nobody(world: World) -> None:
    nodeclaim = world.port.create_nodeclaim(claim(metadata=ObjectMeta(f"claim-{next(NUMBERS)}")))
    world.port.delete(
        "nodeclaims", msgspec.structs.replace(nodeclaim.metadata, uid="00000000-0000-0000-0000-000000000000")
    )
    assert world.port.nodeclaim(nodeclaim.name) is not None
    world.port.delete("nodeclaims", nodeclaim.metadata)
    world.port.delete("nodeclaims", nodeclaim.metadata)
    assert _is_deleted(world.port, nodeclaim.name)


def test_a_claim_that_has_changed_is_not_deleted_as_it_was_read(world: World) -> None:
    before = world.port.create_nodeclaim(claim(metadata=ObjectMeta(f"claim-{next(NUMBERS)}")))
    after = world.port.patch_nodeclaim(before, {"annotations": {"a": "b"}})
    with pytest.raises(Conflict):
        world.port.delete("nodeclaims", before.metadata, as_read=True)
    assert world.port.nodeclaim(before.name) is not None
    world.port.delete("nodeclaims", after.metadata, as_read=True)
    assert _is_deleted(world.port, before.name)
    world.port.delete("nodeclaims", after.metadata, as_read=True)


def test_finalizers_change_only_on_what_was_read(world: World) -> None:
    nodeclaim = world.port.create_nodeclaim(claim())
    world.port.patch_metadata("nodeclaims", nodeclaim.metadata, {"annotations": {"a": "b"}})
    with pytest.raises(Conflict):
        world.port.patch_metadata("nodeclaims", nodeclaim.metadata, {"finalizers": []})


def test_storage_and_namespaces_are_read_as_they_were_written(world: World) -> None:
    world.add_storage()
    storage = world.port.storage()
    (waiting,) = [
        volume_claim for volume_claim in storage.persistent_volume_claims if volume_claim.metadata.key == "shop/data"
    ]
    assert (waiting.volume_name, waiting.storage_class_name, waiting.bind_completed, waiting.phase) == (
        "",
        "zonal",
        False,
        "Pending",
    )
    (volume,) = [
        persistent_volume
        for persistent_volume in storage.persistent_volumes
        if persistent_volume.metadata.name == "pv-1"
    ]
    assert (volume.node_affinity, volume.driver) == (((IN_A,),), "ebs.csi.aws.com")
    (zonal,) = [storage_class for storage_class in storage.storage_classes if storage_class.metadata.name == "zonal"]
    assert (zonal.provisioner, zonal.waits_for_first_consumer, zonal.allowed_topologies) == (
        ZONAL.provisioner,
        True,
        ZONAL.allowed_topologies,
    )
    assert {csi_node.metadata.name: csi_node.attachable_volumes for csi_node in storage.csi_nodes}["attaching"] == {
        "ebs.csi.aws.com": 25
    }
    assert world.port.namespaces()["shop"]["team"] == "a"
    assert world.port.persistent_volume_claim("shop", "data") == waiting
    assert world.port.persistent_volume_claim("shop", "missing") is None


def test_buffers_are_read_with_what_they_refer_to_and_told_how_they_stand(world: World) -> None:
    assert world.port.capacity_buffers() == ()
    world.add_buffers()
    buffers = {buffer.metadata.name: buffer for buffer in world.port.capacity_buffers()}
    spare, shared, lost = (buffers[name] for name in ("spare", "shared", "lost"))
    assert spare.template_pod is not None
    assert (spare.template_pod.requests["cpu"], spare.template_pod.metadata.labels) == (3000, {"app": "web"})
    assert (spare.replicas, spare.scalable_replicas, spare.pod_template_ref) == (2, None, "web")
    assert (shared.replicas, shared.scalable_replicas, shared.percentage) == (None, 10, 20)
    assert (lost.template_pod, lost.not_ready_reason) == (None, "PodTemplateNotFound")
    status = {
        "replicas": 2, "provisioningStrategy": spare.provisioning_strategy, "podTemplateRef": {"name": "web"},
        "podTemplateGeneration": 1,
    }  # fmt: skip
    about = msgspec.structs.replace(spare.metadata, resource_version="")
    world.port.patch_status("capacitybuffers", about, status)
    world.port.set_conditions("capacitybuffers", about, [Condition("Provisioning", "False", "RequiresNewCapacity")])
    world.port.patch_status("capacitybuffers", about, status | {"podTemplateRef": None})
    (after,) = [buffer for buffer in world.port.capacity_buffers() if buffer.metadata.name == "spare"]
    assert after.status == CapacityBufferStatus(2, "", 1, spare.provisioning_strategy)
    condition = find_condition(after.conditions, "Provisioning")
    assert condition is not None
    assert (condition.status, condition.reason) == ("False", "RequiresNewCapacity")


def test_the_same_event_is_told_again_only_after_a_while(real: tuple[Stack, KubernetesCluster]) -> None:
    """Several processes record it: what a process does not remember, the Event itself says."""
    stack, port = real
    nodeclaim, began = port.create_nodeclaim(claim()), datetime.now(UTC)
    for seconds in (0, 30, 90, 150, 200):
        port._events._silent_until.clear()
        moment = began + timedelta(seconds=seconds)
        port.record_event("nodeclaims", nodeclaim.metadata, events.DISRUPTION_BLOCKED(reason="m"), now=moment)
    query = f"involvedObject.name={nodeclaim.name},reason=DisruptionBlocked"
    listed = json.loads(stack.kubectl("get", "events", "-n", "default", "--field-selector", query, "-o", "json").stdout)
    assert [event["count"] for event in listed["items"]] == [2]


def test_an_event_never_raises(world: World) -> None:
    nodeclaim, event = world.port.create_nodeclaim(claim()), events.DISRUPTION_BLOCKED(reason="m")
    for _ in range(2):
        world.port.record_event("nodeclaims", nodeclaim.metadata, event, now=datetime.now(UTC))
    world.port.record_event("nodeclaims", ObjectMeta("Not A Name!"), event, now=datetime.now(UTC))


def test_karpenter_is_seen_once_it_runs(world: World) -> None:
    assert world.port.running_karpenter(now=datetime.now(UTC)) == ""
    world.run_karpenter()
    assert world.port.running_karpenter(now=datetime.now(UTC)) == "Deployment karpenter/karpenter"


def test_the_holder_of_karpenters_lease_is_seen(real: tuple[Stack, KubernetesCluster]) -> None:
    stack, port = real
    stack.kubectl("delete", "deployment", "karpenter", "-n", "karpenter", "--wait", "--ignore-not-found")
    renewed = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    lease = {
        "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": "karpenter-leader-election", "namespace": "kube-system"},
        "spec": {"holderIdentity": "karpenter-1", "renewTime": renewed, "leaseDurationSeconds": 3600},
    }  # fmt: skip
    stack.kubectl("apply", "-f", "-", input=json.dumps(lease))
    found = port.running_karpenter(now=datetime.now(UTC))
    stack.kubectl("delete", "lease", "karpenter-leader-election", "-n", "kube-system")
    assert found == "the holder of Lease kube-system/karpenter-leader-election"
