"""The status of a class: what was found, and the conditions that follow."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from spotwright.aws.instance_types.capacity import Overheads
from spotwright.aws.nodeclass import instance_profiles, readiness, status_patch, validation
from spotwright.aws.nodeclass.readiness import DiscoveredResources, DiscoveredSecurityGroup, DiscoveredSubnet
from spotwright.aws.refusal import Refusal, Unanswered
from spotwright.model.karpenter.nodeclass import BlockDeviceMapping, CapacityReservation, EC2NodeClass, PlacementGroup
from spotwright.model.kubernetes.meta import Condition, ObjectMeta, find_condition
from tests.unit.aws.samples import CLUSTER, FACTS, NOW, ZONES, nodeclass, type_of

SUBNETS = tuple(DiscoveredSubnet(f"subnet-{zone[-1]}", zone, "az", 100, "vpc-1") for zone in ZONES)
GROUPS = (DiscoveredSecurityGroup("sg-1", "nodes", "vpc-1"),)
FOUND = DiscoveredResources(SUBNETS, GROUPS, nodeclass().amis, "profile-1")


def fresh(**changes: Any) -> EC2NodeClass:
    """A class that was never resolved."""
    return nodeclass(subnets=(), security_groups=(), amis=(), resolved_instance_profile="", **changes)


def resolved(nodeclass: EC2NodeClass | None = None, **answers: Any) -> readiness.Resolution:
    return readiness.resolve(nodeclass or fresh(), msgspec.structs.replace(FOUND, **answers), FACTS, now=NOW)


def said(resolution: readiness.Resolution, kind: str) -> tuple[str, str, str]:
    condition = find_condition(resolution.nodeclass.conditions, kind)
    assert condition is not None, kind
    return condition.status, condition.reason, condition.message


def test_a_class_that_finds_everything_is_ready() -> None:
    resolution = resolved()
    assert resolution.ready
    for kind in (*readiness.DEPENDENTS, readiness.VALIDATION_SUCCEEDED, readiness.FIELDS_RECOGNIZED, readiness.READY):
        assert said(resolution, kind) == ("True", kind, "")
    assert resolution.nodeclass.resolved_instance_profile == "profile-1"


def test_conditions_are_about_the_generation_that_was_looked_at() -> None:
    resolution = resolved(fresh(metadata=ObjectMeta("default", uid="u", generation=7)))
    assert {condition.observed_generation for condition in resolution.nodeclass.conditions} == {7}


def test_a_condition_keeps_its_time_while_its_status_stays() -> None:
    before = fresh(
        conditions=(
            Condition("AMIsReady", "True", last_transition_time=NOW),
            Condition("SubnetsReady", "False", last_transition_time=NOW),
        )
    )
    times = {condition.type: condition.last_transition_time for condition in resolved(before).nodeclass.conditions}
    assert times["AMIsReady"] == NOW
    assert times["SubnetsReady"] is None


def test_subnets_stand_with_most_free_addresses_first() -> None:
    free = {"a": 20, "b": 100, "c": 50}
    subnets = tuple(DiscoveredSubnet(f"subnet-{key}", key, "", size, "vpc-1") for key, size in free.items())
    nodeclass = resolved(subnets=subnets).nodeclass
    assert [subnet.id for subnet in nodeclass.subnets] == ["subnet-b", "subnet-c", "subnet-a"]


NO_AMIS: tuple[()] = ()


@pytest.mark.parametrize(
    ("answers", "kind", "reason"),
    [
        ({"subnets": ()}, "SubnetsReady", "SubnetsNotFound"),
        ({"security_groups": ()}, "SecurityGroupsReady", "SecurityGroupsNotFound"),
        ({"amis": NO_AMIS}, "AMIsReady", "AMINotFound"),
        ({"amis": Refusal("UnsupportedAlias", "no")}, "AMIsReady", "UnsupportedAlias"),
        ({"instance_profile": Refusal("RoleNotAllowed", "no")}, "InstanceProfileReady", "RoleNotAllowed"),
        ({"subnets": (*SUBNETS, DiscoveredSubnet("subnet-x", "z", "", 1, "vpc-2"))}, "SubnetsReady",
         "SubnetsNotInClusterVPC"),
        ({"security_groups": (DiscoveredSecurityGroup("sg-x", "", "vpc-2"),)}, "SecurityGroupsReady",
         "SecurityGroupsNotInClusterVPC"),
    ],
)  # fmt: skip
def test_what_is_missing_or_foreign_stops_the_class(answers: dict[str, Any], kind: str, reason: str) -> None:
    resolution = resolved(**answers)
    assert not resolution.ready
    assert said(resolution, kind)[:2] == ("False", reason)
    assert said(resolution, "ValidationSucceeded") == ("False", "DependenciesNotReady", f"{kind}=False")
    assert said(resolution, "Ready") == ("False", "UnhealthyDependents", f"{kind}=False, ValidationSucceeded=False")
    assert reason in readiness.not_ready_message(resolution.nodeclass)


def test_a_foreign_subnet_is_named_and_none_is_used() -> None:
    resolution = resolved(subnets=(*SUBNETS, DiscoveredSubnet("subnet-x", "z", "", 1, "vpc-2")))
    assert "subnet-x (vpc-2)" in said(resolution, "SubnetsReady")[2]
    assert resolution.nodeclass.subnets == ()


@pytest.mark.parametrize(
    ("changes", "reason", "text"),
    [
        ({"tags": {"karpenter.sh/nodepool": "x"}}, "TagValidationFailed", "karpenter.sh/nodepool"),
        ({"tags": {f"kubernetes.io/cluster/{CLUSTER}": "x"}}, "TagValidationFailed", "kubernetes.io/cluster"),
        ({"tags": {"spotwright.dev/launch": "x"}}, "TagValidationFailed", "spotwright.dev/launch"),
        ({"tags": {"spotwright.dev/orphan": "terminate"}}, "TagValidationFailed", "spotwright.dev/orphan"),
        ({"kubelet": {"maxPods": "vcpus * 10"}}, "KubeletExpressionsDisabled", "spec.kubelet.maxPods"),
        ({"kubelet": {"maxPod": 10}}, "InvalidKubeletConfiguration", "spec.kubelet.maxPod"),
        (
            {"kubelet": {"syncFrequency": "1m"}, "ami_family": "AL2"},
            "UnsupportedKubeletConfiguration",
            "spec.kubelet.syncFrequency",
        ),
        ({"ami_family": "Ubuntu"}, "UnsupportedAMIFamily", "spec.amiFamily"),
        ({"user_data": "#!/bin/sh\n" + "x" * 17000}, "UserDataSizeLimitExceeded", "spec.userData"),
        ({"user_data": "MIME-Version: 1.0\n\nx"}, "InvalidUserData", "spec.userData"),
        (
            {"block_device_mappings": (BlockDeviceMapping("/dev/xvda", volume_size="20 pounds"),)},
            "InvalidBlockDeviceMapping",
            "spec.blockDeviceMappings[0].ebs.volumeSize",
        ),
    ],
)
def test_a_class_that_cannot_be_launched_says_which_field(changes: dict[str, Any], reason: str, text: str) -> None:
    status, actual, message = said(resolved(fresh(**changes)), "ValidationSucceeded")
    assert (status, actual) == ("False", reason)
    assert text in message


def test_an_unknown_field_is_said_and_does_not_stop_the_class() -> None:
    resolution = resolved(fresh(problems=("unknown field spec.subnets, did you mean subnetSelectorTerms?",)))
    assert resolution.ready
    status, reason, message = said(resolution, "FieldsRecognized")
    assert (status, reason) == ("False", "UnrecognizedFields")
    assert "did you mean" in message


def test_an_image_of_the_user_needs_no_service_range() -> None:
    unknown = msgspec.structs.replace(FACTS, service_cidr="")
    assert validation.validate(fresh(ami_family="Custom"), unknown) is None
    refusal = validation.validate(fresh(), unknown)
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "ClusterCIDRResolutionFailed"


def test_status_as_the_api_server_takes_it() -> None:
    status = status_patch.status_patch(resolved().nodeclass)
    assert status["subnets"][0] == {"id": "subnet-a", "zone": ZONES[0], "zoneID": "az"}
    assert status["securityGroups"] == [{"id": "sg-1", "name": "nodes"}]
    assert status["instanceProfile"] == "profile-1"
    standard = next(ami for ami in status["amis"] if ami["id"] == "ami-x86_64-standard")
    assert [ami["key"].rpartition("/")[2] for ami in standard["requirements"]] == [
        "arch",
        "instance-gpu-count",
        "instance-accelerator-count",
    ]
    assert status_patch.status_patch(fresh())["instanceProfile"] is None


def profile(**changes: Any) -> instance_profiles.DesiredProfile | Refusal:
    return instance_profiles.desired_profile(
        fresh(**changes), region="ap-northeast-2", cluster=CLUSTER, node_roles=(f"KarpenterNodeRole-{CLUSTER}", "other")
    )


def test_a_profile_belongs_to_class_and_role() -> None:
    first, second = profile(), profile(role="other")
    assert isinstance(first, instance_profiles.DesiredProfile)
    assert isinstance(second, instance_profiles.DesiredProfile)
    assert first.name.startswith(f"{CLUSTER}_")
    assert first.name != second.name
    assert first.path == second.path == f"/karpenter/ap-northeast-2/{CLUSTER}/uid-class/"
    assert first.tags == {
        f"kubernetes.io/cluster/{CLUSTER}": "owned",
        "eks:eks-cluster-name": CLUSTER,
        "karpenter.k8s.aws/ec2nodeclass": "default",
        "topology.kubernetes.io/region": "ap-northeast-2",
    }
    assert profile() == first


def test_a_role_with_a_path_is_the_same_role() -> None:
    assert profile(role=f"teams/a/KarpenterNodeRole-{CLUSTER}") == profile()


def test_a_role_that_was_not_deployed_for_is_refused() -> None:
    refusal = profile(role="Administrator")
    assert isinstance(refusal, Refusal)
    assert refusal.reason == "RoleNotAllowed"
    assert "Administrator" in refusal.message
    assert f"KarpenterNodeRole-{CLUSTER}" in refusal.message


def reservation(id: str, **changes: Any) -> CapacityReservation:
    return CapacityReservation(id, "m5.large", "us-east-1a", **changes)


def test_reservations_stand_by_id_and_those_that_ended_are_gone() -> None:
    ended, block = NOW - timedelta(seconds=1), "capacity-block"
    resolution = resolved(
        capacity_reservations=(
            reservation("cr-4", end_time=NOW + timedelta(minutes=40), reservation_type=block),
            reservation("cr-3", end_time=NOW + timedelta(minutes=41), reservation_type=block),
            reservation("cr-2", end_time=ended),
            reservation("cr-1", end_time=NOW + timedelta(minutes=5), available_instance_count=3),
        )
    )
    shown = [(reservation.id, reservation.state) for reservation in resolution.nodeclass.capacity_reservations]
    assert shown == [("cr-1", "active"), ("cr-3", "active"), ("cr-4", "expiring")]
    assert resolution.nodeclass.capacity_reservations[0].available_instance_count == 3
    assert said(resolution, "CapacityReservationsReady")[0] == "True"


def test_a_placement_group_that_is_not_there_stops_the_class() -> None:
    missing = resolved(placement_group=Refusal("PlacementGroupNotFound", "no"))
    assert said(missing, "PlacementGroupReady")[:2] == ("False", "PlacementGroupNotFound")
    assert not missing.ready
    there = resolved(placement_group=PlacementGroup("pg-1", "near", "cluster"))
    assert there.nodeclass.placement_group == PlacementGroup("pg-1", "near", "cluster")
    assert there.ready
    assert resolved(there.nodeclass).nodeclass.placement_group is None


@pytest.mark.parametrize(
    ("kubelet", "on", "reason"),
    [
        ({"maxPods": "vcpus * 2", "kubeReserved": {"cpu": "70 + vcpus"}}, True, ""),
        ({"maxPods": "vcpus * 2"}, False, "KubeletExpressionsDisabled"),
        ({"maxPods": "vcpus *"}, True, "KubeletExpressionInvalid"),
        ({"systemReserved": {"memory": "cores * 2"}}, True, "KubeletExpressionInvalid"),
        ({"maxPods": "vcpus", "podsPerCore": -1}, True, "InvalidKubeletConfiguration"),
    ],
)
def test_kubelet_amounts_may_be_expressions_where_the_gate_is_on(
    kubelet: dict[str, object], on: bool, reason: str
) -> None:
    refusal = validation.validate(fresh(kubelet=kubelet), FACTS, Overheads(nodeclass_cel=on))
    assert (refusal.reason if isinstance(refusal, Refusal) else "") == reason


LAST = {
    "subnets": "subnets",
    "security_groups": "security_groups",
    "amis": "amis",
    "instance_profile": "resolved_instance_profile",
    "placement_group": "placement_group",
    "capacity_reservations": "capacity_reservations",
}
KINDS = {
    "subnets": "SubnetsReady", "security_groups": "SecurityGroupsReady", "amis": "AMIsReady",
    "instance_profile": "InstanceProfileReady", "placement_group": "PlacementGroupReady",
    "capacity_reservations": "CapacityReservationsReady",
}  # fmt: skip


@pytest.mark.parametrize("what", sorted(KINDS))
def test_what_nobody_can_say_now_stays_as_it_was(what: str) -> None:
    before = resolved(placement_group=PlacementGroup("pg-1", "spread", "spread")).nodeclass
    later = resolved(before, **{"placement_group": before.placement_group, what: Unanswered("EC2 is down")})
    assert later.ready
    assert getattr(later.nodeclass, LAST[what]) == getattr(before, LAST[what])


@pytest.mark.parametrize("what", sorted(KINDS))
def test_without_an_answer_a_new_class_and_a_changed_one_are_open_and_no_other_condition_is(what: str) -> None:
    before = resolved(fresh(metadata=ObjectMeta("default", uid="u", generation=1))).nodeclass
    changed = msgspec.structs.replace(before, metadata=ObjectMeta("default", uid="u", generation=2))
    for unresolved in (fresh(), changed):
        resolution = resolved(unresolved, **{what: Unanswered("EC2 is down")})
        assert not resolution.ready
        assert said(resolution, KINDS[what]) == ("Unknown", "AwaitingReconciliation", "EC2 is down")
        assert said(resolution, "ValidationSucceeded") == ("Unknown", "DependenciesNotReady", f"{KINDS[what]}=Unknown")
        failing = f"{KINDS[what]}=Unknown, ValidationSucceeded=Unknown"
        assert said(resolution, "Ready") == ("Unknown", "ReconcilingDependents", failing)
        assert sum(condition.status == "Unknown" for condition in resolution.nodeclass.conditions) == 3


def test_a_no_beside_a_missing_answer_is_a_no() -> None:
    resolution = resolved(subnets=(), amis=Unanswered("SSM is down"))
    assert said(resolution, "ValidationSucceeded")[:2] == ("False", "DependenciesNotReady")
    assert said(resolution, "Ready")[:2] == ("False", "UnhealthyDependents")


@pytest.mark.parametrize(
    ("kubelet", "reason", "text"),
    [
        ({"maxPods": "vcpus * 10"}, "", ""),
        ({"maxPods": "100 / (vcpus - 2)"}, "KubeletExpressionEvaluationFailed", "spec.kubelet.maxPods for m5.large"),
        ({"maxPods": "vcpus - 3"}, "KubeletExpressionEvaluationFailed", "for m5.large: 'vcpus - 3' is -1"),
        ({"maxPods": "vcpus * 1000000000"}, "KubeletExpressionEvaluationFailed", "for m5.xlarge"),
        ({"kubeReserved": {"memory": "100 / (vcpus - 2)"}}, "KubeletExpressionEvaluationFailed",
         "spec.kubelet.kubeReserved.memory for m5.large"),
        ({"kubeReserved": {"cpu": "vcpus - 100"}}, "", ""),
        ({"kubeReserved": {"cpu": "vcpus - 100", "memory": "max_pods * 11"}, "maxPods": 20}, "", ""),
    ],
)  # fmt: skip
def test_an_expression_must_have_a_value_for_every_type_of_the_region(
    kubelet: dict[str, object], reason: str, text: str
) -> None:
    checks = readiness.ValidationInputs(
        Overheads(nodeclass_cel=True), tuple(type_of(name) for name in ("m5.large", "m5.xlarge"))
    )
    resolution = readiness.resolve(fresh(kubelet=kubelet), FOUND, FACTS, now=NOW, inputs=checks)
    status, why, message = said(resolution, "ValidationSucceeded")
    assert (status, why) == (("False", reason) if reason else ("True", "ValidationSucceeded"))
    assert text in message


def test_expressions_are_open_while_the_types_are_not_known() -> None:
    checks = readiness.ValidationInputs(Overheads(nodeclass_cel=True), Unanswered("not known yet"))
    nodeclass = fresh(kubelet={"maxPods": "vcpus"})
    assert (
        said(readiness.resolve(nodeclass, FOUND, FACTS, now=NOW, inputs=checks), "ValidationSucceeded")[0] == "Unknown"
    )
    assert readiness.resolve(fresh(), FOUND, FACTS, now=NOW, inputs=checks).ready
