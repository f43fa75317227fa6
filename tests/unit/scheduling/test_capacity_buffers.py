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


def verdicts(made: Plan) -> dict[str, tuple[int, str]]:
    return {one.name: (one.pod_count, one.reason) for one in made.buffers}


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
    made = planned(keep=(buffer(replicas=2),), nodes=(node("n1", cpu=4),))
    assert made.new_nodes == ()
    assert verdicts(made) == {"spare": (2, "FitsExistingCapacity")}
    assert [(one.name, len(one.pods)) for one in made.buffer_assignments] == [("n1", 2)]
    assert made.existing_nodes == ()


def test_room_that_is_not_there_is_bought() -> None:
    made = planned(keep=(buffer(replicas=3),))
    assert sum(len(one.pods) for one in made.new_nodes) == 3
    assert verdicts(made) == {"spare": (3, "RequiresNewCapacity")}


def test_what_is_on_its_way_counts() -> None:
    first = planned(keep=(buffer(replicas=3),))
    coming = tuple(to_in_flight_nodeclaim(one, f"claim-{number}") for number, one in enumerate(first.new_nodes))
    again = planned(keep=(buffer(replicas=3),), in_flight=coming)
    assert again.new_nodes == ()
    assert verdicts(again) == {"spare": (3, "FitsExistingCapacity")}


def test_a_real_pod_takes_the_room_and_the_buffer_buys_anew() -> None:
    room = (node("n1", cpu=2),)
    made = planned(pod("web", cpu=2), keep=(buffer(cpu=2, replicas=1),), nodes=room)
    assert [(one.name, one.pods) for one in made.existing_nodes] == [("n1", ("default/web",))]
    assert [one.pods for one in made.new_nodes] == [("default/capacity-buffer-spare-0",)]


def test_a_buffer_changes_nothing_about_real_pods() -> None:
    waiting, room = pods(20, cpu="700m"), (node("n1", cpu=4),)
    without = planned(*waiting, keep=(), nodes=room)
    beside = planned(*waiting, keep=(buffer(replicas=5),), nodes=room)
    assert beside.existing_nodes == without.existing_nodes
    assert beside.new_nodes[: len(without.new_nodes)] == without.new_nodes
    assert beside.unschedulable_pods == without.unschedulable_pods


def test_where_a_limit_binds_the_buffer_is_left_and_says_why() -> None:
    made = planned(*pods(1, cpu=2), keep=(buffer(cpu=2, replicas=1),), pools=[pool(limits={"cpu": "2"})])
    assert [one.pods for one in made.new_nodes] == [("default/p-0",)]
    (told,) = made.buffers
    assert (told.reason, made.unschedulable_pods) == ("RequiresNewCapacity", ())
    assert "limit" in told.message


def test_a_pod_without_a_place_is_not_asked_twice() -> None:
    made = planned(pod("huge", cpu=500), keep=(buffer(replicas=1),))
    assert [one.pod for one in made.unschedulable_pods] == ["default/huge"]
    assert len(made.new_nodes) == 1


def test_empty_and_unresolved_buffers_say_so_and_stop_no_other() -> None:
    broken = buffer(
        "broken",
        template_pod=None,
        not_ready_reason="PodTemplateNotFound",
        not_ready_message="PodTemplate default/x does not exist",
    )
    other = buffer("other", provisioning_strategy="example.com/somebody-elses", replicas=1)
    made = planned(keep=(buffer("none", replicas=0), broken, other, buffer("real", replicas=1)))
    assert made.buffers == (
        BufferProvisioning("default", "broken", 0, "NotReadyForProvisioning", "PodTemplate default/x does not exist"),
        BufferProvisioning("default", "none", 0, "BufferEmpty"),
        BufferProvisioning("default", "real", 1, "RequiresNewCapacity"),
    )
    alone = planned(keep=(broken,))
    assert [one.reason for one in alone.buffers] == ["NotReadyForProvisioning"]


def test_room_on_a_node_that_leaves_is_no_room() -> None:
    going = node("n1", cpu=8, deletion_timestamp=NOW)
    about = ObjectMeta("c1", labels={labels.NODEPOOL: "default"}, deletion_timestamp=NOW)
    claim = NodeClaim(about, NodeClassReference("", "", "default"), provider_id=going.provider_id)
    moving = pod("moves", cpu=1, node_name="n1", unschedulable=False)
    made = planned(moving, keep=(buffer(replicas=1),), nodes=(going,), nodeclaims=(claim,))
    assert [key for one in made.new_nodes for key in one.pods].count("default/moves") == 1
    assert made.buffer_assignments == ()
    assert verdicts(made) == {"spare": (1, "RequiresNewCapacity")}


def test_the_order_of_buffers_does_not_matter() -> None:
    several = tuple(buffer(name, cpu=cpu, replicas=3) for name, cpu in (("b", 1), ("a", 2), ("c", "300m")))
    forth, back = planned(keep=several), planned(keep=several[::-1])
    assert msgspec.structs.asdict(forth) == msgspec.structs.asdict(back)
