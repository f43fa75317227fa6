"""Updates of a deployed cell, forward and back: what comes, goes and changes, and that nothing is replaced."""

from collections.abc import Mapping
from typing import Any

import pytest

from tests.infra.conftest import BOUNDARY, KEY, cluster, synthesise
from tests.infra.template import Resource, Template

ONE: dict[str, Any] = {"clusters": [cluster("one")]}
# Properties of which a change makes CloudFormation replace the resource, by type:
# https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-template-resource-type-ref.html
FIXED = {
    "AWS::DynamoDB::Table": ("TableName", "KeySchema", "AttributeDefinitions", "LocalSecondaryIndexes"),
    "AWS::EKS::AccessEntry": ("ClusterName", "PrincipalArn", "Type"),
    "AWS::EKS::PodIdentityAssociation": ("ClusterName", "Namespace", "ServiceAccount"),
    "AWS::Events::Rule": ("Name", "EventBusName"),
    "AWS::IAM::ManagedPolicy": ("ManagedPolicyName", "Path", "Description"),
    "AWS::IAM::Role": ("RoleName", "Path"),
    "AWS::Lambda::EventSourceMapping": ("EventSourceArn",),
    "AWS::Lambda::Function": ("FunctionName", "PackageType"),
    "AWS::Logs::LogGroup": ("LogGroupName",),
    "AWS::S3::Bucket": ("BucketName",),
    "AWS::SQS::Queue": ("QueueName", "FifoQueue"),
    "AWS::Scheduler::Schedule": ("Name", "GroupName"),
    "AWS::Scheduler::ScheduleGroup": ("Name",),
    "Custom::SpotwrightClusters": ("ServiceToken",),
    "Custom::SpotwrightInstall": ("ServiceToken", "Cluster"),
    "Custom::SpotwrightNodesLeft": ("ServiceToken", "Cluster"),
    "Custom::SpotwrightPreflight": ("ServiceToken", "Cluster"),
}
UPDATES: dict[str, dict[str, Any]] = {
    "another cluster": {"clusters": [cluster("one"), cluster("two")]},
    "another node role": {"clusters": [cluster("one", nodeRoles=["KarpenterNodeRole-one", "more"])]},
    "another image": {"clusters": [cluster("one", forwarderImage="r.example.com/forwarder@sha256:" + "0" * 64)]},
    "a key": ONE | {"kmsKeyArn": KEY},
    "a permissions boundary": ONE | {"permissionsBoundary": BOUNDARY},
}


@pytest.fixture(scope="module")
def before() -> Template:
    return synthesise(ONE)


@pytest.fixture(scope="module")
def after() -> dict[str, Template]:
    return {name: synthesise(context) for name, context in UPDATES.items()}


def changed(before: Template, after: Template) -> dict[str, Resource]:
    """Resources of both with other properties, as they are after the update, by logical id."""
    common = before.resources.keys() & after.resources.keys()
    return {id: after.resources[id] for id in sorted(common) if before.resources[id] != after.resources[id]}


def types(resources: Mapping[str, Resource]) -> set[str]:
    return {str(resource["Type"]) for resource in resources.values()}


@pytest.mark.parametrize("update", UPDATES)
def test_no_resource_is_replaced_and_none_but_those_of_clusters_come_or_go(
    before: Template, after: dict[str, Template], update: str
) -> None:
    """Nor on the way back, which is the same difference: table, bucket, queues and roles keep what they have."""
    for id, resource in changed(before, after[update]).items():
        old, new = before.resources[id].get("Properties", {}), resource.get("Properties", {})
        assert before.resources[id]["Type"] == resource["Type"]
        for name in FIXED.get(resource["Type"], ()):
            assert old.get(name) == new.get(name), f"{id}.{name}"
    come_or_gone = before.resources.keys() ^ after[update].resources.keys()
    assert bool(come_or_gone) is (update == "another cluster")


def test_another_cluster_changes_nothing_of_the_first_one(before: Template, after: dict[str, Template]) -> None:
    two = after["another cluster"]
    assert before.resources.keys() < two.resources.keys()
    of_one = [
        id for id in before.resources if "one" in id.lower() and id.startswith(("Cluster", "Install", "Preflight"))
    ]
    assert of_one
    assert [id for id in changed(before, two) if id in of_one] == []


def test_what_is_deployed_goes_on_until_it_is_known_what_a_cluster_that_leaves_would_leave(before: Template) -> None:
    (asked,) = before.of("Custom::SpotwrightClusters")
    for id, resource in before.resources.items():
        if resource["Type"] == "AWS::Lambda::Function" and not id.startswith("Install"):
            assert asked in resource["DependsOn"]


def test_another_image_is_a_change_of_the_installation_alone(before: Template, after: dict[str, Template]) -> None:
    assert types(changed(before, after["another image"])) == {"Custom::SpotwrightInstall"}


def test_another_node_role_is_told_to_the_functions_and_let_in(before: Template, after: dict[str, Template]) -> None:
    """What may be passed, what functions choose from, who is let in, what is looked at before."""
    assert types(changed(before, after["another node role"])) == {
        "AWS::IAM::ManagedPolicy", "AWS::IAM::Policy", "AWS::Lambda::Function", "Custom::SpotwrightInstall",
        "Custom::SpotwrightPreflight",
    }  # fmt: skip


def test_a_boundary_is_a_change_of_roles_alone(before: Template, after: dict[str, Template]) -> None:
    bounded = changed(before, after["a permissions boundary"])
    assert types(bounded) == {"AWS::IAM::Role"}
    assert bounded.keys() == {id for id, one in before.resources.items() if one["Type"] == "AWS::IAM::Role"}


def test_a_key_is_a_change_of_what_is_kept_and_of_who_may_use_it(before: Template, after: dict[str, Template]) -> None:
    """CloudFormation changes the key of a table, a bucket, a queue and a log group in place."""
    assert {"AWS::DynamoDB::Table", "AWS::S3::Bucket", "AWS::SQS::Queue", "AWS::IAM::Policy"} <= types(
        changed(before, after["a key"])
    )
