"""What the preflight asks AWS for."""

import json
from pathlib import Path
from typing import Any

import pytest
import urllib3

from infra.config import parse_config
from spotwright.adapters.aws import clients, node_roles, preflight
from spotwright.adapters.aws.cluster_entry import cluster_entry
from spotwright.adapters.aws.eks import readiness
from spotwright.cli import main
from spotwright.workflows.install.preflight.facts import (
    AccessEntry,
    Addon,
    ClusterDescription,
    KmsKey,
    NotAsked,
    Role,
    Subnet,
)
from tests.contract.conftest import LocalAws

NAME = "looked-at"
ROLE = "KarpenterNodeRole-dev-eks-cluster"


@pytest.fixture(scope="module")
def aws(local_aws: LocalAws) -> LocalAws:
    body = {"name": NAME, "endpoint": "https://127.0.0.1:6443", "certificateAuthority": "Q0E=", "version": "1.35"}
    assert urllib3.request("POST", f"{local_aws.endpoint}/_local/clusters", body=json.dumps(body)).status == 200
    return local_aws


def client(aws: LocalAws, service: str) -> Any:
    return aws.client(service)


def test_a_cluster_says_what_the_checks_look_at(aws: LocalAws) -> None:
    eks = client(aws, "eks")
    cluster = readiness.describe(eks, NAME)
    assert isinstance(cluster, ClusterDescription)
    assert (cluster.status, cluster.version, cluster.authentication_mode) == ("ACTIVE", "1.35", "API")
    assert (cluster.has_public_endpoint, cluster.has_private_endpoint) == (True, True)
    assert cluster.public_cidrs == ("0.0.0.0/0",)
    assert cluster.vpc_id.startswith("vpc-")
    assert cluster.subnet_ids
    assert not cluster.is_auto_mode
    assert preflight.admitted(client(aws, "ec2"), cluster.security_groups) == frozenset(cluster.security_groups)
    assert readiness.describe(eks, "nobody") is None
    names = readiness.cluster_names(eks)
    assert not isinstance(names, NotAsked)
    assert NAME in names
    listed, addons = readiness.addons(eks, NAME), preflight.described_addons(eks, NAME)
    assert not isinstance(listed, NotAsked)
    assert not isinstance(addons, NotAsked)
    assert listed.keys() == addons.keys()
    assert addons["kube-proxy"] == Addon("ACTIVE", "v1.35.0-eksbuild.1")


def test_roles_and_their_entries(aws: LocalAws) -> None:
    iam, eks = client(aws, "iam"), client(aws, "eks")
    role = node_roles.role(iam, ROLE)
    assert isinstance(role, Role)
    assert role.trusted_services == {"ec2.amazonaws.com"}
    assert {"AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly"} <= role.policies
    assert not role.has_other_policies
    assert node_roles.role(iam, "no-such-role") is None
    assert node_roles.role(iam, f"nodes/{ROLE}") == role
    assert role.path == "/"
    arn = f"arn:aws:iam::123456789012:role/{ROLE}"
    assert preflight.entries(eks, NAME, {ROLE: arn}) == {ROLE: None}
    eks.create_access_entry(clusterName=NAME, principalArn=arn, type="EC2_LINUX")
    entry = preflight.entries(eks, NAME, {ROLE: arn})[ROLE]
    assert isinstance(entry, AccessEntry)
    assert entry.type == "EC2_LINUX"
    assert role.created_at is not None
    assert entry.created_at is not None
    assert role.created_at < entry.created_at
    assert preflight.policy_document(iam, "arn:aws:iam::123456789012:policy/none") is None
    assert preflight.spot_role_exists(iam) is True
    assert preflight.concurrency(client(aws, "lambda")) == 1000


def test_quotas_of_vcpus(aws: LocalAws) -> None:
    quotas = client(aws, "service-quotas")
    url = f"{aws.endpoint}/_local/quotas"
    assert urllib3.request("POST", url, body=json.dumps({"L-1216C47A": 5, "L-3819A6DF": 0})).status == 200
    try:
        codes = ("L-1216C47A", "L-34B43A08", "L-3819A6DF", "L-00000000")
        found = preflight.vcpu_quotas(quotas, codes)
    finally:
        urllib3.request("DELETE", url)
    assert found == {"L-1216C47A": 5, "L-34B43A08": 10_000, "L-3819A6DF": 0}


def test_a_boundary_says_what_it_allows(aws: LocalAws) -> None:
    iam, allowed = client(aws, "iam"), {"Effect": "Allow", "Action": "sqs:*", "Resource": "*"}
    document = {"Version": "2012-10-17", "Statement": [allowed]}
    arn = iam.create_policy(PolicyName="limits", PolicyDocument=json.dumps(document))["Policy"]["Arn"]
    assert preflight.policy_document(iam, arn) == document


def test_a_registry_says_whether_it_has_an_image(aws: LocalAws, monkeypatch: pytest.MonkeyPatch) -> None:
    ecr = client(aws, "ecr")
    monkeypatch.setattr(clients, "client", lambda _service, **_: ecr)
    ecr.create_repository(repositoryName="spotwright-forwarder")
    manifest = json.dumps({"schemaVersion": 2, "mediaType": "application/vnd.docker.distribution.manifest.v2+json"})
    ecr.put_image(repositoryName="spotwright-forwarder", imageManifest=manifest, imageTag="1")
    (image,) = ecr.describe_images(repositoryName="spotwright-forwarder")["imageDetails"]
    name = "123456789012.dkr.ecr.ap-northeast-2.amazonaws.com/spotwright-forwarder"
    assert preflight.image_exists(f"{name}:1") is True
    assert preflight.image_exists(f"{name}@{image['imageDigest']}") is True
    assert preflight.image_exists(f"{name}:2") is False
    assert preflight.image_exists(f"{name}@sha256:{'0' * 64}") is False
    assert preflight.image_exists(name.replace("forwarder", "other")) is False
    assert isinstance(preflight.image_exists("r.example.com/spotwright-forwarder:1"), NotAsked)


def test_the_network_of_the_functions(aws: LocalAws) -> None:
    ec2 = client(aws, "ec2")
    vpc = ec2.create_vpc(CidrBlock="10.77.0.0/16")["Vpc"]["VpcId"]
    made = [ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.77.{n}.0/24")["Subnet"]["SubnetId"] for n in range(2)]
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    ec2.associate_route_table(RouteTableId=table, SubnetId=made[0])
    subnets = preflight.subnets(ec2, (*made, "subnet-0123456a"), vpc)
    assert not isinstance(subnets, NotAsked)
    main = subnets[made[1]].route_table
    assert subnets == {made[0]: Subnet(vpc, "igw", table), made[1]: Subnet(vpc, "", main)}
    assert main.startswith("rtb-")
    group = ec2.create_security_group(VpcId=vpc, GroupName="functions", Description="x")["GroupId"]
    assert preflight.security_groups(ec2, (group, "sg-0123456a")) == {group: vpc}
    rules = [
        {"IpProtocol": "tcp", "FromPort": 80, "ToPort": 80, "IpRanges": [{"CidrIp": "10.1.0.0/16"}]},
        {"IpProtocol": "tcp", "FromPort": 400, "ToPort": 500, "IpRanges": [{"CidrIp": "10.2.0.0/16"}]},
        {"IpProtocol": "udp", "FromPort": 443, "ToPort": 443, "IpRanges": [{"CidrIp": "10.3.0.0/16"}]},
        {"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": group}]},
    ]
    ec2.authorize_security_group_ingress(GroupId=group, IpPermissions=rules)
    assert preflight.admitted(ec2, (group,)) == frozenset({"10.2.0.0/16", group})
    names = f"com.amazonaws.{ec2.meta.region_name}"
    ec2.create_vpc_endpoint(VpcId=vpc, ServiceName=f"{names}.s3", VpcEndpointType="Gateway", RouteTableIds=[table])
    for service, has_dns in (("ecr.api", True), ("sqs", False)):
        ec2.create_vpc_endpoint(
            VpcId=vpc,
            ServiceName=f"{names}.{service}",
            VpcEndpointType="Interface",
            SubnetIds=made,
            PrivateDnsEnabled=has_dns,
        )
    assert preflight.endpoints(ec2, vpc, {table}) == frozenset({"s3", "ecr.api"})
    assert preflight.endpoints(ec2, vpc, {table, main}) == frozenset({"ecr.api"}), (
        "the gateway is in one of the route tables"
    )


def test_a_key_says_whether_it_is_enabled_and_whom_its_policy_lets_use_it(aws: LocalAws) -> None:
    kms = client(aws, "kms")
    use = {"Effect": "Allow", "Action": ["kms:Decrypt", "kms:GenerateDataKey*"], "Resource": "*"}
    read = {"Effect": "Allow", "Action": "kms:Decrypt", "Resource": "*", "Principal": {"Service": "s3.amazonaws.com"}}
    root = {
        "Effect": "Allow",
        "Action": "kms:*",
        "Resource": "*",
        "Principal": {"AWS": "arn:aws:iam::123456789012:root"},
    }
    services = ["events.amazonaws.com", "logs.ap-northeast-2.amazonaws.com"]
    policy = {"Version": "2012-10-17", "Statement": [root, read, {**use, "Principal": {"Service": services}}]}
    arn = kms.create_key(Policy=json.dumps(policy))["KeyMetadata"]["Arn"]
    assert preflight.kms_key(kms, arn) == KmsKey("Enabled", frozenset(services))
    named = {**root, "Principal": {"AWS": "arn:aws:iam::123456789012:role/administrator"}}
    kms.put_key_policy(KeyId=arn, PolicyName="default", Policy=json.dumps({"Statement": [named]}))
    assert preflight.kms_key(kms, arn) == KmsKey("Enabled", is_left_to_iam=False)
    everybody = {"Statement": [{**use, "Action": "kms:*", "Principal": "*"}]}
    kms.put_key_policy(KeyId=arn, PolicyName="default", Policy=json.dumps(everybody))
    kms.disable_key(KeyId=arn.rpartition("/")[2])
    assert preflight.kms_key(kms, arn) == KmsKey("Disabled", frozenset({"*"}))
    assert preflight.kms_key(kms, arn.replace(arn[-4:], "0000")) is None


def test_an_entry_of_cdk_json_is_written_from_what_eks_says(
    aws: LocalAws, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for key, value in {"AWS_ENDPOINT_URL": aws.endpoint, "AWS_REGION": "ap-northeast-2"}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "local-admin")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "local-admin")
    clients.client.cache_clear()
    clients.own_session.cache_clear()
    config = tmp_path / "cdk.json"
    config.write_text(json.dumps({"app": "x", "context": {"spotwright": {"clusters": [{"name": "other"}]}}}))
    arguments = ["init", "--config", str(config), "--cluster"]
    assert main([*arguments, "nobody"]) == 1
    assert "spotwright init: EKS has no cluster nobody in ap-northeast-2: the" in capsys.readouterr().err
    assert main([*arguments, NAME, "--node-role", ""]) == 2
    assert "--node-role: got '', allowed: an IAM role's name or ARN" in capsys.readouterr().err
    more = ["--node-role", "nodes/more", "--node-role", "arn:aws:iam::123456789012:role/nodes/further"]
    assert main([*arguments, NAME, *more]) == 0
    assert "also names other: take out what is not yours" in capsys.readouterr().out
    written = json.loads(config.read_text())
    assert written["app"] == "x"
    entry = written["context"]["spotwright"]["clusters"][1]
    assert {"dev-eks-node-group-role", "nodes/more", "nodes/further"} <= {*entry["nodeRoles"]}
    assert ("forwarderImage" in entry, entry["forwarderArchitecture"]) == (False, "amd64")
    assert "vpc" not in entry
    parse_config({"clusters": [entry]})
    assert main([*arguments, NAME]) == 2
    assert "which is not changed" in capsys.readouterr().err
    assert json.loads(config.read_text()) == written
    clients.client.cache_clear()
    clients.own_session.cache_clear()


class Private:
    """EKS, with the endpoint of the cluster made private, and its network as given."""

    def __init__(self, eks: Any, **network: Any) -> None:
        self._eks, self._network = eks, network

    def __getattr__(self, name: str) -> Any:
        return getattr(self._eks, name)

    def describe_cluster(self, name: str) -> Any:
        cluster = self._eks.describe_cluster(name=name)["cluster"]
        network = cluster["resourcesVpcConfig"] | {"endpointPublicAccess": False} | self._network
        return {"cluster": cluster | {"resourcesVpcConfig": network}}


def test_a_private_cluster_gets_its_private_subnets_and_its_group(aws: LocalAws) -> None:
    ec2, eks = client(aws, "ec2"), client(aws, "eks")
    private: Any = Private(eks)
    network = eks.describe_cluster(name=NAME)["cluster"]["resourcesVpcConfig"]
    entry = cluster_entry(private, ec2, NAME)
    assert entry["vpc"]["vpcId"] == network["vpcId"]
    assert set(entry["vpc"]["subnetIds"]) <= set(network["subnetIds"])
    assert entry["vpc"]["securityGroupIds"] == [network["clusterSecurityGroupId"]]


def test_where_all_of_its_subnets_are_public_others_of_the_vpc_are_taken_and_without_any_it_is_said(
    aws: LocalAws, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    ec2, eks = client(aws, "ec2"), client(aws, "eks")
    vpc = ec2.create_vpc(CidrBlock="10.78.0.0/16")["Vpc"]["VpcId"]
    public = ec2.create_subnet(VpcId=vpc, CidrBlock="10.78.0.0/24")["Subnet"]["SubnetId"]
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=vpc)
    table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    ec2.create_route(RouteTableId=table, DestinationCidrBlock="0.0.0.0/0", GatewayId=gateway)
    ec2.associate_route_table(RouteTableId=table, SubnetId=public)
    asked = {"eks": Private(eks, vpcId=vpc, subnetIds=[public]), "ec2": ec2}
    monkeypatch.setattr(clients, "client", lambda service, **_: asked[service])
    config = tmp_path / "cdk.json"
    config.write_text(json.dumps({"context": {"spotwright": {"clusters": []}}}))
    arguments = ["init", "--config", str(config), "--cluster", NAME]
    assert main(arguments) == 2
    said = capsys.readouterr().err
    assert f"the API server of {NAME} is not open to everybody, and {vpc} has public subnets alone" in said
    assert "make private subnets" in said
    assert not json.loads(config.read_text())["context"]["spotwright"]["clusters"]
    private = ec2.create_subnet(VpcId=vpc, CidrBlock="10.78.1.0/24")["Subnet"]["SubnetId"]
    assert main(arguments) == 0
    (entry,) = json.loads(config.read_text())["context"]["spotwright"]["clusters"]
    assert entry["vpc"]["subnetIds"] == [private]
    assert entry["settings"] == {"ISOLATED_VPC": "true"}, "it has no way to the internet"
    parse_config({"clusters": [entry]})


def test_a_refusal_is_an_answer(aws: LocalAws, fault: Any) -> None:
    fault("eks", "DescribeCluster", "AccessDeniedException")
    fault("iam", "GetRole", "InternalFailure")
    refused = readiness.describe(client(aws, "eks"), NAME)
    assert isinstance(refused, NotAsked)
    assert refused.reason == "eks:DescribeCluster is denied to you (AccessDeniedException)"
    assert isinstance(node_roles.role(client(aws, "iam"), ROLE), NotAsked)
