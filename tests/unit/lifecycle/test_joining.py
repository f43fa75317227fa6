"""Registration, initialization and liveness of a claim."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from spotwright.lifecycle.initialization import initialize
from spotwright.lifecycle.liveness import expiration, timeout
from spotwright.lifecycle.registration import is_registered_with_another, register, unregister
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, OwnerReference
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.taints import Taint

BORN = datetime(2026, 1, 1, tzinfo=UTC)
UNREGISTERED = Taint(labels.UNREGISTERED, "NoExecute")
STARTUP = Taint("cilium", "NoSchedule", "starting")
CLAIM = NodeClaim(
    ObjectMeta("claim", uid="u", creation_timestamp=BORN, labels={labels.NODEPOOL: "default", "team": "a"}),
    NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default"),
    requests={"cpu": 1000},
    taints=(Taint("spot", "NoSchedule", "only"),),
    startup_taints=(STARTUP,),
)
NODE = Node(
    ObjectMeta("node", labels={"team": "b", "own": "1"}),
    taints=(UNREGISTERED,),
    allocatable={"cpu": 2000},
    conditions=(Condition("Ready", "True"),),
)


def node(**fields: object) -> Node:
    return msgspec.structs.replace(NODE, **fields)


def launched(claim: NodeClaim, at: datetime, *kinds: str) -> NodeClaim:
    return msgspec.structs.replace(
        claim, conditions=tuple(Condition(kind, "True", last_transition_time=at) for kind in kinds)
    )


def test_without_a_node_registration_waits() -> None:
    (change,) = register(CLAIM, ()).result.condition_changes
    assert (change.status, change.reason, change.message) == (
        "Unknown",
        "NodeNotFound",
        "Node not registered with cluster",
    )


def test_two_nodes_of_one_instance_are_an_error() -> None:
    registration = register(CLAIM, (NODE, node(metadata=ObjectMeta("twin"))))
    assert registration.node_update is None
    assert registration.result.condition_changes[0].reason == "MultipleNodesFound"


@pytest.mark.parametrize(("is_deleted", "expected"), [(False, "node"), (True, None)])
def test_of_two_nodes_the_one_with_the_name_of_the_instance_is_registered(
    is_deleted: bool, expected: str | None
) -> None:
    """A Node that is being deleted takes no place."""
    annotated = msgspec.structs.replace(CLAIM.metadata, annotations={labels.EXPECTED_NODE: "node"})
    claim = msgspec.structs.replace(
        CLAIM, metadata=annotated, node_name="twin", conditions=(Condition("Registered", "True"),)
    )
    going = msgspec.structs.replace(NODE.metadata, deletion_timestamp=BORN if is_deleted else None)
    nodes = (node(metadata=going), node(metadata=ObjectMeta("twin")))
    update = register(claim, nodes).node_update
    assert (update.node.name if update is not None else None) == expected
    assert is_registered_with_another(claim, nodes) is not is_deleted
    assert not is_registered_with_another(msgspec.structs.replace(claim, node_name="node"), nodes)


def test_the_node_takes_over_what_the_claim_says() -> None:
    adoption = register(CLAIM, (NODE,)).node_update
    assert adoption is not None
    assert adoption.metadata["labels"] == {labels.NODEPOOL: "default", "team": "a", labels.REGISTERED: "true"}
    assert adoption.metadata["finalizers"] == [labels.FINALIZER]
    assert adoption.metadata["ownerReferences"][0]["uid"] == "u"
    assert adoption.taints == (Taint("spot", "NoSchedule", "only"), STARTUP)


def owned(*uids: str, **metadata: Any) -> Node:
    """A node that was registered with NodeClaims of these uids."""
    owners = tuple(OwnerReference("NodeClaim", uid, uid) for uid in uids)
    about = ObjectMeta("node", labels={"team": "a"}, finalizers=(labels.FINALIZER,), owner_references=owners)
    return node(metadata=msgspec.structs.replace(about, **metadata))


def test_a_node_that_two_claims_own_loses_one_owner_and_nothing_of_the_other() -> None:
    assert [owner["uid"] for owner in unregister(CLAIM, owned("u", "other")).pop("ownerReferences")] == ["other"]
    assert unregister(CLAIM, owned("u", "other")).keys() == {"ownerReferences"}
    assert unregister(CLAIM, owned("u")).keys() == {"ownerReferences", "labels", "annotations", "finalizers"}


def test_a_label_that_somebody_changed_since_is_not_taken_back() -> None:
    assert unregister(CLAIM, owned("u"))["labels"] == {"team": None}
    assert unregister(CLAIM, owned("u", labels={"team": "b"}))["labels"] == {}


@pytest.mark.parametrize("label", [labels.ZONE, labels.ZONE_ID, labels.HOSTNAME, labels.WINDOWS_BUILD])
def test_a_label_of_the_kubelet_or_the_cloud_controller_manager_is_not_taken_back(label: str) -> None:
    """The latter sets the zone and its id once, when the Node joins: nobody would set them again."""
    about = msgspec.structs.replace(CLAIM.metadata, labels={label: "here"})
    claim = msgspec.structs.replace(CLAIM, metadata=about)
    assert label not in unregister(claim, owned("u", labels={label: "here"}))["labels"]


def test_nothing_is_taken_from_a_node_of_anothers_or_one_that_has_to_be_drained() -> None:
    assert unregister(CLAIM, owned("other")) == {}
    assert unregister(CLAIM, owned("u", deletion_timestamp=BORN)) == {}


def test_taints_that_the_kubelet_set_are_not_synced_again() -> None:
    synced = node(metadata=ObjectMeta("node", labels={labels.DO_NOT_SYNC_TAINTS: "true"}))
    adoption = register(CLAIM, (synced,)).node_update
    assert adoption is not None
    assert adoption.taints == ()


def test_a_node_without_the_unregistered_taint_registers_and_is_pointed_out() -> None:
    registration = register(CLAIM, (node(taints=()),))
    assert [event.reason for event in registration.result.events] == ["UnregisteredTaintMissing"]
    assert registration.node_update is not None


@pytest.mark.parametrize(
    ("node", "reason"),
    [
        (None, "NodeNotFound"),
        (node(conditions=(Condition("Ready", "False"),)), "NodeNotReady"),
        (node(taints=(STARTUP,)), "StartupTaintsExist"),
        (node(taints=(Taint("node.kubernetes.io/not-ready", "NoSchedule"),)), "KnownEphemeralTaintsExist"),
        (node(taints=(Taint("readiness.k8s.io/gpu", "NoSchedule"),)), "KnownEphemeralTaintsExist"),
        (node(taints=(), allocatable={"cpu": 0}), "ResourceNotRegistered"),
        (node(taints=()), "Initialized"),
        (node(taints=(Taint("dedicated", "NoSchedule"),)), "Initialized"),
    ],
)
def test_what_initialization_waits_for(node: Node | None, reason: str) -> None:
    (change,) = initialize(CLAIM, node).condition_changes
    assert change.reason == reason


@pytest.mark.parametrize(
    ("kinds", "seconds", "reason"),
    [
        ((), 299, ""),
        ((), 300, "launch_timeout"),
        (("Launched",), 899, ""),
        (("Launched",), 900, "registration_timeout"),
        (("Launched", "Registered"), 10**6, ""),
    ],
)
def test_what_does_not_come_in_time_ends(kinds: tuple[str, ...], seconds: int, reason: str) -> None:
    deletion = timeout(launched(CLAIM, BORN, *kinds), BORN + timedelta(seconds=seconds))
    assert (deletion.reason if deletion else "") == reason


def test_the_timer_runs_from_the_conditions_own_time() -> None:
    late = BORN + timedelta(minutes=10)
    claim = msgspec.structs.replace(CLAIM, conditions=(Condition("Launched", "Unknown", last_transition_time=late),))
    assert timeout(claim, BORN + timedelta(minutes=12)) is None
    assert timeout(claim, BORN + timedelta(minutes=15)) is not None


@pytest.mark.parametrize(("after", "seconds", "goes"), [(200, 199, False), (200, 200, True), (None, 10**9, False)])
def test_expiration_counts_from_creation(after: int | None, seconds: int, goes: bool) -> None:
    claim = msgspec.structs.replace(CLAIM, expire_after_seconds=after)
    assert (expiration(claim, BORN + timedelta(seconds=seconds)) is not None) is goes


def test_a_node_in_a_partition_waits_until_it_is_known_in_which() -> None:
    def labelled(partition: str) -> NodeClaim:
        claim_labels = CLAIM.metadata.labels | {labels.PLACEMENT_GROUP_PARTITION: partition}
        return msgspec.structs.replace(CLAIM, metadata=msgspec.structs.replace(CLAIM.metadata, labels=claim_labels))

    waiting = register(labelled(""), (NODE,))
    assert waiting.node_update is None
    assert (waiting.result.condition_changes[0].status, waiting.result.condition_changes[0].reason) == (
        "Unknown",
        "RegistrationHookPending",
    )
    registration = register(labelled("3"), (NODE,))
    assert registration.node_update is not None
    assert registration.node_update.metadata["labels"][labels.PLACEMENT_GROUP_PARTITION] == "3"
