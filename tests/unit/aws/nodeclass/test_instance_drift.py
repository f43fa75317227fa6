"""Which claims drift from their class: their image, and what EC2 shows of their instance."""

import pytest

from spotwright.disruption.nodeclaim_drift import nodeclaim_drift
from spotwright.model import labels
from spotwright.model.ec2.fleet import Instance
from spotwright.model.karpenter.nodeclass import (
    AMI,
    EC2NodeClass,
    PlacementGroup,
    PlacementGroupSelector,
    SecurityGroup,
)
from spotwright.model.requirements import NodeSelectorRequirement
from tests.unit.disruption.drift_cases import (
    GATES,
    NOW,
    TYPES,
    claim,
    instance,
    judged,
    nodeclass,
    pool,
    reason,
    reserving,
)

ARM = AMI("ami-arm64", requirements=(NodeSelectorRequirement(labels.ARCH, "In", ("arm64",)),))
AMD = AMI("ami-amd64", requirements=(NodeSelectorRequirement(labels.ARCH, "In", ("amd64",)),))
NEWER = AMI("ami-newer", requirements=(NodeSelectorRequirement(labels.ARCH, "In", ("amd64",)),))


@pytest.mark.parametrize(
    ("amis", "image", "expected"),
    [
        ((ARM, AMD), "ami-amd64", "NoneType"),
        ((NEWER,), "ami-amd64", "AMIDrift"),
        ((NEWER, AMD), "ami-amd64", "AMIDrift"),
        ((AMD, ARM), "ami-arm64", "AMIDrift"),
        ((ARM,), "ami-amd64", "AMIDrift"),
        ((), "ami-amd64", "DriftUnknown"),
        ((AMD,), "", "DriftUnknown"),
    ],
)
def test_an_image_that_its_type_would_not_get_now_drifts(amis: tuple[AMI, ...], image: str, expected: str) -> None:
    assert reason(judged(claim(image=image), like=nodeclass(amis=amis))) == expected


@pytest.mark.parametrize(
    ("like", "on", "expected"),
    [
        (nodeclass(), instance(security_groups=("sg-1", "sg-2")), "SecurityGroupDrift"),
        (nodeclass(security_groups=(SecurityGroup("sg-1"), SecurityGroup("sg-2"))), instance(), "SecurityGroupDrift"),
        (nodeclass(security_groups=()), instance(), "DriftUnknown"),
        (nodeclass(), instance(subnet_id="subnet-z"), "SubnetDrift"),
        (nodeclass(subnets=()), instance(), "DriftUnknown"),
        (reserving("cr-foo"), instance(reservation_id="cr-foo"), "NoneType"),
        (reserving("cr-bar"), instance(reservation_id="cr-foo"), "CapacityReservationDrift"),
        (reserving(), instance(reservation_id="cr-foo"), "CapacityReservationDrift"),
        (reserving("cr-bar"), instance(), "NoneType"),
        (nodeclass(), instance(state="shutting-down", subnet_id="subnet-z"), "DriftUnknown"),
        (nodeclass(), instance(security_groups=()), "DriftUnknown"),
        (nodeclass(), instance(subnet_id=""), "DriftUnknown"),
    ],
)
def test_what_the_instance_has_is_held_against_the_class(like: EC2NodeClass, on: Instance, expected: str) -> None:
    assert reason(judged(like=like, on=on)) == expected


def test_without_its_gate_a_reservation_says_nothing() -> None:
    assert judged(on=instance(reservation_id="cr-foo"), gates=()) is None


def test_an_instance_that_ec2_does_not_show_says_nothing() -> None:
    assert (
        reason(nodeclaim_drift(claim(), pool(), nodeclass(), TYPES, None, feature_gates=GATES, now=NOW))
        == "DriftUnknown"
    )


GROUP = PlacementGroup("pg-1", "near", "cluster")
SELECTING = PlacementGroupSelector(name="near")


@pytest.mark.parametrize(
    ("group_id", "like", "expected"),
    [
        ("pg-1", nodeclass(placement_group_selector=SELECTING, placement_group=GROUP), "NoneType"),
        ("pg-2", nodeclass(placement_group_selector=SELECTING, placement_group=GROUP), "PlacementGroupDrift"),
        (None, nodeclass(placement_group_selector=SELECTING, placement_group=GROUP), "PlacementGroupDrift"),
        ("pg-1", nodeclass(), "PlacementGroupDrift"),
        ("pg-1", nodeclass(placement_group_selector=SELECTING), "DriftUnknown"),
    ],
)
def test_another_placement_group_drifts(group_id: str | None, like: EC2NodeClass, expected: str) -> None:
    assert reason(judged(claim(labels={labels.PLACEMENT_GROUP_ID: group_id}), like=like)) == expected
