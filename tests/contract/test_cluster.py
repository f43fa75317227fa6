"""ClusterPort: the fake and the real API server obey one suite."""

import json
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from local.stack import Stack
from spotwright.adapters.kubernetes.cluster import KubernetesCluster
from spotwright.adapters.kubernetes.transport import Transport
from spotwright.errors import Conflict, InvalidRequest, NotFound
from spotwright.model import labels
from spotwright.model.karpenter.capacity_buffer import CapacityBufferStatus
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, find_condition
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.pod import Pod
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import NodeSelectorRequirement
from spotwright.simulation.clock import Clock
from spotwright.simulation.cluster import FakeCluster
from spotwright.simulation.effects import Effects
from spotwright.telemetry import events
from spotwright.workflows.ports.cluster import ClusterPort
from tests.contract.cluster_world import IN_A, NUMBERS, ZONAL, FakeWorld, RealWorld, World

CLASS = NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default")


@pytest.fixture(scope="session")
def real(stack: Stack) -> tuple[Stack, KubernetesCluster]:
    stack.kubectl("create", "serviceaccount", "contract", "-n", "default")
    account = "--serviceaccount=default:contract"
    stack.kubectl("create", "clusterrolebinding", "contract", "--clusterrole=cluster-admin", account)
    token = stack.kubectl("create", "token", "contract", "-n", "default").stdout.strip()
    config = json.loads(stack.kubectl("config", "view", "--raw", "-o", "json").stdout)["clusters"][0]["cluster"]
    transport = Transport(
        endpoint=config["server"], certificate_authority=config["certificate-authority-data"], token=lambda: token
    )
    return stack, KubernetesCluster("contract", transport)


@pytest.fixture(params=["fake", "real"])
def world(request: pytest.FixtureRequest) -> World:
    if request.param == "fake":
        clock = Clock()
        return FakeWorld(FakeCluster("contract", clock, Effects(clock)))
    return RealWorld(*request.getfixturevalue("real"))


def claim(**changes: object) -> NodeClaim:
    name = f"claim-{next(NUMBERS)}"
    nodeclaim = NodeClaim(
        metadata=ObjectMeta(name, labels={labels.NODEPOOL: "default"}, finalizers=(labels.FINALIZER,)),
        node_class_ref=CLASS,
        requirements=(
            NodeSelectorRequirement("kubernetes.io/arch", "In", ("amd64",)),
            NodeSelectorRequirement("karpenter.k8s.aws/instance-cpu", "Gt", ("1",)),
        ),
        requests={"cpu": 1500, "memory": 2**30, "pods": 3},
        taints=(Taint("spot", "NoSchedule", "only"),),
        expire_after_seconds=None,
        termination_grace_period_seconds=600,
    )
    return msgspec.structs.replace(nodeclaim, **changes)


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
    assert world.port.nodepool("nobody") is None
    assert world.port.pod("default", "nobody") is None
    assert world.port.nodeclaims_of_instances(["i-0000000000000beef"]) == ()
    assert world.port.volume_attachments("nobody") == ()
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
    (attachment,) = world.port.volume_attachments(node)
    assert world.port.attached_volume(attachment) == volume


def test_conditions_keep_their_neighbours_and_their_time(world: World) -> None:
    nodeclaim = world.port.create_nodeclaim(claim())
    since = datetime(2026, 1, 1, tzinfo=UTC)
    world.port.set_conditions(
        "nodeclaims", nodeclaim.metadata, [Condition("Launched", "True", "Launched", last_transition_time=since)]
    )
    world.port.set_conditions(
        "nodeclaims",
        nodeclaim.metadata,
        [Condition("Registered", "Unknown", "NodeNotFound", last_transition_time=since)],
    )
    later = Condition("Launched", "True", "Again", last_transition_time=datetime(2026, 2, 1, tzinfo=UTC))
    world.port.set_conditions("nodeclaims", nodeclaim.metadata, [later])
    current = world.port.nodeclaim(nodeclaim.name)
    assert current is not None
    launched, registered = (
        find_condition(current.conditions, "Launched"),
        find_condition(current.conditions, "Registered"),
    )
    assert launched is not None
    assert registered is not None
    assert (launched.reason, launched.last_transition_time) == ("Again", since)
    assert registered.status == "Unknown"


def test_conditions_are_written_only_if_others_are_as_they_were_seen(world: World) -> None:
    nodeclaim = world.port.create_nodeclaim(claim())
    since = datetime(2026, 1, 1, tzinfo=UTC)

    def write(kind: str, status: str, seen: dict[str, str]) -> None:
        stated = [Condition(kind, status, kind, last_transition_time=since)]
        world.port.set_conditions("nodeclaims", nodeclaim.metadata, stated, seen=seen)

    write("Registered", "True", {"Registered": "", "Initialized": ""})
    with pytest.raises(Conflict, match="has another Registered by now"):
        write("Initialized", "Unknown", {"Registered": "", "Initialized": ""})
    write("Initialized", "True", {"Registered": "True", "Initialized": ""})
    current = world.port.nodeclaim(nodeclaim.name)
    assert current is not None
    assert {condition.type: condition.status for condition in current.conditions} == {
        "Registered": "True", "Initialized": "True",
    }  # fmt: skip


def test_a_condition_that_is_taken_out_leaves_its_neighbours(world: World) -> None:
    nodeclaim = world.port.create_nodeclaim(claim())
    since = datetime(2026, 1, 1, tzinfo=UTC)
    stated = [Condition(kind, "True", kind, last_transition_time=since) for kind in ("Launched", "Drifted")]
    world.port.set_conditions("nodeclaims", nodeclaim.metadata, stated)
    for _ in range(2):
        world.port.set_conditions("nodeclaims", nodeclaim.metadata, (), removed=("Drifted",))
        current = world.port.nodeclaim(nodeclaim.name)
        assert current is not None
        assert [(condition.type, condition.last_transition_time) for condition in current.conditions] == [
            ("Launched", since)
        ]


def test_status_is_merged(world: World) -> None:
    nodeclaim = world.port.create_nodeclaim(claim())
    about = msgspec.structs.replace(nodeclaim.metadata, resource_version="")
    world.port.patch_status("nodeclaims", about, {"providerID": "aws:///z/i-1", "imageID": "ami-1"})
    world.port.patch_status("nodeclaims", about, {"nodeName": "n", "capacity": {"cpu": "2", "nvidia.com/gpu": "1"}})
    world.port.patch_status("nodeclaims", about, {"capacity": {"pods": "58", "nvidia.com/gpu": None}})
    current = world.port.nodeclaim(nodeclaim.name)
    assert current is not None
    assert (current.provider_id, current.image_id, current.node_name) == ("aws:///z/i-1", "ami-1", "n")
    assert current.capacity == {"cpu": 2000, "pods": 58}


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


def test_taints_change_from_those_that_were_read(world: World) -> None:
    name = f"node-{next(NUMBERS)}"
    world.add_node(name)
    ours, theirs = Taint("example.com/ours", "NoSchedule"), Taint("example.com/theirs", "NoSchedule", "a")
    # The real node controller taints a new node too; what it changes in between is a Conflict as it should be.
    before = set_taints(world.port, name, lambda node: (*node.taints, theirs))
    set_taints(world.port, name, lambda node: (*(taint for taint in node.taints if taint != theirs), ours))
    with pytest.raises(Conflict):
        world.port.set_taints(before, [taint for taint in before.taints if taint != theirs])
    with pytest.raises(Conflict):
        world.port.set_taints(before, [*before.taints, Taint("example.com/another", "NoSchedule")])
    after = world.port.node(name)
    assert after is not None
    assert ours in after.taints
    assert not {"example.com/theirs", "example.com/another"} & {taint.key for taint in after.taints}


def test_what_others_wrote_of_a_node_meanwhile_stays(world: World) -> None:
    """A kubelet and three controllers write it while it joins: nothing of that is a Conflict, nor is it undone."""
    name = f"node-{next(NUMBERS)}"
    world.add_node(name)
    first, second, third = (Taint(f"example.com/{number}", "NoSchedule") for number in range(3))
    before = set_taints(world.port, name, lambda node: (*node.taints, first), labels={"a": "1"}, annotations={"a": "1"})
    set_taints(world.port, name, lambda node: (*node.taints, second), labels={"b": "2"}, annotations={"b": "2"})
    change = {"labels": {"c": "3"}, "annotations": {"a": None}}
    while True:
        try:
            after = world.port.set_taints(before, [*before.taints, third], metadata=change)
            break
        except Conflict:
            # The node controller has taken back a taint of its own.
            before = set_taints(world.port, name, lambda node: node.taints)
    ours = [taint for taint in after.taints if taint.key.startswith("example.com/")]
    assert ours == [first, second, third]
    assert {"a": "1", "b": "2", "c": "3"}.items() <= after.metadata.labels.items()
    assert after.metadata.annotations.get("b") == "2"
    assert "a" not in after.metadata.annotations


@pytest.mark.parametrize("field", ["taints", "finalizers"])
def test_what_a_node_did_not_have_when_it_was_read_is_not_replaced(world: World, field: str) -> None:
    name = f"node-{next(NUMBERS)}"
    world.add_node(name)
    taint, kept = Taint("example.com/ours", "NoSchedule"), {"finalizers": ["example.com/kept"]}
    before = set_taints(world.port, name, lambda node: node.taints)
    bare = msgspec.structs.replace(before, taints=())
    set_taints(world.port, name, lambda node: (*node.taints, taint), finalizers=["example.com/theirs"])
    change = kept if field == "finalizers" else {}
    taints = [Taint("example.com/another", "NoSchedule")] if field == "taints" else bare.taints
    with pytest.raises(Conflict):
        world.port.set_taints(bare, taints, metadata=change)
    after = world.port.node(name)
    assert after is not None
    assert taint in after.taints
    assert after.metadata.finalizers == ("example.com/theirs",)
    set_taints(world.port, name, lambda node: node.taints, finalizers=[])


@pytest.mark.parametrize("field", ["labels", "annotations"])
def test_what_a_node_has_by_now_is_not_replaced_where_it_had_none(world: World, field: str) -> None:
    """A patch that adds the first label makes the map of labels: it would take away those of others."""
    name = f"node-{next(NUMBERS)}"
    world.add_node(name)
    before = world.port.node(name)
    assert before is not None
    none = dict.fromkeys(getattr(before.metadata, field))
    bare = set_taints(world.port, name, lambda node: node.taints, **{field: none})
    assert getattr(bare.metadata, field) == {}
    set_taints(world.port, name, lambda node: node.taints, **{field: {"theirs": "1"}})
    with pytest.raises(Conflict):
        world.port.set_taints(bare, bare.taints, metadata={field: {"ours": "1"}})
    after = world.port.node(name)
    assert after is not None
    assert getattr(after.metadata, field).get("theirs") == "1"
    assert "ours" not in getattr(after.metadata, field)
    world.port.set_taints(bare, bare.taints, metadata={field: {"ours": None}})


def test_a_first_label_is_no_conflict_with_none(world: World) -> None:
    name = f"node-{next(NUMBERS)}"
    world.add_node(name)
    before = set_taints(world.port, name, lambda node: node.taints, labels={"gone": "1"})
    bare = set_taints(world.port, name, lambda node: node.taints, labels=dict.fromkeys(before.metadata.labels))
    assert bare.metadata.labels == {}
    after = world.port.set_taints(bare, bare.taints, metadata={"labels": {"ours": "1"}})
    assert after.metadata.labels == {"ours": "1"}


@pytest.mark.parametrize("change", [{"gone": None}, {"ours": "1"}], ids=["removed", "added"])
def test_a_label_that_is_gone_by_now_is_a_conflict(world: World, change: dict[str, str | None]) -> None:
    """Whoever adds one finds no map to add it to where the only other one is gone."""
    name = f"node-{next(NUMBERS)}"
    world.add_node(name)
    before = set_taints(world.port, name, lambda node: node.taints, labels={"gone": "1"})
    set_taints(world.port, name, lambda node: node.taints, labels=dict.fromkeys(before.metadata.labels))
    with pytest.raises(Conflict):
        world.port.set_taints(before, before.taints, metadata={"labels": change})


@pytest.mark.parametrize(
    "another",
    [
        Taint("example.com/another", "NoSchedule", "ours"),
        Taint("example.com/one", "PreferNoSchedule", "ours"),
        Taint("example.com/one", "NoSchedule", "another"),
        Taint("example.com/one", "NoSchedule"),
    ],
    ids=["key", "effect", "value", "no value"],
)
def test_what_is_another_taint_by_now_is_not_removed(world: World, another: Taint) -> None:
    name = f"node-{next(NUMBERS)}"
    world.add_node(name)
    ours = Taint("example.com/one", "NoSchedule", "ours")
    before = set_taints(world.port, name, lambda node: (*node.taints, ours))
    set_taints(world.port, name, lambda node: tuple(another if taint == ours else taint for taint in node.taints))
    set_taints(world.port, name, lambda node: (another, *(taint for taint in node.taints if taint != another)))
    with pytest.raises(Conflict):
        world.port.set_taints(before, [taint for taint in before.taints if taint != ours])
    after = world.port.node(name)
    assert after is not None
    assert another in after.taints


def test_a_taint_that_others_have_set_with_another_value_is_a_conflict(world: World) -> None:
    """A Node has one taint of a key and an effect."""
    name = f"node-{next(NUMBERS)}"
    world.add_node(name)
    ours, theirs = (Taint("example.com/one", "NoSchedule", value) for value in ("", "theirs"))
    before = set_taints(world.port, name, lambda node: node.taints)
    set_taints(world.port, name, lambda node: (*node.taints, theirs))
    with pytest.raises(Conflict):
        world.port.set_taints(before, (*before.taints, ours))
    after = world.port.node(name)
    assert after is not None
    assert [taint for taint in after.taints if taint.key == ours.key] == [theirs]


def test_two_taints_of_one_key_and_effect_are_refused(world: World) -> None:
    name = f"node-{next(NUMBERS)}"
    world.add_node(name)
    taints = [Taint("example.com/one", "NoSchedule", value) for value in ("", "another")]
    with pytest.raises(InvalidRequest):
        set_taints(world.port, name, lambda node: (*node.taints, *taints))


def test_another_node_of_the_name_is_a_conflict_and_none_is_not_found(world: World) -> None:
    name = f"node-{next(NUMBERS)}"
    world.add_node(name)
    before = world.port.node(name)
    assert before is not None
    taints = (*before.taints, Taint("example.com/one", "NoSchedule"))
    world.remove_node(name)
    with pytest.raises(NotFound):
        world.port.set_taints(before, taints)
    world.add_node(name)
    with pytest.raises(Conflict):
        world.port.set_taints(before, taints)
    after = world.port.node(name)
    assert after is not None
    assert taints[-1] not in after.taints


def test_a_node_on_its_way_out_gets_no_further_finalizer_and_goes_without_one(world: World) -> None:
    name = f"node-{next(NUMBERS)}"
    world.add_node(name)
    before = set_taints(world.port, name, lambda node: node.taints, finalizers=["example.com/theirs"])
    world.remove_node(name)
    after = world.port.node(name)
    assert after is not None
    assert after.metadata.deletion_timestamp is not None
    with pytest.raises(Conflict):
        world.port.set_taints(
            before, before.taints, metadata={"finalizers": ["example.com/theirs", "example.com/more"]}
        )
    with pytest.raises(InvalidRequest):
        set_taints(world.port, name, lambda node: node.taints, finalizers=["example.com/theirs", "example.com/more"])
    set_taints(world.port, name, lambda node: node.taints, finalizers=[])
    assert world.port.node(name) is None


@pytest.mark.parametrize("stays", [True, False])
def test_owners_of_a_node_change_from_those_that_were_read(world: World, stays: bool) -> None:
    name = f"node-{next(NUMBERS)}"
    world.add_node(name)
    # The garbage collector takes away what is owned by nothing that exists.
    ours, theirs, more = (owner(world, f"{name}-{owner_name}") for owner_name in ("ours", "theirs", "more"))
    before = set_taints(world.port, name, lambda node: node.taints, ownerReferences=[ours, theirs])
    if stays:
        set_taints(world.port, name, lambda node: node.taints, ownerReferences=[ours, theirs, more])
        after = world.port.set_taints(before, before.taints, metadata={"ownerReferences": [ours]})
        assert [owner.uid for owner in after.metadata.owner_references] == [ours["uid"], more["uid"]]
    else:
        set_taints(world.port, name, lambda node: node.taints, ownerReferences=[theirs, more])
        with pytest.raises(Conflict):
            world.port.set_taints(before, before.taints, metadata={"ownerReferences": [ours]})


def owner(world: World, name: str) -> dict[str, str]:
    """Another Node as an owner."""
    world.add_node(name)
    node = world.port.node(name)
    assert node is not None
    return {"apiVersion": "v1", "kind": "Node", "name": name, "uid": node.metadata.uid}


def set_taints(port: ClusterPort, name: str, change: Callable[[Node], tuple[Taint, ...]], **metadata: Any) -> Node:
    """The node controller taints a new node too; what it changes in between is a Conflict, and read again."""
    for _ in range(20):
        node = port.node(name)
        assert node is not None
        with suppress(Conflict):
            return port.set_taints(node, change(node), metadata=metadata)
    raise AssertionError(f"node {name} is always changed in between")


def test_taints_and_metadata_of_a_node_are_written_together(world: World) -> None:
    name, taints = f"node-{next(NUMBERS)}", [Taint(f"taint-{number}", "NoSchedule", "a") for number in range(4)]
    world.add_node(name)
    set_taints(world.port, name, lambda node: (*node.taints, *taints))
    kept = (taints[1], taints[3], Taint("taint-2", "NoExecute"))
    after = set_taints(
        world.port,
        name,
        lambda node: (*(taint for taint in node.taints if taint not in taints), *kept),
        labels={"example.com/team": "b", "gone": "soon"},
        annotations={"example.com/note": "1"},
        finalizers=["example.com/kept"],
    )
    assert tuple(taint for taint in after.taints if taint.key.startswith("taint-")) == kept
    assert after.metadata.labels["example.com/team"] == "b"
    assert after.metadata.annotations["example.com/note"] == "1"
    assert after.metadata.finalizers == ("example.com/kept",)
    again = set_taints(world.port, name, lambda node: (), labels={"gone": None, "other": "c"}, finalizers=[])
    assert not [taint for taint in again.taints if taint.key.startswith("taint-")]
    assert "gone" not in again.metadata.labels
    assert (again.metadata.labels["other"], again.metadata.labels["example.com/team"]) == ("c", "b")
    assert again.metadata.resource_version != after.metadata.resource_version


def test_the_status_of_a_claim_is_written_at_once_and_answers_the_claim(world: World) -> None:
    before = world.port.create_nodeclaim(claim())
    since = datetime(2026, 1, 1, tzinfo=UTC)
    launched = Condition("Launched", "True", "Launched", last_transition_time=since)
    first = world.port.write_nodeclaim_status(before, [launched], status={"providerID": "aws:///z/i-1"})
    assert first.provider_id == "aws:///z/i-1"
    labeled = world.port.patch_nodeclaim(first, {"labels": {"team": "a"}})
    assert (labeled.metadata.labels["team"], labeled.conditions) == ("a", first.conditions)
    # As it was read before it was labeled: what others wrote meanwhile stays.
    registered = Condition("Registered", "True", "Registered", last_transition_time=since)
    second = world.port.write_nodeclaim_status(first, [registered], seen={"Launched": "True", "Registered": ""})
    assert second == world.port.nodeclaim(before.name)
    assert second.metadata.labels["team"] == "a"
    assert [(found.type, found.status) for found in second.conditions] == [("Launched", "True"), ("Registered", "True")]
    assert world.port.write_nodeclaim_status(second, [registered]) == second
    with pytest.raises(Conflict, match="has another Registered by now"):
        world.port.write_nodeclaim_status(first, [launched], status={"nodeName": "n"}, seen={"Registered": ""})
    current = world.port.nodeclaim(before.name)
    assert current is not None
    assert current.node_name == ""


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


def running(world: World, app: str, *, is_ready: bool = True) -> Pod:
    pod = world.pod(node="somewhere", app=app)
    world.start_pod(pod, is_ready=is_ready)
    return world.current_pod(pod.metadata.name)


def is_there(world: World, pod: Pod) -> bool:
    """And not on its way out."""
    found = [one for one in world.port.pods() if one.metadata.uid == pod.metadata.uid]
    return any(one.metadata.deletion_timestamp is None for one in found)


def test_a_budget_keeps_its_pods_and_no_others(world: World) -> None:
    app = f"kept-{next(NUMBERS)}"
    kept, other_pod = running(world, app), running(world, f"other-{app}")
    world.add_budget(app)
    assert not world.port.evict(kept)
    assert world.port.evict(other_pod)
    assert is_there(world, kept)
    assert not is_there(world, other_pod)


def test_a_pod_with_two_budgets_is_never_evicted(world: World) -> None:
    app = f"twice-{next(NUMBERS)}"
    pod = running(world, app)
    for _ in range(2):
        world.add_budget(app, "AlwaysAllow")
    assert not world.port.evict(pod)
    assert is_there(world, pod)


def test_no_budget_is_asked_for_pods_that_have_not_started_and_some_are_not_for_unready_ones(world: World) -> None:
    for policy, is_refused in (("IfHealthyBudget", True), ("AlwaysAllow", False)):
        app = f"unready-{next(NUMBERS)}"
        waiting, unready = world.pod(node="somewhere", app=app), running(world, app, is_ready=False)
        world.add_budget(app, policy)
        assert world.port.evict(waiting)
        assert world.port.evict(unready) != is_refused
        assert is_there(world, unready) == is_refused


def test_whoever_is_gone_or_another_pod_of_the_name_counts_as_evicted(world: World) -> None:
    pod = running(world, f"gone-{next(NUMBERS)}")
    for change in ({"uid": "00000000-0000-0000-0000-000000000000"}, {"name": "nobody"}):
        assert world.port.evict(msgspec.structs.replace(pod, metadata=msgspec.structs.replace(pod.metadata, **change)))
    assert is_there(world, pod)


def test_a_waiting_pod_is_nominated_once_and_stays_so(world: World) -> None:
    pod = world.pod()
    wanted = {pod.key: pod.metadata.uid}
    assert world.port.nominate("planned", wanted) == {pod.key}
    assert world.port.nominate("planned", wanted) == {pod.key}
    assert world.port.nominate("planned", wanted, again=True) == {pod.key}
    for again in (False, True):
        assert world.port.nominate("other", wanted, again=again) == frozenset()
    assert world.current_pod(pod.metadata.name).nominated_node_name == "planned"


def test_nobody_is_nominated_who_is_bound_gone_or_another_pod_of_the_name(world: World) -> None:
    bound, other_pod = world.pod(node="somewhere"), world.pod()
    wanted = {
        bound.key: bound.metadata.uid,
        other_pod.key: "00000000-0000-0000-0000-000000000000",
        "default/nobody": "x",
    }
    for again in (False, True):
        assert world.port.nominate("planned", wanted, again=again) == frozenset()
        assert world.port.nominate("planned", {}, again=again) == frozenset()
    assert (
        world.current_pod(bound.metadata.name).nominated_node_name
        == world.current_pod(other_pod.metadata.name).nominated_node_name
        == ""
    )


def test_only_our_own_nomination_is_withdrawn(world: World) -> None:
    pod, preempted = world.pod(), world.pod()
    world.port.nominate("planned", {pod.key: pod.metadata.uid})
    world.port.nominate("preempted", {preempted.key: preempted.metadata.uid})
    for _ in range(2):
        world.port.clear_nominations(
            "planned", {pod.key: pod.metadata.uid, preempted.key: preempted.metadata.uid, "default/x": "x"}
        )
    assert world.current_pod(pod.metadata.name).nominated_node_name == ""
    assert world.current_pod(preempted.metadata.name).nominated_node_name == "preempted"
    again = {pod.key: pod.metadata.uid, preempted.key: preempted.metadata.uid, "default/x": "x"}
    assert world.port.nominate("planned", again, again=True) == {pod.key}
    assert world.current_pod(pod.metadata.name).nominated_node_name == "planned"


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
