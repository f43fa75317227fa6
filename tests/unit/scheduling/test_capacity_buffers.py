"""Capacity buffers: how much room they keep, and that real pods always come first."""

from typing import Any

import msgspec
import pytest

from spotwright.model import labels
from spotwright.model.ec2.instance_type import Catalog
from spotwright.model.karpenter.capacity_buffer import CapacityBuffer
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.meta import ObjectMeta
from spotwright.model.kubernetes.pod import Pod
from spotwright.scheduling import capacity_buffers, planner
from spotwright.scheduling.plan import BufferProvisioning, Plan, to_in_flight_nodeclaim
from tests.unit.scheduling.builders import NOW, TYPES, node, pod, pods, pool, snapshot


def buffer(name: str = "spare", cpu: str | float = 1, **fields: Any) -> CapacityBuffer:
    fields.setdefault(
        "template_pod", pod("template", cpu, priority=7, volume_claim_names=("data",), labels={"app": "web"})
    )
    return CapacityBuffer(ObjectMeta(name, "default", uid=f"uid-{name}"), **fields)


def planned(*waiting: Pod, keep: tuple[CapacityBuffer, ...], **fields: Any) -> Plan:
    return planner.plan(snapshot(*waiting, capacity_buffers=keep, **fields), Catalog({"": TYPES}))


def verdicts(plan: Plan) -> dict[str, tuple[int, str]]:
    return {provisioning.name: (provisioning.pod_count, provisioning.reason) for provisioning in plan.buffers}


@pytest.mark.parametrize(
    ("fields", "pods_"),
    [
        ({"scalable_replicas": 10, "percentage": 20}, 2),
        ({"scalable_replicas": 3, "percentage": 10}, 1),
        ({"scalable_replicas": 1, "percentage": 1}, 1),
        ({"scalable_replicas": 0, "percentage": 50}, 0),
        ({"scalable_replicas": 5, "percentage": 200}, 10),
        ({"scalable_replicas": 10, "percentage": 20, "replicas": 3}, 3),
        ({"limits": {"cpu": 10_000}}, 3),
        ({"replicas": 5, "limits": {"cpu": 10_000}}, 3),
        ({"replicas": 2, "limits": {"cpu": 10_000}}, 2),
        ({"replicas": 5, "limits": {"cpu": 10_000, "memory": 128 * 2**20}}, 1),
        ({"scalable_replicas": 0, "percentage": 50, "limits": {"cpu": 10_000}}, 3),
        ({"scalable_replicas": 10, "percentage": 0}, 0),
        ({"replicas": 0}, 0),
        ({"replicas": 2, "limits": {"nvidia.com/gpu": 0}}, 2),
        ({"limits": {"nvidia.com/gpu": 5}}, 0),
        ({"replicas": 10**9}, capacity_buffers.MAX_VIRTUAL_PODS),
    ],
)
def test_the_number_of_pods_that_room_is_kept_for(fields: dict[str, Any], pods_: int) -> None:
    assert capacity_buffers.count_virtual_pods(buffer(cpu=3, **fields)) == pods_


def test_a_virtual_pod_is_like_its_template_but_lowest_and_without_volumes() -> None:
    (first, second) = capacity_buffers.build_virtual_pods(buffer(replicas=2), NOW)
    assert (first.key, second.key) == ("default/capacity-buffer-spare-0", "default/capacity-buffer-spare-1")
    assert first.metadata.uid == "uid-spare-0"
    assert first.metadata.annotations == {
        "karpenter.sh/capacity-buffer-fake-pod": "true",
        "karpenter.sh/capacity-buffer-name": "spare",
        "karpenter.sh/capacity-buffer-namespace": "default",
    }
    assert (first.priority, first.volume_claim_names, first.metadata.labels) == (-(2**31), (), {"app": "web"})


def test_room_that_is_there_is_enough() -> None:
    plan = planned(keep=(buffer(replicas=2),), nodes=(node("n1", cpu=4),))
    assert plan.new_nodes == ()
    assert verdicts(plan) == {"spare": (2, "FitsExistingCapacity")}
    assert [(assignment.name, len(assignment.pods)) for assignment in plan.buffer_assignments] == [("n1", 2)]
    assert plan.existing_nodes == ()


def test_room_that_is_not_there_is_bought() -> None:
    plan = planned(keep=(buffer(replicas=3),))
    assert sum(len(new_node.pods) for new_node in plan.new_nodes) == 3
    assert verdicts(plan) == {"spare": (3, "RequiresNewCapacity")}


def test_what_is_on_its_way_counts() -> None:
    first = planned(keep=(buffer(replicas=3),))
    coming = tuple(
        to_in_flight_nodeclaim(new_node, f"claim-{number}") for number, new_node in enumerate(first.new_nodes)
    )
    again = planned(keep=(buffer(replicas=3),), in_flight=coming)
    assert again.new_nodes == ()
    assert verdicts(again) == {"spare": (3, "FitsExistingCapacity")}


def test_a_real_pod_takes_the_room_and_the_buffer_buys_anew() -> None:
    room = (node("n1", cpu=2),)
    plan = planned(pod("web", cpu=2), keep=(buffer(cpu=2, replicas=1),), nodes=room)
    assert [(assignment.name, assignment.pods) for assignment in plan.existing_nodes] == [("n1", ("default/web",))]
    assert [new_node.pods for new_node in plan.new_nodes] == [("default/capacity-buffer-spare-0",)]


def test_a_buffer_changes_nothing_about_real_pods() -> None:
    waiting, room = pods(20, cpu="700m"), (node("n1", cpu=4),)
    without = planned(*waiting, keep=(), nodes=room)
    beside = planned(*waiting, keep=(buffer(replicas=5),), nodes=room)
    assert beside.existing_nodes == without.existing_nodes
    assert beside.new_nodes[: len(without.new_nodes)] == without.new_nodes
    assert beside.unschedulable_pods == without.unschedulable_pods


def test_where_a_limit_binds_the_buffer_is_left_and_says_why() -> None:
    plan = planned(*pods(1, cpu=2), keep=(buffer(cpu=2, replicas=1),), pools=[pool(limits={"cpu": "2"})])
    assert [new_node.pods for new_node in plan.new_nodes] == [("default/p-0",)]
    (provisioning,) = plan.buffers
    assert (provisioning.reason, plan.unschedulable_pods) == ("RequiresNewCapacity", ())
    assert "limit" in provisioning.message


def test_a_pod_without_a_place_is_not_asked_twice() -> None:
    plan = planned(pod("huge", cpu=500), keep=(buffer(replicas=1),))
    assert [unplaced_pod.pod for unplaced_pod in plan.unschedulable_pods] == ["default/huge"]
    assert len(plan.new_nodes) == 1


def test_empty_and_unresolved_buffers_say_so_and_stop_no_other() -> None:
    broken = buffer(
        "broken",
        template_pod=None,
        not_ready_reason="PodTemplateNotFound",
        not_ready_message="PodTemplate default/x does not exist",
    )
    other_buffer = buffer("other", provisioning_strategy="example.com/somebody-elses", replicas=1)
    plan = planned(keep=(buffer("none", replicas=0), broken, other_buffer, buffer("real", replicas=1)))
    assert plan.buffers == (
        BufferProvisioning("default", "broken", 0, "NotReadyForProvisioning", "PodTemplate default/x does not exist"),
        BufferProvisioning("default", "none", 0, "BufferEmpty"),
        BufferProvisioning("default", "real", 1, "RequiresNewCapacity"),
    )
    alone = planned(keep=(broken,))
    assert [provisioning.reason for provisioning in alone.buffers] == ["NotReadyForProvisioning"]


def test_room_on_a_node_that_leaves_is_no_room() -> None:
    going = node("n1", cpu=8, deletion_timestamp=NOW)
    about = ObjectMeta("c1", labels={labels.NODEPOOL: "default"}, deletion_timestamp=NOW)
    claim = NodeClaim(about, NodeClassReference("", "", "default"), provider_id=going.provider_id)
    moving = pod("moves", cpu=1, node_name="n1", unschedulable=False)
    plan = planned(moving, keep=(buffer(replicas=1),), nodes=(going,), nodeclaims=(claim,))
    assert [key for new_node in plan.new_nodes for key in new_node.pods].count("default/moves") == 1
    assert plan.buffer_assignments == ()
    assert verdicts(plan) == {"spare": (1, "RequiresNewCapacity")}


def test_the_order_of_buffers_does_not_matter() -> None:
    buffers = tuple(buffer(name, cpu=cpu, replicas=3) for name, cpu in (("b", 1), ("a", 2), ("c", "300m")))
    forth, back = planned(keep=buffers), planned(keep=buffers[::-1])
    assert msgspec.structs.asdict(forth) == msgspec.structs.asdict(back)
