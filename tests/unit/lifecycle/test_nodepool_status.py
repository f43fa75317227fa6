"""What a NodePool's status says."""

from datetime import UTC, datetime

import msgspec
import pytest

from spotwright.lifecycle.nodepool_status import capacity, nodepool_conditions, usage, validation_events
from spotwright.model import labels
from spotwright.model.karpenter.nodeclaim import NodeClaim
from spotwright.model.karpenter.nodepool import NodeClassReference, NodePool
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.model.kubernetes.node import Node
from spotwright.model.kubernetes.taints import Taint
from spotwright.model.requirements import NodeSelectorRequirement, Operator
from spotwright.simulation import builders

CLASS = builders.nodeclass(metadata=ObjectMeta("default", generation=1))


def claim(name: str, pool: str = "default", **fields: object) -> NodeClaim:
    return NodeClaim(
        ObjectMeta(name, labels={labels.NODEPOOL: pool}),
        NodeClassReference("karpenter.k8s.aws", "EC2NodeClass", "default"),
        **fields,  # type: ignore[arg-type]
    )


def verdict(pool: NodePool, kind: str = "ValidationSucceeded", gates: tuple[str, ...] = ()) -> tuple[str, str, str]:
    (condition_change,) = [
        change for change in nodepool_conditions(pool, CLASS, feature_gates=gates) if change.type == kind
    ]
    return condition_change.status, condition_change.reason, condition_change.message


def test_usage_counts_the_claims_of_the_pool_that_are_not_being_deleted() -> None:
    going = ObjectMeta("d", labels={labels.NODEPOOL: "default"}, deletion_timestamp=datetime(2026, 1, 1, tzinfo=UTC))
    claims = [claim("a"), claim("b"), claim("c", pool="other"), msgspec.structs.replace(claim("d"), metadata=going)]
    capacities = {"a": {"cpu": 1900, "nvidia.com/gpu": 1, "memory": 10}, "b": {"cpu": 4000}, "c": {"cpu": 8000}}
    assert usage(builders.nodepool(), claims, capacities) == {
        "cpu": 5900, "memory": 10, "pods": 0, "ephemeral-storage": 0, "nodes": 2, "nvidia.com/gpu": 1,
    }  # fmt: skip


def test_what_a_node_reports_counts_before_what_its_claim_says() -> None:
    of = claim("a", capacity={"cpu": 2000, "memory": 10})
    assert capacity(of, None) == {"cpu": 2000, "memory": 10}
    assert capacity(of, Node(ObjectMeta("n"), capacity={"cpu": 1900})) == {"cpu": 1900, "memory": 10}


@pytest.mark.parametrize(("initialized", "gpus"), [("", 4), ("true", 0)])
def test_gpus_that_an_initialized_node_does_not_report_any_more_are_not_counted(initialized: str, gpus: int) -> None:
    """A node that starts has not reported them yet."""
    of = claim("a", capacity={"nvidia.com/gpu": 4})
    node = Node(ObjectMeta("n", labels={labels.INITIALIZED: initialized}), capacity={"nvidia.com/gpu": 0})
    assert capacity(of, node)["nvidia.com/gpu"] == gpus


def test_a_good_pool_is_valid() -> None:
    assert verdict(builders.nodepool())[0] == "True"
    assert verdict(builders.nodepool(), "NodeClassReady")[0] == "True"
    assert verdict(builders.nodepool(), "FieldsRecognized")[0] == "True"


@pytest.mark.parametrize(
    ("pool", "named"),
    [
        (builders.nodepool(replicas=3), "spec.replicas"),
        (
            builders.nodepool(requirements=(NodeSelectorRequirement("x", Operator.IN, ()),)),
            "spec.template.spec.requirements[x]",
        ),
        (builders.nodepool(requirements=(NodeSelectorRequirement("a" * 64, Operator.EXISTS),)), "qualified name"),
        (
            builders.nodepool(requirements=(NodeSelectorRequirement(labels.NODEPOOL, Operator.IN, ("a",)),)),
            "restricted",
        ),
        (builders.nodepool(requirements=(NodeSelectorRequirement("x", Operator.IN, ("-",)),)), "label value"),
        (builders.nodepool(requirements=builders.capacity_types("foo")), "capacity-type"),
        (builders.nodepool(labels={"karpenter.sh/custom": "x"}), "spec.template.metadata.labels[karpenter.sh/custom]"),
        (
            builders.nodepool(taints=(Taint("a", "NoSchedule"),), startup_taints=(Taint("a", "NoSchedule", "v"),)),
            "given twice",
        ),
    ],
)
def test_what_means_nothing_is_named(pool: NodePool, named: str) -> None:
    status, reason, message = verdict(pool)
    assert (status, reason) == ("False", "NodePoolValidationFailed")
    assert named in message


def test_min_values_are_no_fault() -> None:
    assert verdict(builders.nodepool(requirements=(NodeSelectorRequirement("x", Operator.EXISTS, (), 2),)))[0] == "True"


def test_one_known_capacity_type_is_enough() -> None:
    assert verdict(builders.nodepool(requirements=builders.capacity_types("spot", "foo")))[0] == "True"


def test_an_unknown_field_is_said_but_stops_nothing() -> None:
    pool = builders.nodepool(problems=("unknown field spec.limit, did you mean limits?",))
    assert verdict(pool)[0] == "True"
    status, reason, message = verdict(pool, "FieldsRecognized")
    assert (status, reason) == ("False", "UnrecognizedFields")
    assert "did you mean limits?" in message
    (event,) = validation_events(nodepool_conditions(pool, CLASS, feature_gates=()))
    assert (event.type, event.message) == ("Warning", message)


def test_a_value_of_the_annotation_for_roll_outs_that_means_nothing_is_said() -> None:
    about = ObjectMeta("default", annotations={"spotwright.dev/drift-rollout": "off"})
    status, _, message = verdict(builders.nodepool(metadata=about), "FieldsRecognized")
    assert status == "False"
    assert message == "metadata.annotations[spotwright.dev/drift-rollout]: 'off' is not Canary or Off; Canary counts"
    for value in ("Canary", "Off"):
        about = ObjectMeta("default", annotations={"spotwright.dev/drift-rollout": value})
        assert verdict(builders.nodepool(metadata=about), "FieldsRecognized")[0] == "True"


def test_every_consolidation_policy_is_recognized() -> None:
    for policy in ("WhenEmpty", "WhenEmptyOrUnderutilized", "Balanced"):
        assert verdict(builders.nodepool(consolidation_policy=policy), "FieldsRecognized")[0] == "True"


@pytest.mark.parametrize(
    ("conditions", "reason"),
    [
        ((), "NodeClassReadinessUnknown"),
        ((Condition("Ready", "False", "SubnetsNotFound", "no subnets"),), "SubnetsNotFound"),
    ],
)
def test_a_class_that_is_not_ready_says_why(conditions: tuple[Condition, ...], reason: str) -> None:
    changes = nodepool_conditions(builders.nodepool(), builders.nodeclass(conditions=conditions), feature_gates=())
    assert [change.reason for change in changes if change.type == "NodeClassReady"] == [reason]


def test_a_missing_class_is_named() -> None:
    assert "NodeClassNotFound" in [
        condition_change.reason for condition_change in nodepool_conditions(builders.nodepool(), None, feature_gates=())
    ]
