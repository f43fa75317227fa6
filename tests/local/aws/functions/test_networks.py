"""Functions in a VPC reach what their subnets have a way to, and a private API server from its own VPC alone."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from moto.ec2.models import ec2_backends

from local.aws.calls.call_log import CallLog
from local.aws.emulator import Emulator
from local.aws.functions.networks import FunctionNetworks
from local.aws.strictness import Rule
from tests.local.aws.serverless import Aws, run_local_aws

# Functions have no SDK here; who calls is read from the scope of the signature.
ASKS = """
import os, ssl, urllib.request

def handler(event, context):
    scope = f"{os.environ['AWS_ACCESS_KEY_ID']}/20260101/{os.environ['AWS_REGION']}/sts/aws4_request"
    headers = {"Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=0",
               "Content-Type": "application/x-www-form-urlencoded"}
    body = b"Action=GetCallerIdentity&Version=2011-06-15"
    try:
        request = urllib.request.Request(os.environ["AWS_ENDPOINT_URL"], body, headers)
        trusted = ssl.create_default_context(cafile=os.environ["AWS_CA_BUNDLE"])
        urllib.request.urlopen(request, context=trusted).read()
    except OSError as error:
        return type(error).__name__
    return "answered"
"""
_numbers = itertools.count()


@dataclass
class Network:
    """A VPC with a subnet and its route table."""

    ec2: Any
    vpc: str
    subnet: str
    table: str

    def route(self, **target: str) -> None:
        self.ec2.create_route(RouteTableId=self.table, DestinationCidrBlock="0.0.0.0/0", **target)

    def add_nat_gateway(self) -> None:
        address = self.ec2.allocate_address(Domain="vpc")["AllocationId"]
        made = self.ec2.create_nat_gateway(SubnetId=self.subnet, AllocationId=address)["NatGateway"]
        self.route(NatGatewayId=made["NatGatewayId"])

    def add_internet_gateway(self) -> None:
        gateway = self.ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
        self.ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=self.vpc)
        self.route(GatewayId=gateway)

    def add_endpoint(self, service: str, *, has_dns: bool = True) -> str:
        made = self.ec2.create_vpc_endpoint(
            VpcId=self.vpc,
            ServiceName=f"com.amazonaws.ap-northeast-2.{service}",
            VpcEndpointType="Interface",
            SubnetIds=[self.subnet],
            PrivateDnsEnabled=has_dns,
        )
        return str(made["VpcEndpoint"]["VpcEndpointId"])

    def add_and_delete_endpoint(self) -> None:
        self.ec2.delete_vpc_endpoints(VpcEndpointIds=[self.add_endpoint("sts")])

    def add_endpoint_without_private_dns(self) -> None:
        self.add_endpoint("sts", has_dns=False)

    def add_endpoint_of_another_service(self) -> None:
        self.add_endpoint("sqs")

    def add_endpoint_of_the_service(self) -> None:
        self.add_endpoint("sts")


@pytest.fixture(scope="module")
def aws(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Aws]:
    with run_local_aws(tmp_path_factory.mktemp("networks")) as running:
        yield running


@pytest.fixture
def network(aws: Aws) -> Network:
    ec2 = aws.client("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.9.1.0/24")["Subnet"]["SubnetId"]
    table = ec2.create_route_table(VpcId=vpc)["RouteTable"]["RouteTableId"]
    ec2.associate_route_table(RouteTableId=table, SubnetId=subnet)
    return Network(ec2, vpc, subnet, table)


def asked_from(aws: Aws, network: Network) -> str:
    """How a call to STS ends that a new function makes there."""
    name = f"asks-{next(_numbers)}"
    aws.function(name, ASKS, VpcConfig={"SubnetIds": [network.subnet], "SecurityGroupIds": []})
    return str(aws.invoke(name)[0])


def nothing(_: Network) -> None: ...


@pytest.mark.parametrize(
    ("furnish", "answer"),
    [
        (nothing, "RemoteDisconnected"),
        (Network.add_internet_gateway, "RemoteDisconnected"),
        (Network.add_endpoint_of_another_service, "RemoteDisconnected"),
        (Network.add_and_delete_endpoint, "RemoteDisconnected"),
        (Network.add_endpoint_without_private_dns, "RemoteDisconnected"),
        (Network.add_endpoint_of_the_service, "answered"),
        (Network.add_nat_gateway, "answered"),
    ],
    ids=[
        "no route",
        "a public subnet",
        "another endpoint",
        "a deleted endpoint",
        "an endpoint without private DNS",
        "an endpoint",
        "a NAT gateway",
    ],
)
def test_aws_is_reached_by_a_way_out_or_an_endpoint(
    aws: Aws, network: Network, furnish: Callable[[Network], None], answer: str
) -> None:
    furnish(network)
    assert asked_from(aws, network) == answer


def test_where_the_rule_is_relaxed_no_way_is_needed(aws: Aws, network: Network) -> None:
    aws.control("POST", "/_local/strictness", {Rule.FUNCTION_NETWORKS.value: False})
    assert asked_from(aws, network) == "answered"
    aws.control("POST", "/_local/strictness", {Rule.FUNCTION_NETWORKS.value: True})


@pytest.fixture
def networks(tmp_path: Path) -> FunctionNetworks:
    """With the keys of functions outside of VPCs, in the cluster's VPC (no way out), and in another one."""
    emulator = Emulator(tmp_path, "ap-northeast-2", "123456789012", 1, "dev", CallLog(tmp_path / "calls.jsonl"))
    backend: Any = ec2_backends[emulator.account][emulator.region]
    made = FunctionNetworks(emulator)
    made.subnets["outside"] = ()
    for name in ("vpc", "other"):
        vpc = backend.create_vpc("10.8.0.0/16")
        made.subnets[name] = (backend.create_subnet(vpc.id, "10.8.1.0/24", availability_zone="ap-northeast-2a").id,)
    return made


@pytest.mark.parametrize(
    ("public", "cidr", "who", "reaches"),
    [
        (True, "0.0.0.0/0", "outside", True),
        (True, "203.0.113.0/24", "outside", False),
        (False, "0.0.0.0/0", "outside", False),
        (False, "0.0.0.0/0", "vpc", True),
        (False, "0.0.0.0/0", "other", False),
        (True, "0.0.0.0/0", "other", False),
        (False, "0.0.0.0/0", "an operator", True),
    ],
)
def test_an_api_server_is_reached_by_its_public_or_its_private_endpoint(
    networks: FunctionNetworks, public: bool, cidr: str, who: str, reaches: bool
) -> None:
    """Operators are not looked at."""
    (subnet,) = networks.subnets["vpc"]
    config: Mapping[str, Any] = {
        "vpcId": networks.vpc_of(subnet), "endpointPublicAccess": public, "endpointPrivateAccess": True,
        "publicAccessCidrs": [cidr],
    }  # fmt: skip
    assert networks.reaches_cluster(who, config) is reaches
