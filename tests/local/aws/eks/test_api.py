"""Clusters, access entries and Pod Identity associations over EKS's API."""

import base64
import itertools
import json
from typing import Any

import pytest
from botocore.exceptions import ClientError

from tests.local.aws.conftest import ACCOUNT, REGION, Aws
from tests.local.aws.fleets import code_of

ADMIN_POLICY = "arn:aws:eks::aws:cluster-access-policy/AmazonEKSClusterAdminPolicy"
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def cluster(aws: Aws) -> str:
    aws.control(
        "POST",
        "/_local/clusters",
        {
            "name": "eks-test",
            "endpoint": "https://127.0.0.1:6443",
            "certificateAuthority": base64.b64encode(b"CA").decode(),
            "version": "1.35",
            "serviceIpv4Cidr": "10.96.0.0/12",
        },
    )
    return "eks-test"


@pytest.fixture
def principal(aws: Aws) -> str:
    trust = {"Effect": "Allow", "Principal": {"Service": "ec2.amazonaws.com"}, "Action": "sts:AssumeRole"}
    role = aws.client("iam").create_role(
        RoleName=f"eks-{next(_numbers)}",
        Path="/path/",
        AssumeRolePolicyDocument=json.dumps({"Version": "2012-10-17", "Statement": [trust]}),
    )
    return str(role["Role"]["Arn"])


def refused(call: Any) -> str:
    with pytest.raises(ClientError) as caught:
        call()
    return code_of(caught.value)


def test_a_cluster_is_described_as_registered(aws: Aws, cluster: str) -> None:
    eks = aws.client("eks")
    found = eks.describe_cluster(name=cluster)["cluster"]
    assert (found["status"], found["version"]) == ("ACTIVE", "1.35")
    assert found["endpoint"] == "https://127.0.0.1:6443"
    assert base64.b64decode(found["certificateAuthority"]["data"]) == b"CA"
    assert found["kubernetesNetworkConfig"]["serviceIpv4Cidr"] == "10.96.0.0/12"
    assert found["accessConfig"]["authenticationMode"] == "API"
    subnets = aws.client("ec2").describe_subnets(SubnetIds=found["resourcesVpcConfig"]["subnetIds"])["Subnets"]
    assert {subnet["VpcId"] for subnet in subnets} == {found["resourcesVpcConfig"]["vpcId"]}
    group = found["resourcesVpcConfig"]["clusterSecurityGroupId"]
    assert aws.client("ec2").describe_security_groups(GroupIds=[group])["SecurityGroups"]
    assert cluster in eks.list_clusters()["clusters"]


def test_access_entries_are_unknown_to_a_cluster_in_config_map_mode(aws: Aws) -> None:
    eks, name = aws.client("eks"), "with-config-map"
    body = {"name": name, "endpoint": "https://127.0.0.1:6443", "certificateAuthority": "Q0E="}
    aws.control("POST", "/_local/clusters", body | {"authenticationMode": "CONFIG_MAP"})
    arn = f"arn:aws:iam::{ACCOUNT}:role/any"
    for call in (
        lambda: eks.create_access_entry(clusterName=name, principalArn=arn),
        lambda: eks.describe_access_entry(clusterName=name, principalArn=arn),
        lambda: eks.list_access_entries(clusterName=name),
        lambda: eks.delete_access_entry(clusterName=name, principalArn=arn),
    ):
        assert refused(call) == "InvalidRequestException"

    def change(mode: str) -> Any:
        return eks.update_cluster_config(name=name, accessConfig={"authenticationMode": mode})

    assert refused(lambda: change("API")) == "InvalidParameterException"
    change("API_AND_CONFIG_MAP")
    assert eks.list_access_entries(clusterName=name)["accessEntries"] == []
    assert refused(lambda: change("CONFIG_MAP")) == "InvalidParameterException"
    change("API")
    assert eks.describe_cluster(name=name)["cluster"]["accessConfig"]["authenticationMode"] == "API"


def test_an_unknown_cluster_is_not_found(aws: Aws) -> None:
    eks = aws.client("eks")
    assert refused(lambda: eks.describe_cluster(name="nobody")) == "ResourceNotFoundException"
    assert refused(lambda: eks.list_access_entries(clusterName="nobody")) == "ResourceNotFoundException"


def test_another_region_has_none_of_the_clusters(aws: Aws, cluster: str) -> None:
    elsewhere = aws.client("eks", region="eu-west-3")
    assert elsewhere.list_clusters()["clusters"] == []
    assert refused(lambda: elsewhere.describe_cluster(name=cluster)) == "ResourceNotFoundException"
    assert refused(lambda: elsewhere.list_access_entries(clusterName=cluster)) == "ResourceNotFoundException"


def test_the_life_of_an_access_entry(aws: Aws, cluster: str, principal: str) -> None:
    eks = aws.client("eks")
    key = {"clusterName": cluster, "principalArn": principal}
    made = eks.create_access_entry(**key, kubernetesGroups=["spotwright:read"], tags={"a": "b"})["accessEntry"]
    name = principal.rsplit("/", 1)[-1]
    assert made["username"] == f"arn:aws:sts::{ACCOUNT}:assumed-role/{name}/{{{{SessionName}}}}"
    prefix = f"arn:aws:eks:{REGION}:{ACCOUNT}:access-entry/{cluster}/role/{ACCOUNT}/"
    assert made["accessEntryArn"].startswith(prefix)
    assert refused(lambda: eks.create_access_entry(**key)) == "ResourceInUseException"
    eks.update_access_entry(**key, kubernetesGroups=["spotwright:act"])
    assert eks.describe_access_entry(**key)["accessEntry"]["kubernetesGroups"] == ["spotwright:act"]
    assert principal in eks.list_access_entries(clusterName=cluster)["accessEntries"]
    eks.delete_access_entry(**key)
    assert refused(lambda: eks.describe_access_entry(**key)) == "ResourceNotFoundException"
    assert refused(lambda: eks.delete_access_entry(**key)) == "ResourceNotFoundException"


def test_policies_of_an_access_entry(aws: Aws, cluster: str, principal: str) -> None:
    eks = aws.client("eks")
    key = {"clusterName": cluster, "principalArn": principal}
    eks.create_access_entry(**key)
    eks.associate_access_policy(**key, policyArn=ADMIN_POLICY, accessScope={"type": "cluster"})
    (policy,) = eks.list_associated_access_policies(**key)["associatedAccessPolicies"]
    assert (policy["policyArn"], policy["accessScope"]["type"]) == (ADMIN_POLICY, "cluster")
    with_policy = eks.list_access_entries(clusterName=cluster, associatedPolicyArn=ADMIN_POLICY)
    assert principal in with_policy["accessEntries"]
    eks.disassociate_access_policy(**key, policyArn=ADMIN_POLICY)
    assert eks.list_associated_access_policies(**key)["associatedAccessPolicies"] == []


def test_a_node_entry_has_its_name_and_group_from_eks(aws: Aws, cluster: str, principal: str) -> None:
    entry = aws.client("eks").create_access_entry(clusterName=cluster, principalArn=principal, type="EC2_LINUX")
    assert entry["accessEntry"]["username"] == "system:node:{{EC2PrivateDNSName}}"
    assert entry["accessEntry"]["kubernetesGroups"] == ["system:nodes"]


@pytest.mark.parametrize(
    "wrong",
    [
        {"kubernetesGroups": ["system:masters"]},
        {"username": "system:admin"},
        {"type": "SOMETHING"},
        {"type": "EC2_LINUX", "kubernetesGroups": ["mine"]},
    ],
)
def test_entries_eks_refuses(aws: Aws, cluster: str, principal: str, wrong: dict[str, Any]) -> None:
    eks = aws.client("eks")
    call = {"clusterName": cluster, "principalArn": principal} | wrong
    assert refused(lambda: eks.create_access_entry(**call)) == "InvalidParameterException"


def test_the_life_of_a_pod_identity_association(aws: Aws, cluster: str) -> None:
    eks = aws.client("eks")
    service = {"Service": "pods.eks.amazonaws.com"}
    aws.role("eks-pod", trust=service, trusted_actions=["sts:AssumeRole", "sts:TagSession"])
    pod = {"clusterName": cluster, "namespace": "kube-system", "serviceAccount": "forwarder"}
    role = f"arn:aws:iam::{ACCOUNT}:role/eks-pod"
    made = eks.create_pod_identity_association(**pod, roleArn=role)["association"]
    assert refused(lambda: eks.create_pod_identity_association(**pod, roleArn=role)) == "ResourceInUseException"
    (listed,) = eks.list_pod_identity_associations(**pod)["associations"]
    assert listed["associationId"] == made["associationId"]
    credentials = aws.control(
        "POST",
        "/_local/podidentity",
        {"cluster": cluster, "namespace": "kube-system", "serviceAccount": "forwarder"},
    )
    session = {
        "AccessKeyId": credentials["AccessKeyId"],
        "SecretAccessKey": credentials["SecretAccessKey"],
        "SessionToken": credentials["Token"],
    }
    assert ":assumed-role/eks-pod/eks-" in aws.client("sts", session).get_caller_identity()["Arn"]
    key = {"clusterName": cluster, "associationId": made["associationId"]}
    assert eks.describe_pod_identity_association(**key)["association"]["roleArn"] == role
    eks.delete_pod_identity_association(**key)
    assert refused(lambda: eks.describe_pod_identity_association(**key)) == "ResourceNotFoundException"
    body = {"cluster": cluster, "namespace": "kube-system", "serviceAccount": "forwarder"}
    assert aws.control("POST", "/_local/podidentity", body)["status"] == 400


@pytest.mark.parametrize(
    ("trust", "actions"),
    [
        ({"Service": "pods.eks.amazonaws.com"}, "sts:AssumeRole"),
        ({"Service": "lambda.amazonaws.com"}, ["sts:AssumeRole", "sts:TagSession"]),
    ],
    ids=["no TagSession", "another service"],
)
def test_a_role_must_trust_eks_to_be_given_to_a_pod(aws: Aws, cluster: str, trust: Any, actions: Any) -> None:
    name = f"eks-distrust-{next(_numbers)}"
    aws.role(name, trust=trust, trusted_actions=actions)
    pod = {"clusterName": cluster, "namespace": "default", "serviceAccount": name}
    aws.client("eks").create_pod_identity_association(**pod, roleArn=f"arn:aws:iam::{ACCOUNT}:role/{name}")
    body = {"cluster": cluster, "namespace": "default", "serviceAccount": name}
    assert "does not trust" in aws.control("POST", "/_local/podidentity", body)["error"]


def test_a_pod_session_carries_its_tags(aws: Aws, cluster: str) -> None:
    trust = {"Service": "pods.eks.amazonaws.com"}
    name = f"eks-tags-{next(_numbers)}"
    only = {"StringEquals": {"aws:PrincipalTag/kubernetes-service-account": name}}
    statement = {"Effect": "Allow", "Action": "sqs:ListQueues", "Resource": "*", "Condition": only}
    aws.role(name, statement, trust=trust, trusted_actions=["sts:AssumeRole", "sts:TagSession"])
    for account in (name, f"{name}-other"):
        aws.client("eks").create_pod_identity_association(
            clusterName=cluster,
            namespace="default",
            serviceAccount=account,
            roleArn=f"arn:aws:iam::{ACCOUNT}:role/{name}",
        )

    def session(account: str) -> dict[str, str]:
        body = {"cluster": cluster, "namespace": "default", "serviceAccount": account}
        given = aws.control("POST", "/_local/podidentity", body)
        return {
            "AccessKeyId": given["AccessKeyId"],
            "SecretAccessKey": given["SecretAccessKey"],
            "SessionToken": given["Token"],
        }

    assert aws.client("sqs", session(name)).list_queues()
    assert refused(lambda: aws.client("sqs", session(f"{name}-other")).list_queues()) == "AccessDeniedException"
