"""A cluster lets in the two roles, its nodes and the forwarder, and is entered by `install` last."""

import json

import pytest

from forwarder.settings import settings
from spotwright import manifests
from tests.infra import conftest
from tests.infra.template import Template

# What the kubelet adds.
IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.100.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def _entries(template: Template, cluster: str) -> set[tuple[str, str, tuple[str, ...]]]:
    return {
        (resource["PrincipalArn"], resource["Type"], tuple(resource.get("KubernetesGroups", ())))
        for resource in template.of("AWS::EKS::AccessEntry").values()
        if resource["ClusterName"] == cluster
    }


ROLE = "arn:<AWS::Partition>:iam::<AWS::AccountId>:role/"


def test_the_two_roles_have_access_entries(full: Template) -> None:
    for cluster in ("one", "two"):
        assert _entries(full, cluster) == {
            (f"<{full.cluster_role(cluster, 'Read')}.Arn>", "STANDARD", ("spotwright:read",)),
            (f"<{full.cluster_role(cluster, 'Act')}.Arn>", "STANDARD", ("spotwright:act",)),
        }


def test_install_lets_the_nodes_in_but_for_roles_that_are_not_its_own(full: Template) -> None:
    told = {i["Cluster"]: i["NodeRoles"] for i in full.of("Custom::SpotwrightInstall").values()}
    assert told == {
        "one": [{"Arn": f"{ROLE}KarpenterNodeRole-one", "Type": "EC2_LINUX"}],
        "two": [
            {"Arn": f"{ROLE}nodes/two-a", "Type": "EC2_LINUX"},
            {"Arn": f"{ROLE}two-windows", "Type": "EC2_WINDOWS"},
        ],
    }


def test_the_step_from_an_earlier_version_retains_the_entries_in_the_stack() -> None:
    """In the deployment after it they leave the template, and CloudFormation leaves them in the cluster."""
    step = conftest.synthesise({"clusters": [conftest.cluster("one")], "retainNodeEntries": True})
    entries = [resource for id, resource in step.resources.items() if "NodeKarpenterNodeRoleone" in id]
    assert [(entry["Type"], entry["DeletionPolicy"]) for entry in entries] == [("AWS::EKS::AccessEntry", "Retain")]
    (install,) = step.of("Custom::SpotwrightInstall").values()
    assert (install["NodeEntries"], "NodeRoles" in install) == ("retained", False)


def test_the_forwarder_has_its_pod_identity(full: Template) -> None:
    associations = full.of("AWS::EKS::PodIdentityAssociation").values()
    assert {(each["ClusterName"], each["RoleArn"]) for each in associations} == {
        (cluster, f"<{full.cluster_role(cluster, 'Forwarder')}.Arn>") for cluster in ("one", "two")
    }
    for resource in associations:
        assert (resource["Namespace"], resource["ServiceAccount"]) == ("kube-system", "spotwright-forwarder")


@pytest.mark.parametrize("cluster", ["one", "two"])
def test_install_is_told_what_to_put_where(full: Template, cluster: str) -> None:
    (install,) = (i for i in full.of("Custom::SpotwrightInstall").values() if i["Cluster"] == cluster)
    assert install["ForwarderImage"] == "forwarder:1"
    assert install["ManifestsDigest"] == manifests.digest()
    assert install["RoleArn"] == f"<{full.role_id('install')}.Arn>"
    assert install["ServiceToken"] == next(
        f"<{id}.Arn>"
        for id, resource in full.of("AWS::Lambda::Function").items()
        if resource["FunctionName"].endswith("-install")
    )
    told = install["ForwarderEnvironment"]
    assert told["SPOTWRIGHT_CLUSTER"] == cluster
    assert told.get("BATCH_MAX_DURATION") == {"one": "20s", "two": None}[cluster]
    assert {name for name in told if name.endswith("_QUEUE_URL")} == {
        f"SPOTWRIGHT_{word}_QUEUE_URL" for word in ("PROVISION", "LIFECYCLE", "CATALOG")
    }


def built(name: str, **fields: str) -> dict[str, object]:
    """A cluster whose forwarder's image `cdk deploy` builds."""
    return {key: value for key, value in conftest.cluster(name, **fields).items() if key != "forwarderImage"}


def test_an_image_that_is_not_named_is_built_for_nodes_of_its_architecture_alone() -> None:
    """Nothing is built here, and no docker is there."""
    clusters = [built("one"), built("two"), built("arm", forwarderArchitecture="arm64"), conftest.cluster("named")]
    template = conftest.synthesise({"clusters": clusters})
    told = {install["Cluster"]: install for install in template.of("Custom::SpotwrightInstall").values()}
    assert {name: install.get("ForwarderArchitecture") for name, install in told.items()} == {
        "one": "amd64", "two": "amd64", "arm": "arm64", "named": None,
    }  # fmt: skip
    images = {name: install["ForwarderImage"] for name, install in told.items()}
    assert images["named"] == "forwarder:1"
    assert images["one"] == images["two"] != images["arm"]
    assert all("container-assets" in str(images[name]) for name in ("one", "arm"))


def test_the_image_is_made_of_what_dockerignore_lets_in() -> None:
    assembly = conftest.assembly({"clusters": [built("one", forwarderArchitecture="arm64")]})
    (manifest,) = assembly.glob("*.assets.json")
    (image,) = json.loads(manifest.read_text())["dockerImages"].values()
    assert (image["source"]["dockerFile"], image["source"]["platform"]) == ("forwarder/Dockerfile", "linux/arm64")
    folder = assembly / image["source"]["directory"]
    assert {path.name for path in folder.iterdir()} - {".dockerignore"} == {
        "pyproject.toml", "uv.lock", "forwarder", "layers", "tools",
    }  # fmt: skip
    assert not list(folder.rglob("__pycache__"))


def test_a_cluster_is_entered_when_all_is_there_to_serve_it(full: Template) -> None:
    needed = {
        *full.of("AWS::Lambda::EventSourceMapping"),
        *(id for id, resource in full.of("AWS::EKS::AccessEntry").items() if resource["ClusterName"] == "one"),
        *(
            id
            for id, resource in full.of("AWS::EKS::PodIdentityAssociation").items()
            if resource["ClusterName"] == "one"
        ),
    }
    (install,) = (
        resource
        for resource in full.resources.values()
        if resource["Type"] == "Custom::SpotwrightInstall" and resource["Properties"]["Cluster"] == "one"
    )
    assert needed <= set(install["DependsOn"])


def test_nothing_is_made_in_a_cluster_before_it_was_looked_at(full: Template) -> None:
    looks = {resource["Cluster"]: id for id, resource in full.of("Custom::SpotwrightPreflight").items()}
    assert set(looks) == {"one", "two"}
    made = [r for r in full.resources.values() if r["Type"].startswith("AWS::EKS::")]
    assert made
    for resource in made:
        assert looks[resource["Properties"]["ClusterName"]] in resource["DependsOn"]
    look = full.of("Custom::SpotwrightPreflight")[looks["two"]]
    assert (look["NodeRoles"], look["WindowsNodeRoles"]) == (["nodes/two-a", "two-b", "two-windows"], ["two-windows"])
    assert look["VpcId"] == "vpc-0123456a"


def test_iam_is_not_asked_where_a_cluster_says_that_it_is_not_reached() -> None:
    isolated = {"ISOLATED_VPC": "true"}
    clusters = [
        conftest.cluster("one", settings=isolated, skipChecks=["pod-identity"]),
        conftest.cluster("two", settings=isolated, skipChecks=["node-roles"]),
        conftest.cluster("three"),
    ]
    looks = conftest.synthesise({"clusters": clusters}).of("Custom::SpotwrightPreflight").values()
    skipped = {look["Cluster"]: look["SkipChecks"] for look in looks}
    assert skipped == {"one": ["pod-identity", "node-roles"], "two": ["node-roles"], "three": []}


def test_what_would_be_left_is_said_before_anything_is_deleted(full: Template) -> None:
    """CloudFormation deletes what needs something before that, and what a failed deletion needs not at all."""
    saying = {r["Properties"]["Cluster"]: r for r in full.resources.values() if "NodesLeft" in r["Type"]}
    assert set(saying) == {"one", "two"}
    others = {name for name, resource in full.resources.items() if "NodesLeft" not in resource["Type"]}
    for resource in saying.values():
        assert set(resource["DependsOn"]) == others


def test_the_forwarder_starts_with_what_it_is_told(full: Template) -> None:
    for install in full.of("Custom::SpotwrightInstall").values():
        read = settings(install["ForwarderEnvironment"] | IN_A_POD)
        assert read.cluster == install["Cluster"]
        assert all(read.queues.values())


def test_the_clock_starts_when_clusters_let_the_functions_in(full: Template) -> None:
    installed = set(full.of("Custom::SpotwrightInstall"))
    schedules = [resource for resource in full.resources.values() if resource["Type"] == "AWS::Scheduler::Schedule"]
    assert schedules
    region = [resource for resource in schedules if '"region"' in resource["Properties"]["Target"]["Input"]]
    assert len(region) == 1
    assert all(installed <= set(resource["DependsOn"]) for resource in schedules if resource not in region)


def test_the_region_is_read_while_clusters_are_opened_and_not_before_it_may(full: Template) -> None:
    (region,) = (
        each for each in full.of("AWS::Scheduler::Schedule").items() if '"region"' in each[1]["Target"]["Input"]
    )
    needed = set(full.resources[region[0]]["DependsOn"])
    assert not needed & set(full.of("Custom::SpotwrightInstall"))
    acting = {
        name for name, resource in full.resources.items() if resource["Type"] == "AWS::IAM::Role" and "Act" in name
    }
    assert acting
    assert acting <= needed
