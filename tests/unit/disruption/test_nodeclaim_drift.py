"""Which claims drift from their pool and class, and why."""

from collections.abc import Mapping
from datetime import timedelta

import msgspec
import pytest

from spotwright.disruption.nodeclaim_drift import hash_migration, nodeclaim_drift
from spotwright.model import labels
from spotwright.model.ec2.instance_type import InstanceType
from spotwright.model.karpenter.drift import Drift
from spotwright.model.karpenter.nodepool import NodePool
from spotwright.model.kubernetes.meta import Condition, ObjectMeta
from spotwright.simulation import builders
from tests.unit.disruption.drift_cases import (
    CLASS_HASH,
    GATES,
    NOW,
    POOL_HASH,
    TYPES,
    ZONE,
    claim,
    instance,
    judged,
    merged,
    nodeclass,
    pool,
    reason,
    requiring,
    reserving,
)


def test_a_claim_that_is_as_it_should_be_does_not_drift() -> None:
    assert judged() is None


@pytest.mark.parametrize(
    ("claim_hash", "owner_hash", "expected"),
    [
        ({}, {}, "NoneType"),
        ({"hash": "9"}, {}, "Drifted"),
        ({"hash": "9", "version": "old"}, {}, "NoneType"),
        ({"hash": "9"}, {"version": "new"}, "NoneType"),
        ({"hash": None}, {}, "NoneType"),
        ({"version": None}, {}, "NoneType"),
        ({}, {"hash": None}, "NoneType"),
        ({"hash": "9"}, {"version": None}, "NoneType"),
    ],
)
@pytest.mark.parametrize("kind", ["NodePool", "NodeClass"])
def test_another_hash_of_the_same_version_drifts(
    kind: str, claim_hash: dict[str, str | None], owner_hash: dict[str, str | None], expected: str
) -> None:
    hashed = POOL_HASH if kind == "NodePool" else CLASS_HASH
    keys = dict(zip(("hash", "version"), hashed, strict=True))
    nodeclaim = claim(annotations={keys[key]: value for key, value in claim_hash.items()})
    stated = merged(hashed, {keys[key]: value for key, value in owner_hash.items()})
    drift = judged(nodeclaim, of=pool(stated)) if kind == "NodePool" else judged(nodeclaim, like=nodeclass(stated))
    wanted = {"NodePool": "NodePoolDrifted", "NodeClass": "NodeClassDrift"}[kind]
    assert reason(drift) == (wanted if expected == "Drifted" else expected)


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (requiring(labels.ARCH, "In", "amd64"), "NoneType"),
        (requiring(labels.ARCH, "In", "amd64", "arm64"), "NoneType"),
        (requiring(labels.ARCH, "In", "arm64"), "RequirementsDrifted"),
        (requiring(labels.ARCH, "NotIn", "amd64"), "RequirementsDrifted"),
        (requiring(labels.OS, "In", "linux"), "RequirementsDrifted"),
        (requiring(labels.OS, "Exists"), "RequirementsDrifted"),
        (requiring("team", "Gt", "3"), "RequirementsDrifted"),
        (requiring("team", "NotIn", "a"), "NoneType"),
        (requiring("team", "DoesNotExist"), "NoneType"),
        (requiring(labels.ARCH, "DoesNotExist"), "RequirementsDrifted"),
        (requiring(labels.ARCH, "Sometimes"), "DriftUnknown"),
    ],
)
def test_labels_that_the_pool_no_longer_allows_drift(of: NodePool, expected: str) -> None:
    assert reason(judged(of=of)) == expected


def test_a_node_whose_partition_is_not_known_yet_waits_for_it() -> None:
    key = labels.PLACEMENT_GROUP_PARTITION
    wanted = requiring(key, "In", "1", "2")
    assert reason(judged(claim(labels={key: ""}), of=wanted)) == "DriftUnknown"
    assert reason(judged(claim(labels={key: "3"}), of=wanted)) == "RequirementsDrifted"


HOUR = timedelta(hours=1)
SECOND = timedelta(seconds=1)
SOLD_OUT = {
    name: msgspec.structs.replace(
        instance_type,
        offerings=tuple(msgspec.structs.replace(offering, available=False) for offering in instance_type.offerings),
    )
    for name, instance_type in TYPES.items()
}
WITHOUT = {name: instance_type for name, instance_type in TYPES.items() if name != "m5.large"}
ELSEWHERE = {
    name: msgspec.structs.replace(
        instance_type, offerings=tuple(offering for offering in instance_type.offerings if offering.zone != ZONE)
    )
    for name, instance_type in TYPES.items()
}


@pytest.mark.parametrize(
    ("age", "types", "expected"),
    [
        (HOUR, ELSEWHERE, "NoneType"),
        (HOUR + SECOND, ELSEWHERE, "InstanceTypeNotFound"),
        (HOUR, WITHOUT, "DriftUnknown"),
        (HOUR + SECOND, WITHOUT, "InstanceTypeNotFound"),
        (HOUR + SECOND, SOLD_OUT, "NoneType"),
        (HOUR + SECOND, {}, "DriftUnknown"),
    ],
)
def test_a_type_that_is_no_longer_sold_drifts_after_an_hour(
    age: timedelta, types: Mapping[str, InstanceType], expected: str
) -> None:
    assert reason(judged(claim(age=age), types=types)) == expected


def test_a_reserved_node_is_sold_while_its_type_is_sold_on_demand() -> None:
    nodeclaim = claim(age=2 * HOUR, labels={labels.CAPACITY_TYPE: labels.RESERVED, labels.RESERVATION_ID: "cr-gone"})
    assert judged(nodeclaim) is None
    spot = {
        name: msgspec.structs.replace(
            instance_type, offerings=tuple(o for o in instance_type.offerings if o.capacity_type == "spot")
        )
        for name, instance_type in TYPES.items()
    }
    assert reason(judged(nodeclaim, types=spot)) == "InstanceTypeNotFound"


ORDER = (
    "NodePoolDrifted", "RequirementsDrifted", "InstanceTypeNotFound", "NodeClassDrift", "AMIDrift",
    "SecurityGroupDrift", "SubnetDrift", "CapacityReservationDrift", "PlacementGroupDrift",
)  # fmt: skip


@pytest.mark.parametrize("first", range(len(ORDER)))
def test_of_several_reasons_the_first_counts(first: int) -> None:
    """Everything from ``first`` on is wrong at once."""

    def wrong(kind: str) -> bool:
        return ORDER.index(kind) >= first

    nodeclaim = claim(
        age=2 * HOUR,
        image="ami-old" if wrong("AMIDrift") else "ami-amd64",
        labels={labels.PLACEMENT_GROUP_ID: "pg-old"},
        annotations={
            labels.NODEPOOL_HASH: "9" if wrong("NodePoolDrifted") else "1",
            labels.EC2NODECLASS_HASH: "9" if wrong("NodeClassDrift") else "2",
        },
    )
    drift = judged(
        nodeclaim,
        of=requiring(labels.ARCH, "In", "arm64") if wrong("RequirementsDrifted") else pool(),
        types=ELSEWHERE if wrong("InstanceTypeNotFound") else TYPES,
        on=instance(
            security_groups=("sg-9",) if wrong("SecurityGroupDrift") else ("sg-1",),
            subnet_id="subnet-z" if wrong("SubnetDrift") else "subnet-a",
            reservation_id="cr-9" if wrong("CapacityReservationDrift") else "",
        ),
    )
    assert reason(drift) == ORDER[first]


def test_a_message_says_what_was_found_and_what_is_wanted() -> None:
    said = {
        "NodePool default was changed: found hash 9, wanted 1": judged(claim(annotations={labels.NODEPOOL_HASH: "9"})),
        "labels: found kubernetes.io/arch In [amd64], wanted kubernetes.io/arch In [arm64]": judged(
            of=requiring(labels.ARCH, "In", "arm64")
        ),
        "labels: found no team, wanted team In [a]": judged(of=requiring("team", "In", "a")),
        f"m5.large is not offered as spot in {ZONE}": judged(claim(age=2 * HOUR), types=ELSEWHERE),
        "m5.large is not offered in any zone of the class": judged(claim(age=2 * HOUR), types=WITHOUT),
        "image: found ami-old, wanted ami-amd64": judged(claim(image="ami-old")),
        "security groups: found sg-1, sg-2, wanted sg-1": judged(on=instance(security_groups=("sg-1", "sg-2"))),
        "subnet: found subnet-z, wanted one of subnet-a, subnet-b, subnet-c": judged(on=instance(subnet_id="subnet-z")),
        "capacity reservation: found cr-foo, wanted cr-bar": judged(
            like=reserving("cr-bar"), on=instance(reservation_id="cr-foo")
        ),
        "placement group: found pg-1, wanted none": judged(claim(labels={labels.PLACEMENT_GROUP_ID: "pg-1"})),
    }
    assert {drift.message for drift in said.values() if isinstance(drift, Drift)} == set(said)


def test_only_a_launched_claim_drifts() -> None:
    changed = {labels.NODEPOOL_HASH: "9"}
    for conditions in ((), (Condition("Launched", "Unknown"),)):
        assert judged(claim(annotations=changed, conditions=conditions)) is None


def test_without_a_pool_nothing_is_said_and_without_a_class_only_the_pool_counts() -> None:
    changed = claim(annotations={labels.NODEPOOL_HASH: "9"})
    other_nodeclaim = claim(annotations={labels.EC2NODECLASS_HASH: "9"})
    assert (
        reason(nodeclaim_drift(changed, None, nodeclass(), TYPES, instance(), feature_gates=GATES, now=NOW))
        == "DriftUnknown"
    )
    assert (
        reason(nodeclaim_drift(changed, pool(), None, TYPES, instance(), feature_gates=GATES, now=NOW))
        == "NodePoolDrifted"
    )
    assert nodeclaim_drift(other_nodeclaim, pool(), None, TYPES, instance(), feature_gates=GATES, now=NOW) is None


def test_while_pool_or_class_are_deleted_nothing_drifts_from_them() -> None:
    deleting = msgspec.structs.replace(
        ObjectMeta("default", annotations={**POOL_HASH, **CLASS_HASH}), deletion_timestamp=NOW
    )
    assert judged(claim(annotations={labels.NODEPOOL_HASH: "9"}), of=builders.nodepool(metadata=deleting)) is None
    assert (
        judged(claim(annotations={labels.EC2NODECLASS_HASH: "9"}), like=builders.nodeclass(metadata=deleting)) is None
    )


@pytest.mark.parametrize(
    ("version", "conditions", "expected"),
    [
        ("v2", (), {labels.NODEPOOL_HASH: "7", labels.NODEPOOL_HASH_VERSION: "v3"}),
        (None, (), {labels.NODEPOOL_HASH: "7", labels.NODEPOOL_HASH_VERSION: "v3"}),
        ("v2", (Condition("Drifted", "True"),), {labels.NODEPOOL_HASH_VERSION: "v3"}),
        ("v3", (), {}),
    ],
)
def test_a_hash_of_another_version_is_taken_over_unless_the_claim_drifts(
    version: str | None, conditions: tuple[Condition, ...], expected: dict[str, str]
) -> None:
    nodeclaim = claim(
        annotations={labels.NODEPOOL_HASH: "123", labels.NODEPOOL_HASH_VERSION: version}, conditions=conditions
    )
    hashed = {labels.NODEPOOL_HASH: "7", labels.NODEPOOL_HASH_VERSION: "v3"}
    assert hash_migration(nodeclaim, hashed, labels.NODEPOOL_HASH_VERSION) == expected
