"""Decided nodes as claims, and instances dealt to them."""

import msgspec
import pytest
from hypothesis import given as generated
from hypothesis import strategies as st

from spotwright.aws.nodeclass import hashes
from spotwright.lifecycle.instance_assignment import assign_instances
from spotwright.lifecycle.nodeclaim_creation import decided_nodepool, to_new_node, to_nodeclaim
from spotwright.lifecycle.nodeclass_readiness import nodeclass_readiness
from spotwright.lifecycle.retry import retry_seconds, tick_seconds
from spotwright.model import labels
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import NodeSelectorRequirement, Operator
from spotwright.scheduling.plan import NewNode
from spotwright.simulation import builders

NODE = NewNode(
    nodepool="default",
    nodeclass="default",
    pods=("default/a",),
    instance_types=("c5.large",),
    requirements=(NodeSelectorRequirement(labels.INSTANCE_TYPE, Operator.IN, ("c5.large",)),),
    labels={"team": "a", "custom": "x"},
    taints=(Taint("spot", "NoSchedule"),),
    startup_taints=(),
    requests={"cpu": 1000},
    price_picousd_per_hour=1,
    capacity_type="spot",
    zones=(),
)


def test_a_claim_is_born_with_all_it_needs_to_be_found_and_ended() -> None:
    pool = builders.nodepool(
        metadata=ObjectMeta("default", uid="pool-uid"),
        labels={"team": "a"},
        annotations={"note": "n"},
        expire_after_seconds=None,
        termination_grace_period_seconds=60,
    )
    claim = to_nodeclaim(
        "default-x", NODE, pool, decision_id="d", launch_id="l", annotations={labels.NODEPOOL_HASH: "1"}
    )
    assert claim.metadata.finalizers == (labels.FINALIZER,)
    assert claim.metadata.labels == {
        "team": "a", "custom": "x", labels.NODEPOOL: "default", labels.EC2NODECLASS: "default",
    }  # fmt: skip
    assert claim.metadata.annotations == {
        "note": "n", labels.NODEPOOL_HASH: "1", labels.DECISION: "d", labels.LAUNCH: "l",
    }  # fmt: skip
    (owner,) = claim.metadata.owner_references
    assert (owner.kind, owner.uid, owner.api_version) == ("NodePool", "pool-uid", "karpenter.sh/v1")
    assert (claim.expire_after_seconds, claim.termination_grace_period_seconds) == (None, 60)
    assert (claim.requirements, claim.requests, claim.taints) == (NODE.requirements, NODE.requests, NODE.taints)


@pytest.mark.parametrize(
    "now",
    [
        builders.nodepool(labels={"team": "a"}),
        builders.nodepool(labels={"team": "b", "custom": "x"}),
        builders.nodepool(labels={}),
    ],
    ids=["removed", "changed", "all removed"],
)
def test_a_template_that_changed_since_the_decision_has_the_hash_of_the_decision(now: NodePool) -> None:
    decided = builders.nodepool(labels={"team": "a", "custom": "x"}, taints=NODE.taints)
    assert hashes.nodepool_hash(decided_nodepool(NODE, now)) == hashes.nodepool_hash(decided)


def test_a_label_that_a_requirement_gives_the_node_is_none_of_the_template() -> None:
    exists = NodeSelectorRequirement("custom", Operator.EXISTS)
    pool = builders.nodepool(labels={"team": "a"}, requirements=(exists,), taints=NODE.taints)
    node = msgspec.structs.replace(NODE, labels=NODE.labels | {labels.ZONE: "a", labels.ARCH: "arm64"})
    assert hashes.nodepool_hash(decided_nodepool(node, pool)) == hashes.nodepool_hash(pool)


def test_a_claim_without_a_decision_asks_for_what_it_says() -> None:
    pool = builders.nodepool(metadata=ObjectMeta("default", uid="p"))
    claim = to_nodeclaim("x", NODE, pool, decision_id="d", launch_id="l", annotations={})
    assert to_new_node(claim, ["m5.large", "c5.large"]).instance_types == ("c5.large",)


NAMES = st.sets(st.sampled_from([f"claim-{n}" for n in range(6)]))
IDS = st.sets(st.sampled_from([f"i-{n}" for n in range(6)]))


@generated(NAMES, IDS, IDS)
def test_laws_of_dealing_instances_out(names: set[str], first: set[str], second: set[str]) -> None:
    once = assign_instances(names, {}, first)
    assert set(once) <= names
    assert set(once.values()) <= first
    assert len(set(once.values())) == len(once) == min(len(names), len(first))
    assert assign_instances(names, once, first) == once, "again changes nothing"
    more = assign_instances(names, once, second)
    assert once.items() <= more.items(), "what was dealt stays"
    assert len(set(more.values())) == len(more)


@pytest.mark.parametrize(
    ("conditions", "reason", "final"),
    [
        ((), "NodeClassReadinessUnknown", False),
        ((Condition("Ready", "Unknown", observed_generation=1),), "NodeClassReadinessUnknown", False),
        ((Condition("Ready", "False", observed_generation=1),), "NodeClassNotReady", True),
        ((Condition("Ready", "True", observed_generation=0),), "NodeClassReadinessUnknown", False),
        ((Condition("Ready", "True", observed_generation=1),), "", False),
    ],
)
def test_a_class_is_launched_from_when_it_is_ready_as_it_is_now(
    conditions: tuple[Condition, ...], reason: str, final: bool
) -> None:
    nodeclass = builders.nodeclass(metadata=ObjectMeta("default", generation=1), conditions=conditions)
    readiness = nodeclass_readiness(nodeclass, "default")
    assert (readiness.reason, readiness.final) == (reason, final)


def test_a_class_that_is_missing_counts_as_no_capacity() -> None:
    assert nodeclass_readiness(None, "gone").reason == "InsufficientCapacity"


def test_waiting_grows_and_ends_at_a_minute() -> None:
    assert [retry_seconds(n) for n in (0, 1, 2, 3, 6, 7, 100)] == [2, 2, 4, 8, 60, 60, 60]
    assert [tick_seconds(n) for n in (1, 100)] == [3, 3]
    assert tick_seconds(110) > 3
    assert tick_seconds(10_000) == 60


@pytest.mark.parametrize(("kept", "relaxed"), [(2, "true"), (3, "false"), (None, "true")])
def test_a_claim_says_whether_min_values_were_relaxed(kept: int | None, relaxed: str) -> None:
    wanted = NodeSelectorRequirement(labels.INSTANCE_TYPE, Operator.EXISTS, (), 3)
    pool = builders.nodepool(requirements=(wanted,))
    achieved = NodeSelectorRequirement(labels.INSTANCE_TYPE, Operator.IN, ("c5.large", "m5.large"), kept)
    node = msgspec.structs.replace(NODE, requirements=(achieved,))
    claim = to_nodeclaim("default-x", node, pool, decision_id="d", launch_id="l", annotations={})
    assert claim.metadata.annotations[labels.MIN_VALUES_RELAXED] == relaxed
